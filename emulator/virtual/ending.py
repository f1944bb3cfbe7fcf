"""How a guest ended, judged from what was observed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.virtual.memory.host_memory import available_memory
from emulator.virtual.memory.out_of_memory import describe_out_of_memory

Reason = Literal["exited", "panic", "out-of-memory", "deadlock", "stalled", "died"]

_CONSOLE_TAIL_LINES = 40


@dataclass(frozen=True)
class GuestResult:
    """How a guest ended.

    `exit_status` is the command's (128 + n when signal n ended it), None when it did not end by
    itself. `message` says what happened when `reason` is not "exited". `console` holds the
    kernel's last lines. `virtual_ns` is the command's virtual run time. `stops` counts since boot
    how often user code was stopped, which costs wall time: `calls` (system calls),
    `signalled_calls` (those that came the slow way), page `faults`, and `switches` from one process
    to another (zeros where user code is run by ptrace).
    """

    reason: Reason
    exit_status: int | None
    message: str
    console: tuple[str, ...]
    virtual_ns: int
    wall_s: float
    stops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GuestObservation:
    """The end of a guest as it was observed.

    `report` is the last event that its init wrote, empty if there was none. `refusal` says what the
    host refused it. `standstill` says why we ended it, if it stood still. `killed_on_host` counts
    the processes that the host's kernel has killed meanwhile for want of memory.
    """

    report: Mapping[str, Any]
    console: tuple[str, ...]
    refusal: str | None
    standstill: tuple[Reason, str] | None
    virtual_ns: int
    killed_on_host: int
    wall_s: float


def judge(observed: GuestObservation, memory_bytes: int, deadlock_timeout_s: float) -> GuestResult:
    """How a guest of `memory_bytes` ended, which calls it a deadlock when no process has run for
    `deadlock_timeout_s` virtual seconds."""
    end, console = observed.report, observed.console
    event = end.get("event")

    def result(reason: Reason, message: str, status: int | None = None) -> GuestResult:
        tail = console[-_CONSOLE_TAIL_LINES:]
        virtual_ns = int(end.get("virtual_ns", observed.virtual_ns))
        stops: Mapping[str, int] = end.get("stops", {})
        return GuestResult(reason, status, message, tail, virtual_ns, observed.wall_s, stops)

    # First, as no result may be had from a guest that was refused something.
    if observed.refusal is not None:
        return result("died", observed.refusal)
    if event == "exited":
        status = int(end["status"])
        return result("exited", "", status if status >= 0 else 128 - status)
    if event == "deadlock":
        table = "\n".join(end["processes"])
        message = f"no process ran for {deadlock_timeout_s:g} virtual seconds:\n{table}"
        return result("deadlock", message)
    if observed.standstill is not None:
        return result(*observed.standstill)
    exhausted = describe_out_of_memory(console, memory_bytes)
    if exhausted is not None:
        return result("out-of-memory", exhausted)
    for line in console:
        if "Kernel panic" in line:
            return result("panic", line)
    if event == "failed":
        return result("died", f"the guest's init failed: {end['message']}")
    for line in console:
        if "reboot: " in line:  # "Restarting system", "Power down", "System halted"
            said = line.partition("reboot: ")[2]
            return result("died", f"a process in the guest switched it off or restarted it: {said}")
    if observed.killed_on_host:
        return result(
            "died",
            f"the host's kernel killed {observed.killed_on_host} processes meanwhile because "
            f"memory ran out there; now {available_memory().words}",
        )
    return result("died", "the guest ended without a report")
