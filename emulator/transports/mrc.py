"""MRC in a kernel: RoCE's devices with other settings."""

from __future__ import annotations

from emulator.transports.roce import PART

__all__ = ["PART"]
