"""What a guest is to do, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Reason = Literal["exited", "panic", "out-of-memory", "deadlock", "stalled", "died", "stopped"]


@dataclass(frozen=True)
class GuestSpec:
    """One command and the guest to run it in.

    The guest sees the host's files read-only, but its own empty /tmp, /run and /dev/shm; the
    directories in `writable` (and, below /tmp and the like, those in `readable`) are the host's.
    `environment` is the command's whole environment, after PATH, HOME and LANG defaults.
    """

    argv: tuple[str, ...]
    memory_bytes: int = 4 * 10**9
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=Path.cwd)
    seed: int = 1
    time_travel: bool = True
    stall_timeout_s: float = 300.0  # real seconds without virtual time passing
    deadlock_timeout_s: float = 3600.0  # virtual seconds in which no process runs


@dataclass(frozen=True)
class GuestResult:
    """How a guest ended.

    `exit_status` is the command's (128 + n when signal n ended it), None when it did not end by
    itself; "stopped" is a guest that was ended because another of the same run had failed.
    `message` says what happened when `reason` is not "exited". `console` holds the
    kernel's last lines. `virtual_ns` is the command's virtual run time. `stops` says how often user
    code was stopped since boot, which is what costs wall time: `calls` (system calls),
    `signalled_calls` (those that came the slow way), page `faults`, and `switches` from one
    process to another (zeros where there are no seccomp filters).
    """

    reason: Reason
    exit_status: int | None
    message: str
    console: tuple[str, ...]
    virtual_ns: int
    wall_s: float
    stops: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by its command's status 0."""
        return self.reason != "exited" or self.exit_status != 0
