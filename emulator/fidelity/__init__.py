"""Watches over what would make a native run wrong, and the verdict on it.

`thresholds` says what is watched and why, `sources` reads the kernel, `monitor` watches, `verdict`
judges. `docs/native-kernel.md` explains each figure.
"""

from emulator.fidelity.monitor import FidelityMonitor
from emulator.fidelity.verdict import Verdict

__all__ = ["FidelityMonitor", "Verdict"]
