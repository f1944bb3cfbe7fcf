"""UDP: datagrams that ranks number, acknowledge and send again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workloads.execution.transports.interface import Place, RankEnds, RankTransport


@dataclass(frozen=True, slots=True)
class UdpPlace(Place):
    """The address of the rank's host, the settings of the spec, the number of ranks, and
    the `directory` of their logs."""

    address: str
    directory: Path
    world_size: int
    ports: int
    payload_bytes: int
    window_bytes: int
    timeout_ns: int
    retries: int

    @property
    def ranks(self) -> int:
        """How many ranks the run has."""
        return self.world_size

    def to_json(self) -> str:
        """As an environment has it."""
        return json.dumps(asdict(self) | {"directory": str(self.directory)})

    def open(self) -> RankEnds:
        """Its ends, which open sockets group by group."""
        from workloads.execution.transports.udp_links import UdpEnds  # needs torch

        return UdpEnds(self)


class RankUdp(RankTransport):
    """With sockets of its own for the messages of programs."""

    def place(self, text: str | None) -> Place | None:
        """From what the run wrote."""
        if text is None:
            raise LookupError(
                "the run's addresses are not known, allowed: tcp; they are in runs whose spec has "
                "transport: {kind: udp}"
            )
        found: dict[str, Any] = json.loads(text)
        return UdpPlace(**found | {"directory": Path(found["directory"])})


PART = RankUdp()
