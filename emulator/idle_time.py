"""The longest time in which nothing runs though all is well: what a spec has its ranks wait for."""

from __future__ import annotations

from pathlib import Path

from emulator.guest_work import guest_work
from topologies.spec.spec import Spec


def longest_idle_ns(spec: Spec, run_directory: Path) -> int:
    """Nanoseconds, at most: from the start until the last job begins, and the longest computation
    of a rank. Programs of users are not known. The computing of a trace is in the replay programs
    of the run directory: raises OSError when they are not there, pydantic.ValidationError.
    """
    begins_ns = max((job.start_ns for job in spec.jobs), default=0)
    longest_ns = 0
    for name, part in spec.parts.items():
        place = run_directory / "jobs" / name if spec.jobs else run_directory
        longest_ns = max(longest_ns, *guest_work(part).computations_ns(part, place), 0)
    return begins_ns + longest_ns
