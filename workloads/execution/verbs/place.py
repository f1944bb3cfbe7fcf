"""Where a rank finds its RDMA device, and how it uses it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RocePlace:
    """`library` is `verbs.c`, compiled; `device` the one of the port that has `address`. Queue
    pairs are told to each other by files in `directory`.

    A queue pair sends again what is not acknowledged within 4.096 us * 2^`timeout_exponent`, so
    many `retries` times (InfiniBand volume 1, 9.7.6.1.3).
    """

    library: Path
    device: str
    address: str
    directory: Path
    path_mtu_bytes: int
    timeout_exponent: int
    retries: int
