"""Watches over what would make a native run wrong, and the verdict on it.

`thresholds` says what is watched and why, `sources` reads the kernel, `monitor` watches, `verdict`
judges. It is of native runs alone: time in the virtual kernel is exact. `docs/native-kernel.md`
explains each figure. Three names to know: `FidelityMonitor`, `Threshold` and `Verdict`.
"""

from emulator.fidelity.monitor import FidelityMonitor
from emulator.fidelity.verdict import Verdict

__all__ = ["FidelityMonitor", "Verdict"]
