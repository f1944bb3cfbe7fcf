"""Cleaning up: exactly what was ours goes, also after a kill; decoys and neighbours stay."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.network import registry
from emulator.network.registry import Session, process_start, remove_dead, sessions
from groundwire.commands.clean import clean
from tests.native.native_fabrics import flat, network
from tests.native.native_traffic import echo_all_pairs

Start = Callable[[str], "subprocess.Popen[str]"]

_VICTIM = """
import subprocess, sys, time
from tests.native.native_fabrics import flat, network
live = network(flat(3))
live.up()
child = subprocess.Popen(["ip", "netns", "exec", f"gw{live.session.id}-h0", "sleep", "600"])
live.session.record_process(child.pid)
orphan = subprocess.Popen(["ip", "netns", "exec", f"gw{live.session.id}-h1", "sleep", "600"])
for process in (child, orphan):
    while "sleep" not in open(f"/proc/{process.pid}/comm").read():  # `ip` has entered, then
        time.sleep(0.01)
print(live.session.id, child.pid, orphan.pid, flush=True)
sys.stdin.read()
"""


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _killed_session(python: Start) -> tuple[str, int, int]:
    victim = python(_VICTIM)
    assert victim.stdout is not None
    name, child, orphan = victim.stdout.readline().split()
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    return name, int(child), int(orphan)


def _dies(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while process_start(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process_start(pid) is None


def test_a_killed_session_is_removed_whole(python: Start) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    backlog = Path("/proc/sys/net/core/netdev_max_backlog").read_text()
    name, child, orphan = _killed_session(python)
    assert f"gw{name}-h0" in os.listdir("/run/netns")
    removal = remove_dead()[name]
    assert removal.left == ()
    assert not [entry for entry in os.listdir("/run/netns") if entry.startswith(f"gw{name}")]
    assert Path("/proc/self/mounts").read_text() == mounts
    assert Path("/proc/sys/net/core/netdev_max_backlog").read_text() == backlog
    assert name not in {s.id for s in sessions()}
    assert _dies(child), "a recorded process"
    assert _dies(orphan), "a process inside one of the session's namespaces"


def test_the_next_network_removes_what_a_killed_one_left(python: Start) -> None:
    name, *_ = _killed_session(python)
    with network(flat(2)):
        assert name not in {s.id for s in sessions()}


@pytest.fixture
def decoys(python: Start) -> Iterator[Callable[[str], None]]:
    """Foreign objects whose names are as close to a session's as names can be."""
    made: list[tuple[str, ...]] = []
    bystander = python("import sys; sys.stdin.read()")

    def make(session: str) -> None:
        for name in (f"gw{session}-h0x", f"gw{session}-h9", f"gw{session}", "h0", "edge0-0"):
            _run("ip", "netns", "add", name)
            made.append(("ip", "netns", "del", name))
        for name in (f"gw{session}", "h0-eth0", "gw-br0"):
            _run("ip", "link", "add", name, "type", "bridge")
            made.append(("ip", "link", "del", name))
        _run("ip", "link", "add", "sw0-eth0", "type", "veth", "peer", "name", "sw0-eth1")
        made.append(("ip", "link", "del", "sw0-eth0"))

    yield make
    bystander.kill()
    bystander.wait()
    for undo in reversed(made):
        _run(*undo)


def test_decoys_are_untouched(python: Start, decoys: Callable[[str], None]) -> None:
    name, *_ = _killed_session(python)
    decoys(name)
    foreign_namespaces = [n for n in os.listdir("/run/netns") if not n.startswith(f"gw{name}-")]
    foreign_namespaces += [f"gw{name}-h0x", f"gw{name}-h9"]
    interfaces = sorted(os.listdir("/sys/class/net"))
    assert clean(session=None, as_json=True) == 0
    assert sorted(os.listdir("/run/netns")) == sorted(foreign_namespaces)
    assert sorted(os.listdir("/sys/class/net")) == interfaces


def test_a_link_that_somebody_else_has_put_in_our_place_stays(python: Start) -> None:
    name, *_ = _killed_session(python)
    shown = Path("/run/netns") / f"gw{name}-h0"
    shown.unlink()
    _run("ip", "netns", "add", shown.name)
    try:
        assert remove_dead()[name].left == ()
        assert shown.exists()
    finally:
        _run("ip", "netns", "del", shown.name)


def test_a_living_session_is_left_alone() -> None:
    with network(flat(2)) as live:
        assert clean(session=None, as_json=True) == 0
        assert echo_all_pairs(live, ["h0", "h1"]) == []


def test_a_process_with_a_used_again_id_is_not_killed(tmp_path: Path) -> None:
    session = Session.create("pids", root=tmp_path)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        session.record({"kind": "process", "pid": bystander.pid, "start": 1})
        session.remove()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_an_interrupt_between_up_and_its_undoing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context that has been entered is not left yet when it has not come to its block."""
    monkeypatch.setattr(registry, "state_directory", lambda: tmp_path / "state")
    older = Session.create("older")
    ours = tmp_path / "ours"
    with pytest.raises(KeyboardInterrupt), registry.none_left_by_an_interrupt():
        made = Session.create("made")
        made.record_links({ours: made.directory})
        ours.symlink_to(made.directory)
        raise KeyboardInterrupt
    assert [session.id for session in sessions()] == ["older"]
    assert not ours.is_symlink()
    older.remove()


def test_an_interrupt_while_a_session_begins_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "open_own_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Session.create("never", root=tmp_path / "state")
    assert list((tmp_path / "state").iterdir()) == []


def test_a_half_written_record_does_not_stop_the_rest(tmp_path: Path) -> None:
    session = Session.create("torn", root=tmp_path)
    ours = tmp_path / "ours"
    ours.symlink_to(session.directory)
    session.record_links({ours: session.directory})
    with open(session.directory / "owned.jsonl", "a") as log:
        log.write('{"kind":"symlink","pa')
    assert session.remove().removed == (f"symlink {ours}",)
    assert not ours.is_symlink()
    assert not session.directory.exists()


def test_a_shared_directory_goes_only_when_it_is_empty(tmp_path: Path) -> None:
    for name, others in (("empty", 0), ("used", 1)):
        shared = tmp_path / name
        session = Session.create(name, root=tmp_path / "state")
        session.record_directory(shared)
        shared.mkdir()
        for number in range(others):
            (shared / str(number)).write_text("")
        session.remove()
        assert shared.exists() == bool(others)


@pytest.fixture
def knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose files count as sysctls."""
    monkeypatch.setattr(registry, "SYSCTLS", tmp_path)
    return tmp_path


def test_two_sessions_that_change_a_sysctl_leave_it_as_it_was(knobs: Path) -> None:
    for first_out in (0, 1):
        knob = knobs / f"knob{first_out}"
        knob.write_text("1000")
        root = knobs / f"state{first_out}"
        both = [Session.create(name, root=root) for name in ("a", "b")]
        both[0].change_sysctl(knob, "5000")
        both[1].change_sysctl(knob, "6000")
        both.pop(first_out).remove()
        assert knob.read_text() == ("6000" if first_out == 0 else "5000")
        both[0].remove()
        assert knob.read_text() == "1000"


def test_a_sysctl_that_somebody_else_has_set_since_stays(knobs: Path) -> None:
    knob = knobs / "knob"
    knob.write_text("1000\n")
    session = Session.create("knob", root=knobs / "state")
    session.change_sysctl(knob, "5000")
    assert knob.read_text() == "5000"
    knob.write_text("7000")
    session.remove()
    assert knob.read_text() == "7000"


def test_an_unknown_session_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert clean(session="nosuch", as_json=False) == 2
    assert "there is no session nosuch" in capsys.readouterr().err


_STOCK = """
import sys
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo
setLogLevel("critical")
topo = Topo()
topo.addHost("h0"); topo.addHost("h1"); topo.addLink("h0", "h1")
net = Mininet(topo=topo, controller=None)
net.start()
print("up", flush=True)
sys.stdin.readline()
print(net.pingAll(timeout="20"), flush=True)
net.stop()
"""


@pytest.mark.skipif(
    not all(map(shutil.which, ("mnexec", "ifconfig", "ping"))),
    reason="needs mnexec, ifconfig and ping for stock Mininet",
)
def test_beside_a_running_stock_mininet(python: Start) -> None:
    stock = python(_STOCK)
    assert stock.stdout is not None
    assert stock.stdin is not None
    assert stock.stdout.readline() == "up\n"
    name, *_ = _killed_session(python)
    with network(flat(2)) as live:
        assert echo_all_pairs(live, ["h0", "h1"]) == []
    assert clean(session=None, as_json=True) == 0
    assert name not in {s.id for s in sessions()}
    stock.stdin.write("\n")
    stock.stdin.flush()
    assert stock.stdout.readline() == "0.0\n", "stock Mininet's pingAll: 0% dropped"
    assert stock.wait(120) == 0


def test_clean_says_what_it_did_in_json(python: Start, capsys: pytest.CaptureFixture[str]) -> None:
    name, *_ = _killed_session(python)
    assert clean(session=None, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert "netns-mount" in " ".join(told["sessions"][name]["removed"])
    assert told["sessions"][name]["left"] == []
