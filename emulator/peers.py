"""The other kernels that carry a run together with this one, and meeting them.

All of them have one virtual time; what /proc/um_peers says is the same at the same virtual time on
every run (emulator/kernel/README.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.clock import round_time_ns, sleep_until_ns

_STATE = Path("/proc/um_peers")
_LOOK_EVERY_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Peers:
    """This kernel's number and how many there are, itself included."""

    index: int
    count: int

    def meet(self, stage: int) -> None:
        """Returns when every kernel has come to this stage, in all of them at the same virtual
        time. Stages go up from 1. A kernel that has powered off is not waited for."""
        _STATE.write_text(f"{stage}\n")
        while True:
            sleep_until_ns(round_time_ns(1, _LOOK_EVERY_NS))
            if _read()[2] >= stage:
                return


def find_peers() -> Peers | None:
    """What kernel we are among others; None in a kernel alone."""
    if not _STATE.exists():
        return None
    index, count, _ = _read()
    return Peers(index, count)


def _read() -> tuple[int, int, int]:
    index, count, stage = map(int, _STATE.read_text().split())
    return index, count, stage
