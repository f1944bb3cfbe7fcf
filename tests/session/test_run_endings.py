"""Runs in the virtual kernel that do not come to their end: what a user sees, and what is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from analysis.chakra.files import write_graphs
from analysis.chakra.graph import ReceiveNode, SendNode
from tests.session.command import ROOT, result_of
from tests.session.leftovers import left_by

_STAR = """
name: star
seed: 1
fabric: {{kind: flat, hosts: 8, link: {{rate: 100Gbps, delay: 1us, mtu: 9000}}}}
workload: {{kind: collectives, ranks: 8, iterations: 1,
  operations: [{{kind: all_reduce, size: {size}}}]}}
capture: {{points: []}}
virtual: {{memory: {memory}, ranks_per_process: {threads}}}
"""

_TRACE = """
fabric: {{kind: flat, hosts: 2, link: {{rate: 100Gbps, delay: 1us, mtu: 9000}}}}
workload: {{kind: chakra, path: trace}}
virtual: {{ranks_per_process: {threads}}}
"""
# The command, without the check that refuses traces whose ranks wait for each other.
_UNCHECKED = (
    "-c",
    "import analysis.chakra.summary as summary; summary.deadlock_of = lambda *_: None;"
    "from groundwire.cli import main; main()",
)
_SLOW = """
fabric: {kind: flat, hosts: 2, link: {rate: 10kbps, delay: 1us, mtu: 9000}}
workload: {kind: collectives, ranks: 2, operations: [{kind: send_recv, size: 5MB}]}
capture: {points: []}
virtual: {ranks_per_process: %d}
"""
_PATIENCE_S = 8
_PANIC_ON_CONSOLE = r"^  \[ +\d+\.\d+\] Kernel panic - not syncing"
_BOOT_ON_CONSOLE = "\n  [    0.000000] Run /proc/self/cwd/init as init process\n"


def _run(directory: Path, size: str, memory: str, threads: int = 1) -> tuple[int, str, list[str]]:
    return _run_spec(directory, _STAR.format(size=size, memory=memory, threads=threads))


def _run_spec(
    directory: Path, text: str, main: Sequence[str] = ("-m", "groundwire.cli")
) -> tuple[int, str, list[str]]:
    """Exit status, standard error, and what is left of the guest."""
    spec = directory / "star.yaml"
    spec.write_text(text)
    command = [sys.executable, *main, "run", str(spec), "--kernel", "virtual"]
    process = subprocess.Popen(
        [*command, "--out", str(directory / "run")],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=280)
    finally:
        process.kill()
    return process.returncode, said, left_by(process.pid)


# Builds of torch for accelerators are larger: what is hardly enough to read them into it, and what
# a tensor of 64 GB asks for, with their 400 MiB more.
_CPU_BUILD = version("torch").endswith("+cpu")
_HARDLY_MB = 370 if _CPU_BUILD else 500
_WANTED_MB = "609,040" if _CPU_BUILD else "609,460"


def _run_out_of_memory(directory: Path, size: str, memory_mb: int, threads: int) -> str:
    """The message of a run that needs more than `memory_mb`."""
    status, said, left = _run(directory, size, f"{memory_mb}MB", threads)
    assert status == 1
    assert f"(out-of-memory): the guest's {memory_mb:,} MB were not enough" in said
    assert re.search(r"^Give it more: --set virtual.memory=\d+GB$", said, re.MULTILINE)
    assert not (directory / "run" / "result.json").exists()
    assert left == []
    return said


def _says_who_had_it(said: str, largest: str) -> bool:
    """The kernel found no memory: its own words, and the processes that held most of it."""
    return all(
        re.search(pattern, said, re.MULTILINE)
        for pattern in (
            r"[\d,]+ MB were processes', \d+ MB files' in /tmp",
            rf"The largest of \d+ processes, .*({largest}) \(pid \d+\) [\d,]+ MB",
            _PANIC_ON_CONSOLE,
        )
    )


@pytest.mark.parametrize(("threads", "largest"), [(1, "rank [0-7]"), (8, "ranks 0-7")])
def test_a_run_that_is_out_of_memory_says_who_had_it(
    tmp_path: Path, threads: int, largest: str
) -> None:
    """Ranks make larger tensors than fit."""
    said = _run_out_of_memory(tmp_path, "256MB", 1000, threads)
    assert _says_who_had_it(said, largest), said


def test_a_guest_that_can_hardly_read_torch_is_out_of_memory(tmp_path: Path) -> None:
    """Linux drops programs from memory there and reads them again. It gives up in the end, or is
    ended when it has read 2 GiB again at one instant: a few MB decide which."""
    said = _run_out_of_memory(tmp_path, "8MB", _HARDLY_MB, 1)
    read_again = r"it read [\d,]+ MB of programs and files that it had dropped before"
    assert _says_who_had_it(said, "rank [0-7]|fork server") or re.search(read_again, said), said


@pytest.mark.parametrize(
    ("size", "memory", "wanted"), [("8MB", "300GB", "300,000"), ("64GB", "auto", _WANTED_MB)]
)
def test_a_run_that_needs_more_memory_than_there_can_be_is_refused(
    tmp_path: Path, size: str, memory: str, wanted: str
) -> None:
    # By itself a guest gets 800 MiB, 24 MiB for each of 8 ranks, its tensor with a sixteenth for
    # gaps, and a tensor's blocks that are on their way.
    status, said, left = _run(tmp_path, size, memory)
    assert status == 1
    assert f"guest memory of {wanted} MB refused: a guest has at most 255,551 MB" in said
    assert left == []


@pytest.mark.parametrize(
    ("threads", "waiting"),
    [
        pytest.param(1, ("rank 0", "rank 1"), id="processes"),
        pytest.param(2, ("ranks 0-1",), id="packed", marks=pytest.mark.long),
    ],
)
def test_ranks_that_wait_for_each_other_are_a_deadlock(
    tmp_path: Path, threads: int, waiting: tuple[str, ...]
) -> None:
    """Each of a trace's two ranks sends only once it has received what the other is to send."""
    graphs = [
        (
            ReceiveNode(id=0, name="first", peer=peer, size_bytes=4096),
            SendNode(id=1, name="then", after=(0,), peer=peer, size_bytes=4096),
        )
        for peer in (1, 0)
    ]
    write_graphs(tmp_path / "trace", graphs)
    status, said, left = _run_spec(tmp_path, _TRACE.format(threads=threads), _UNCHECKED)
    assert status == 1
    assert "iteration 0 (1 of 1)" in said
    assert "ended (deadlock): no process ran for 3600 virtual seconds:\n" in said
    for name in waiting:
        assert re.search(rf"^\d+ {name}, S \(sleeping\): ", said, re.MULTILINE)
    assert _BOOT_ON_CONSOLE in said
    assert not (tmp_path / "run" / "result.json").exists()
    assert left == []


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_message_that_takes_more_than_an_hour_is_no_deadlock(
    tmp_path: Path, threads: int
) -> None:
    """At 10 kb/s 5 MB take 4,000 s, in which only that thread of Gloo works which else polls."""
    status, said, _ = _run_spec(tmp_path, _SLOW % threads)
    assert status == 0, said
    (row,) = result_of(tmp_path / "run")["collectives"]
    assert row["duration_ns"] > 4000 * 10**9


# The command, less patient with a guest that stands still than its 300 s, which nobody can set.
_IMPATIENT = f"""
from functools import partial
from emulator import prepared_guest
from groundwire import cli
prepared_guest.GuestSpec = partial(prepared_guest.GuestSpec, stall_timeout_s={_PATIENCE_S})
cli.main()
"""


# The host's acts on a guest in the midst of a run: all of its processes are stopped, or its kernel
# gets a signal that tells of mistakes of its own only, at which it panics.
@pytest.mark.parametrize(
    ("send", "number", "message", "console"),
    [
        (
            os.killpg,
            signal.SIGSTOP,
            rf"stalled\): no virtual time passed for {_PATIENCE_S} real seconds .*it stands at \d",
            re.escape(_BOOT_ON_CONSOLE),
        ),
        (
            os.kill,
            signal.SIGFPE,
            rf"panic\): \[.*\] Kernel panic - not syncing: Kernel mode signal {signal.SIGFPE:d}$",
            _PANIC_ON_CONSOLE,
        ),
    ],
    ids=["stalled", "panic"],
)
def test_a_guest_that_stalls_or_panics_in_a_run_says_so(
    tmp_path: Path,
    send: Callable[[int, int], None],
    number: signal.Signals,
    message: str,
    console: str,
) -> None:
    spec = ROOT / "topologies" / "two-hosts.yaml"
    process = subprocess.Popen(
        [sys.executable, "-c", _IMPATIENT, "run", spec, "--kernel", "virtual",
         "--set", "workload.iterations=1000", "--out", tmp_path / "run"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "iteration 1 (2 of 1000)" in line:
                send(_guest_kernel_of(process.pid), number)
                break
        else:
            pytest.fail("the run ended before its second iteration")
        printed, said = process.communicate(timeout=280)
    finally:
        process.kill()
    assert process.returncode == 1
    assert printed == ""
    assert re.search(rf"^error: the virtual kernel ended \({message}", said, re.MULTILINE), said
    assert re.search(console, said, re.MULTILINE), said
    assert not (tmp_path / "run" / "result.json").exists()
    assert left_by(process.pid) == []


def _guest_kernel_of(pid: int) -> int:
    """The one of a command's children that is its guest's kernel."""
    (kernel,) = (
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if b"init=/proc/self/cwd/init" in Path("/proc", child, "cmdline").read_bytes()
    )
    return kernel


def test_a_full_disk_is_said_and_leaves_no_result(tmp_path: Path) -> None:
    mounts = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"',
    ]
    if subprocess.run([*mounts, tmp_path, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    spec = ROOT / "topologies" / "two-hosts.yaml"
    command: list[str | Path] = [sys.executable, "-m", "groundwire.cli", "run", spec]
    command += ["--kernel", "virtual"]
    done = subprocess.run(
        [*mounts, tmp_path, *command, "--out", tmp_path / "run"],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    full = f"error: the run directory {tmp_path}/run is full (No space left on device): 0 bytes are"
    assert full in done.stderr
    assert "/run/experiment" not in done.stderr
