"""How busy this machine is, for limits in real time that are promised for one that is idle."""

from __future__ import annotations

import resource
import subprocess
import sys
import time


def slowdown() -> float:
    """How many times longer a new process takes now than the processor time that it needs: 1 on an
    idle machine, 3 where six processes share two cores. Takes a tenth of a second and up."""
    before = _processor_s()
    start = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", "for _ in range(2_000_000): pass"], check=True)
    return max(1.0, (time.monotonic() - start) / (_processor_s() - before))


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
