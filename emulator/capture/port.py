"""A captured port, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from topologies.fabrics.fabric import Fabric
from topologies.fabrics.selectors import select_ports


class CaptureError(RuntimeError):
    """A capture that could not be opened or finished; names the port and the kernel's reason."""


@dataclass(frozen=True)
class CapturePort:
    """A port to capture at, both directions of a link of `rate_bps`."""

    node: str
    interface: str
    netns_path: Path
    rate_bps: int

    @property
    def file_name(self) -> str:
        """`<node>-<interface>.pcap`, the node once where the interface begins with it."""
        prefix = f"{self.node}-"
        name = self.interface.removeprefix(prefix)
        return f"{prefix}{name}.pcap"


@dataclass(frozen=True)
class CaptureStats:
    """Packets at one port, as the kernel counted them (PACKET_STATISTICS).

    `seen` passed the filter, `dropped` of them found no room, `written` are in the file.
    """

    node: str
    interface: str
    file: str
    seen: int
    dropped: int
    written: int
    file_bytes: int

    @property
    def invalid_reason(self) -> str | None:
        """Why the run cannot be trusted, or None when every packet seen is in the file."""
        where = f"capture at {self.interface} of {self.node}"
        if self.dropped:
            return f"{where} lost {self.dropped} of {self.seen} packets"
        if self.written != self.seen:
            return f"{where} wrote {self.written} packets of {self.seen} that the kernel counted"
        return None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def capture_ports(
    fabric: Fabric, points: Sequence[str], netns_path: Callable[[str], Path]
) -> tuple[CapturePort, ...]:
    """The ports that a spec's `capture.points` name, each once, by link and end.

    `netns_path` gives the network namespace of a node. Raises ValueError when a selector
    names no port of this fabric.
    """
    rates = {port: link.rate_bps for link in fabric.links for port in (link.a, link.b)}
    found = {
        (port.node, port.interface): CapturePort(
            port.node, port.interface, netns_path(port.node), rates[port]
        )
        for point in points
        for port in select_ports(fabric, point)
    }
    return tuple(found.values())
