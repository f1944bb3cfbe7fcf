"""Kernels that are built beside the usual one, where a spec needs what others would pay for."""

from __future__ import annotations

from enum import Enum


class KernelVariant(Enum):
    """A kernel by what it has more. The value names its folder below `emulator/kernel`, in which
    `options.config` goes over the usual configuration; the usual kernel has none."""

    USUAL = ""
    IPV6 = "ipv6"
