"""Run one command as root in a fresh guest of the virtual kernel, and report how it ended."""

import json
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from emulator.virtual.building.image import KernelImage
from emulator.virtual.ending import GuestObservation, GuestResult, Reason, judge
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.followed_file import FollowedFile
from emulator.virtual.host.core import Core
from emulator.virtual.host.limits import refuse_tight_limits, refused_by_host
from emulator.virtual.host.run_delay import RunDelay
from emulator.virtual.interrupts import Interrupts
from emulator.virtual.memory.host_memory import killed_for_memory, memory_directory
from emulator.virtual.memory.reserve import kept_reserve
from emulator.virtual.memory.thrashing import ThrashingDetector
from emulator.virtual.standing import Standing, bound_socket, copied_guest
from emulator.virtual.standstill import describe_standstill
from emulator.virtual.starting import GuestSpec, control_directory, guest_process, write_control
from emulator.virtual.variables import VirtualClock

__all__ = ["GuestSpec", "run_guest"]

_STANDS: tuple[Reason, str] = ("stalled", "it stands at its time")
_POLL_S = 0.02
_INTERRUPTS_AFTER_S = 0.1  # of no virtual time
_CONSOLE_KEPT_LINES = 4000  # a report of memory running out has a line for each process


def _never() -> bool:
    return False


def run_guest(
    kernel: KernelImage,
    guest: GuestSpec,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None] | None = None,
    on_time: Callable[[int, int], None] | None = None,
    on_start: Callable[[], None] | None = None,
    on_standstill: Callable[[str], None] | None = None,
    stands: Callable[[], bool] = _never,
    on_stand: Callable[[Standing], None] = lambda standing: None,
    on_process: Callable[[int], None] | None = None,
) -> GuestResult:
    """Boot `kernel`, run the guest's command to its end, and leave nothing behind.

    `on_line` gets each line of the command's standard output, `on_error_line` (default: the same)
    of its standard error, `on_time` now and then the virtual nanoseconds since boot and the
    bytes that all ports together have sent. `on_start` is
    called once, when no more processes of the host are to be started; `on_process` with the guest's
    first process, whose memory has what the kernel knows. `on_standstill` is told who
    runs where virtual time has stood still for ten real seconds, and every ten from then on.
    A guest that stands at its time does so once `stands` says so: then `on_stand` may look at it,
    and when that returns a copy goes on in its place.
    An interrupt (KeyboardInterrupt) ends the guest at once and is passed on.

    Raises NoCopy when it is to be a copy and none is to be had, and VirtualKernelError when the
    guest cannot be started: too little host memory, a
    writable directory that does not exist, a host that forbids ptrace, a limit that is too tight.
    """
    for directory in guest.writable:
        if not directory.is_dir():
            raise VirtualKernelError(f"writable directory {directory} does not exist")
    refuse_tight_limits(guest.memory_bytes, guest.open_files)
    memory = memory_directory(guest.memory_bytes)
    started, killed_before = time.monotonic(), killed_for_memory()
    with ExitStack() as until_ready:
        control = until_ready.enter_context(control_directory(memory))
        requests = None
        if guest.stands_at_ns is not None:
            requests = until_ready.enter_context(bound_socket(control))
        write_control(control, guest, requests)
        events: list[dict[str, Any]] = []
        refusals: list[str] = []

        running: list[str] = []  # where time stands still

        def read_console(line: str) -> None:
            # One is enough: a guest that goes on can repeat it faster than it is explained.
            who = describe_standstill(line)
            if who is not None:
                running[:] = [who]
                if on_standstill is not None:
                    on_standstill(who)
            refusal = None if refusals else refused_by_host(line)
            if refusal is not None:
                refusals.append(refusal)

        def record_event(line: str) -> None:
            events.append(json.loads(line))
            if guest.stands_at_ns is None:
                until_ready.close()  # the guest has all of it open

        console = FollowedFile(control / "console", read_console, keep=_CONSOLE_KEPT_LINES)
        # In this order: who sees a line of the command can kill us and nothing is left.
        files = (
            FollowedFile(control / "status", record_event),
            console,
            FollowedFile(control / "stdout", on_line),
            FollowedFile(control / "stderr", on_error_line or on_line),
        )
        try:
            with (
                _process(kernel, guest, control, memory, requests) as first,
                ExitStack() as copies,
            ):
                process, looks = first, stands
                while True:
                    with ExitStack() as held:
                        clock = VirtualClock(process, kernel.symbols)
                        interrupts = Interrupts(process, kernel.symbols)
                        core = held.enter_context(Core(process))
                        if guest.time_travel:
                            held.enter_context(kept_reserve(process, kernel.symbols, core))
                        memory_watch = ThrashingDetector(
                            process, kernel.symbols, guest.memory_bytes
                        )
                        if on_process is not None:
                            on_process(process)
                        if on_start is not None and process == first:
                            on_start()
                        standstill = _watch(
                            process,
                            guest,
                            clock,
                            interrupts,
                            memory_watch,
                            core,
                            files,
                            events,
                            refusals,
                            running,
                            on_time,
                            looks,
                        )
                    if standstill is not _STANDS:
                        break
                    standing = Standing(control, memory, guest.writable or tuple(guest.places))
                    on_stand(standing)
                    process = copies.enter_context(standing.going_on())
                    looks = _never
        finally:
            for file in files:
                file.close()
    return judge(
        GuestObservation(
            report=events[-1] if events else {},
            console=tuple(console.tail),
            refusal=refusals[0] if refusals else None,
            standstill=standstill,
            virtual_ns=clock.read_ns(),
            killed_on_host=killed_for_memory() - killed_before,
            wall_s=time.monotonic() - started,
        ),
        guest.memory_bytes,
        guest.deadlock_timeout_s,
    )


def _process(
    kernel: KernelImage,
    guest: GuestSpec,
    control: Path,
    memory: Path,
    requests: socket.socket | None,
) -> AbstractContextManager[int]:
    if guest.copy_of is not None:
        return copied_guest(guest.copy_of, control)
    return guest_process(kernel, guest, control, memory, requests)


def _watch(
    process: int,
    guest: GuestSpec,
    clock: VirtualClock,
    interrupts: Interrupts,
    memory_watch: ThrashingDetector,
    core: Core,
    files: tuple[FollowedFile, ...],
    events: list[dict[str, Any]],
    refusals: list[str],
    running: list[str],
    on_time: Callable[[int, int], None] | None,
    stands: Callable[[], bool],
) -> tuple[Reason, str] | None:
    """Pass on output until the guest is gone, or the host has refused it something that it needs.
    If it stands still: why, and what is known; `_STANDS` once `stands` says so."""
    poller = select.poll()
    pidfd = os.pidfd_open(process)
    try:
        poller.register(pidfd, select.POLLIN)
        moved_ns, moved_at = 0, time.monotonic()
        delay: RunDelay | None = None
        while not poller.poll(_POLL_S * 1000):
            core.settle()
            for file in files:
                file.poll()
                if not events:
                    break  # it is not ready, so there is nothing in the others
            if refusals:
                return None
            if stands():
                return _STANDS
            now_ns = clock.read_ns()
            if now_ns != moved_ns or not guest.time_travel:
                moved_ns, moved_at = now_ns, time.monotonic()
                memory_watch.reset()
                running.clear()
                delay = None
                if on_time is not None:
                    on_time(now_ns, clock.sent_bytes())
            elif memory_watch.is_thrashing():
                return "out-of-memory", memory_watch.describe()
            elif _stood_s(moved_at, delay) > guest.stall_timeout_s:
                return "stalled", (
                    f"no virtual time passed for {guest.stall_timeout_s:g} real seconds "
                    f"in which the host had a processor for it "
                    f"(it stands at {now_ns / 1e9:.9f} s): something computes or polls without end"
                    + "".join(f": {who}" for who in running)
                )
            elif time.monotonic() - moved_at > _INTERRUPTS_AFTER_S:
                delay = delay or RunDelay(process)
                delay.look()
                interrupts.interrupt()
    finally:
        os.close(pidfd)
    return None


def _stood_s(moved_at: float, delay: RunDelay | None) -> float:
    """Real seconds without virtual time, less those in which the host ran others in place of the
    guest."""
    return time.monotonic() - moved_at - (0 if delay is None else delay.seconds())
