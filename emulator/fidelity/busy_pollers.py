"""Programs that poll and could not be shown in time what they polled for (virtual kernel)."""

from __future__ import annotations

from pathlib import Path

_COUNTS = Path("/proc/busy_pollers")


def invalid_reason(counts: Path = _COUNTS) -> str | None:
    """Why pollers make the run invalid, or None: none was late, or this kernel is not ours.

    The virtual kernel counts how often a poller napped past something that it asked for
    (`emulator/kernel/patches/0002-um-rest-busy-pollers.patch`), since the guest booted.
    """
    try:
        lines = counts.read_text().splitlines()
    except FileNotFoundError:
        return None
    late = int(lines[0].removeprefix("late "))
    if late == 0:
        return None
    pid, call, program = lines[1].removeprefix("first ").split(" ", 2)
    asked = "" if call == "-1" else f", by system call {call}"
    return (
        f"programs that poll were shown {late} events late, first {program} "
        f"(process {pid}{asked}): it polls in a way that the virtual kernel cannot follow"
    )
