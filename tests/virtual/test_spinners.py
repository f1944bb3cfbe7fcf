"""Threads that wait without letting time pass: whatever ends on Linux ends in the guest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.image import KernelImage
from emulator.virtual.standstill import describe_standstill
from tests.virtual.conftest import Compiled, Guest

SOURCE = Path(__file__).with_name("spinners.c")
SCATTERED = Path(__file__).with_name("scattered_pages.c")
SPINNERS = re.findall(r'^    \{ "([\w-]+)"', SOURCE.read_text(), re.MULTILINE)
BY_MEMORY = {"memory", "pause", "exchange", "locked", "on-stack", "in-function"}
LEVEL_TRIGGERED = """
import select, socket, threading, time
reader, writer = socket.socketpair()
writer.send(b"x")
stop = False
def loop():
    poller = select.epoll()
    poller.register(reader, select.EPOLLIN)
    while not stop:
        poller.poll(0.01)
thread = threading.Thread(target=loop)
thread.start()
start = time.monotonic()
time.sleep(0.001)
took = time.monotonic() - start
reader.recv(1)
stop = True
thread.join()
print(f"slept {took * 1e6:.0f} us")
"""


def test_a_change_is_seen_in_its_nanosecond(guest: Guest, compiled: Compiled) -> None:
    program = compiled(SOURCE.read_text(), "-pthread")
    loop = f"for each in {' '.join(SPINNERS)}; do {program} $each; done; cat /proc/busy_pollers"
    ended = guest("sh", "-c", loop, readable=(program.parent,))
    assert ended.lines[: len(SPINNERS)] == [f"{name} 0" for name in SPINNERS]
    late, *kinds = ended.lines[len(SPINNERS) :]
    assert late == "late 0"
    assert [line.split()[0] for line in kinds] == ["ready", "memory"]
    assert int(kinds[1].split()[2]) == len(BY_MEMORY) * 10**6  # a millisecond each


def test_a_file_that_stays_ready_lets_time_pass(guest: Guest) -> None:
    ended = guest("python3", "-c", LEVEL_TRIGGERED)
    assert ended.lines == ["slept 1000 us"]


@pytest.mark.long
def test_who_counts_its_rounds_is_interrupted_and_said_so(guest: Guest, compiled: Compiled) -> None:
    """20 s of a processor's time pass before that."""
    program = compiled(SOURCE.read_text(), "-pthread")
    script = f"{program} counting; cat /proc/busy_pollers"
    ended = guest("sh", "-c", script, readable=(program.parent,))
    name, late_ns = ended.lines[0].split()
    assert name == "counting"
    assert 0 <= int(late_ns) <= 16_384
    assert any(line.startswith("interrupted ") for line in ended.lines)


def test_a_standstill_is_described() -> None:
    said = (
        "[   10.0] standstill: rank 3 pid 71 tid 72 call 232 code /lib/libc.so.6+0x1000 name loop"
    )
    assert describe_standstill(said) == (
        "rank 3's process 71, thread 'loop' (72), makes system calls again and again: epoll_wait"
    )
    for number, name in ((3, "close"), (186, "gettid"), (441, "epoll_pwait2"), (400, "number 400")):
        line = said.replace("call 232", f"call {number}")
        assert (describe_standstill(line) or "").endswith(f" again and again: {name}")
    said = "[   10.0] standstill: rank -1 pid 71 tid 71 call -1 code -+0x0 name my prog"
    assert describe_standstill(said) == (
        "a process (pid 71), thread 'my prog', computes in code of no file"
    )
    assert describe_standstill("[   10.0] TCP: request_sock_TCP: Possible SYN flooding") is None


def test_a_standstill_names_the_function(kernel: KernelImage, compiled: Compiled) -> None:
    program = compiled(
        "volatile unsigned long n;\n"
        "void __attribute__((noinline)) count_for_ever(void) { for (;;) n++; }\n"
        "int main(void) { count_for_ever(); }\n"
    )
    said: list[str] = []
    spec = GuestSpec(argv=(str(program),), memory_bytes=512 * 10**6, stall_timeout_s=13.0)
    result = run_guest(kernel, spec, print, on_standstill=said.append)
    assert result.reason == "stalled"
    assert "program, count_for_ever" in result.message
    assert said
    assert said[0].startswith("a process (pid ")


def test_a_host_that_runs_others_is_no_standstill(kernel: KernelImage, compiled: Compiled) -> None:
    """The program computes for a second on processors that others want, too."""
    program = compiled(
        "#include <time.h>\n"
        "volatile unsigned long n;\n"
        "int main(void) { for (unsigned long i = 0; i < 400000000; i++) n++; }\n"
    )
    spec = GuestSpec(argv=(str(program),), memory_bytes=512 * 10**6, stall_timeout_s=3.0)
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(5 * len(os.sched_getaffinity(0)))]
    try:
        result = run_guest(kernel, spec, print)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert result.reason == "exited", result.message


def test_more_pages_than_the_host_grants_mappings(guest: Guest, compiled: Compiled) -> None:
    """Each page needs a mapping of its own."""
    granted = int(Path("/proc/sys/vm/max_map_count").read_text())
    if granted > 100_000:
        pytest.skip(f"the host grants {granted:,} mappings (vm.max_map_count)")
    program = compiled(SCATTERED.read_text())
    script = f"{program} {granted + 2_000}; cat /proc/um_traps"
    memory_bytes = 512 * 10**6 + granted * 4096
    ended = guest("sh", "-c", script, readable=(program.parent,), memory_bytes=memory_bytes)
    assert ended.lines[0] == "kept"
    assert int(ended.lines[-1].removeprefix("forgotten ")) >= 1
