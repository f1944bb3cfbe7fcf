"""Programs that poll without end in the virtual kernel, and how they fared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

_COUNTS = Path("/proc/busy_pollers")
_INTERRUPTED = "interrupted"
_KINDS = ("ready", "memory", _INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Spinners:
    """Threads that waited without letting time pass by themselves.

    `kind` is the thing that they polled: a file that was `ready` all the time, `memory`, or
    something unknown, as they only computed (`interrupted`). `naps` and `virtual_ns` are how often,
    and how long together, the kernel had them wait; `program` and `pid` are the first one's.
    """

    kind: str
    naps: int
    virtual_ns: int
    pid: int
    program: str

    def as_dict(self) -> dict[str, object]:
        """As it stands in environment.json."""
        return asdict(self)


def spinners(counts: Path = _COUNTS) -> list[Spinners]:
    """Those of each kind since the guest booted; none where this kernel is not ours.

    The virtual kernel counts them (0002-um-rest-busy-pollers.patch and
    0026-um-threads-that-wait-by-computing.patch in `emulator/kernel/patches/`).
    """
    found = []
    for line in _lines(counts):
        kind, _, rest = line.partition(" ")
        if kind in _KINDS:
            naps, virtual_ns, pid, program = rest.split(" ", 3)
            found.append(Spinners(kind, int(naps), int(virtual_ns), int(pid), program))
    return found


def invalid_reasons(counts: Path = _COUNTS) -> list[str]:
    """Why pollers make the run invalid: some were shown late what they polled for, or had to be
    interrupted. Empty where none was, or this kernel is not ours."""
    reasons = []
    lines = _lines(counts)
    late = int(lines[0].removeprefix("late ")) if lines else 0
    if late:
        pid, call, program = lines[1].removeprefix("first ").split(" ", 2)
        asked = "" if call == "-1" else f", by system call {call}"
        reasons.append(
            f"programs that poll were shown {late} events late, first {program} "
            f"(process {pid}{asked}): it polls in a way that the virtual kernel cannot follow"
        )
    reasons += [_interrupted(each) for each in spinners(counts) if each.kind == _INTERRUPTED]
    return reasons


def _interrupted(each: Spinners) -> str:
    return (
        f"{each.program} (process {each.pid}) computed for 20 s and more without a system call, "
        f"and may have waited for others by that: it was interrupted {each.naps:,} times, to let "
        f"{each.virtual_ns / 1e3:,.0f} us pass, and may have seen what they did up to 16 us late. "
        "A loop that counts its rounds has no exact time here, as rounds take none; one that makes "
        "a system call, such as sched_yield, has"
    )


def _lines(counts: Path) -> list[str]:
    try:
        return counts.read_text().splitlines()
    except FileNotFoundError:
        return []
