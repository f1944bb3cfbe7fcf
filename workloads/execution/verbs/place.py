"""A rank's RDMA device, and how the rank uses it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.spec.transports.connections import Connections
from workloads.execution.transports.interface import Place, RankEnds


@dataclass(frozen=True, slots=True)
class RocePlace(Place):
    """`library` is `verbs.c`, compiled. `devices` are those of ports of the rank's host, which all
    have its `address`; `device_to` says by rank of the run which of them leads there, by number.
    `directory` has the logs of ranks.

    Two ranks have so many `connections`. A message goes by one of them or, where that `splits`, in
    parts by all.

    A queue pair sends again what is not acknowledged within 4.096 us * 2^`timeout_exponent`, so
    many `retries` times (InfiniBand volume 1, 9.7.6.1.3).
    """

    library: Path
    devices: tuple[str, ...]
    device_to: tuple[int, ...]
    address: str
    directory: Path
    path_mtu_bytes: int
    timeout_exponent: int
    retries: int
    connections: int = 1
    splits: bool = True

    @property
    def ranks(self) -> int:
        """How many ranks the run has."""
        return len(self.device_to)

    @property
    def between_ranks(self) -> Connections:
        """The connections of two ranks."""
        return Connections(self.connections, self.splits, self.path_mtu_bytes)

    def open(self) -> RankEnds:
        """The rank's devices, of which it opens those that it uses."""
        from workloads.execution.verbs.queue_pairs import RankDevices  # needs torch

        return RankDevices(self)

    def to_json(self) -> str:
        """As an environment has it."""
        paths = {"library": str(self.library), "directory": str(self.directory)}
        return json.dumps(asdict(self) | paths)

    @classmethod
    def from_json(cls, text: str) -> RocePlace:
        """The opposite. Raises ValueError, TypeError."""
        found: dict[str, Any] = json.loads(text)
        places = {name: Path(found[name]) for name in ("library", "directory")}
        lists = {name: tuple(found[name]) for name in ("devices", "device_to")}
        return cls(**found | places | lists)
