"""A command in a guest behaves as a command does."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from emulator.virtual.failure import VirtualKernelError
from tests.virtual.conftest import Guest


def test_root_with_exit_status_and_separate_outputs(guest: Guest) -> None:
    ended = guest("sh", "-c", "id -u; echo oops >&2; printf 'no newline'; exit 3")
    assert ended.lines == ["0", "no newline"]
    assert ended.errors == ["oops"]
    assert (ended.result.reason, ended.result.exit_status) == ("exited", 3)


def test_signal_is_128_plus_its_number(guest: Guest) -> None:
    ended = guest("sh", "-c", "kill -TERM $$")
    assert (ended.result.reason, ended.result.exit_status) == ("exited", 128 + 15)


def test_missing_command_is_127_and_says_so(guest: Guest) -> None:
    ended = guest("no-such-command")
    assert ended.result.exit_status == 127
    assert "no-such-command" in ended.errors[0]


def test_environment_is_what_was_asked_for(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKED", "1")
    ended = guest("env", environment={"WANTED": "a b"})
    assert "WANTED=a b" in ended.lines
    assert not [line for line in ended.lines if line.startswith("LEAKED")]


def test_same_working_directory(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    (tmp_path / "with space" / "file").write_text("seen\n")
    ended = guest("sh", "-c", "pwd; cat file", directory=tmp_path / "with space")
    assert ended.lines == [str(tmp_path / "with space"), "seen"]


def test_a_program_beside_the_working_directory_is_found(guest: Guest, tmp_path: Path) -> None:
    # Both are below /tmp, which the guest replaces by its own.
    (tmp_path / "work").mkdir()
    (tmp_path / "script.py").write_text("print('found')")
    ended = guest(sys.executable, tmp_path / "script.py", directory=tmp_path / "work")
    assert (ended.lines, ended.errors) == (["found"], [])


def test_a_program_behind_a_link_in_the_working_directory_is_found(
    guest: Guest, tmp_path: Path
) -> None:
    """As `.venv` is, where several clones have one."""
    directory, elsewhere = tmp_path / "clone", tmp_path / "elsewhere"
    directory.mkdir()
    elsewhere.mkdir()
    (elsewhere / "program").write_text("#!/bin/sh\necho found\n")
    (elsewhere / "program").chmod(0o755)
    (directory / "link").symlink_to(elsewhere)
    ended = guest(directory / "link" / "program", directory=directory)
    assert ended.lines == ["found"], ended.result.message


def test_much_output_arrives_whole_and_in_order(guest: Guest) -> None:
    ended = guest("seq", "1", "200000")
    assert ended.lines == [str(number) for number in range(1, 200001)]


def test_orphans_neither_hold_up_the_end_nor_survive(guest: Guest) -> None:
    ended = guest("sh", "-c", "(sleep 1000; echo late) & echo early")
    assert ended.lines == ["early"]
    assert ended.result.virtual_ns < 10**9


QDISCS = (
    "netem delay 1us rate 100gbit", "tbf rate 1gbit burst 9000 limit 1000000", "htb", "fq_codel",
    "red limit 1000000 min 1000 max 3000 avpkt 1000 bandwidth 1gbit", "codel", "fq", "prio", "sfq",
    "plug limit 1000", "clsact", "ingress", "pie", "hfsc", "drr",
)  # fmt: skip


def test_has_what_the_network_needs(guest: Guest) -> None:
    if shutil.which("tc") is None:
        pytest.skip("the command tc (iproute2) is not installed")
    lines = ["set -e", "ip netns add far", "ip link add name a type veth peer name b netns far"]
    lines += [f"ip link add name {kind}9 type {kind}" for kind in ("dummy", "ifb", "bridge")]
    for qdisc in QDISCS:
        parent = "" if qdisc in ("clsact", "ingress") else "root"
        lines += [f"tc qdisc add dev a {parent} {qdisc}"]
        lines += [f"tc qdisc del dev a {parent or qdisc}"]
    lines += ["tc qdisc add dev a clsact", "ip link set ifb9 up"]
    lines += ["tc filter add dev a ingress matchall action mirred egress redirect dev ifb9"]
    lines += ["cat /proc/sys/net/ipv4/tcp_available_congestion_control", "ls /proc/net/packet"]
    lines += ["ls /proc/net/if_inet6 2>/dev/null || echo no IPv6"]
    ended = guest("sh", "-c", "\n".join(lines))
    assert ended.errors == []
    assert {"cubic", "dctcp", "bbr", "reno"} <= set(ended.lines[0].split())
    assert ended.lines[1:] == ["/proc/net/packet", "no IPv6"]


def test_real_time_mode_takes_real_time(guest: Guest) -> None:
    ended = guest("sh", "-c", "sleep 0.5; echo done", time_travel=False)
    assert ended.lines == ["done"]
    assert ended.result.wall_s >= 0.5


def test_a_directory_whose_name_is_no_text(guest: Guest, tmp_path: Path) -> None:
    """Linux takes any bytes; the guest's init ended in a traceback."""
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    directory.mkdir()
    ended = guest("sh", "-c", "echo seen >file", writable=(directory,), directory=directory)
    assert ended.result.exit_status == 0, ended.result.message
    assert (directory / "file").read_text() == "seen\n"


def test_missing_writable_directory_is_named(guest: Guest) -> None:
    with pytest.raises(VirtualKernelError, match="/no/such/directory"):
        guest("true", writable=(Path("/no/such/directory"),))


FILL_CONNECTIONS = """
import socket
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
ends = []
for _ in range(8):
    sender = socket.socket()
    sender.setsockopt(socket.SOL_SOCKET, 32, 16_000_000)  # SO_SNDBUFFORCE
    sender.connect(listener.getsockname())
    sender.settimeout(1)
    ends += [sender, listener.accept()[0]]
    sender.sendall(bytes(12_000_000))
    print("sent")
"""


def test_all_hosts_may_have_their_tcp_buffers_full(guest: Guest) -> None:
    """They share one kernel and its budget for TCP's buffers, which then must not be what limits
    them: at its default an all-to-all of 64 MB over 16 ranks took 41 ms, not 5."""
    ended = guest(sys.executable, "-c", FILL_CONNECTIONS)
    assert ended.lines == ["sent"] * 8, ended.errors
