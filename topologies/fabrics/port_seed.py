"""The seed of a port's random numbers, which its qdisc draws from and predictors repeat."""

from __future__ import annotations

import hashlib


def port_seed(seed: int, interface: str) -> int:
    """Other for every port and every seed of a spec."""
    digest = hashlib.sha256(f"{seed}/{interface}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
