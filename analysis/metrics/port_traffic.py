"""How much a port sent over time, from captures at it or at its peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.decode.run_capture import RunCapture
from analysis.decode.tcp.pcap import Packets
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link, Port

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PortTraffic:
    """The frames that left a port towards `peer`, in order of time. `time_ns` is on the clock of
    the logs: when a frame's first bit was sent (or its last one arrived, where `at_peer`);
    `wire_bytes` has the L1 overhead in it. Both have shape (frames,). `rate_bps` is the rate as
    emulated, so that it goes with these times."""

    port: str
    node: str
    peer: str
    rate_bps: float
    at_peer: bool
    time_ns: Int64
    wire_bytes: Int64

    def utilisation(self, edges_ns: Float64) -> Float64:
        """Share of the time between successive edges that the port spent sending.

        Shape (edges - 1,). A frame counts where its time stamp lies, so that a short bin can exceed
        1 by the part of a frame.
        """
        bounds = np.searchsorted(self.time_ns, edges_ns)
        total = np.concatenate([[0], np.cumsum(self.wire_bytes)])
        sent = total[bounds[1:]] - total[bounds[:-1]]
        could: Float64 = self.rate_bps * np.diff(edges_ns) / 8e9
        used: Float64 = np.divide(sent, could, out=np.zeros(len(could)), where=could > 0)
        return used


def port_traffic(capture: RunCapture) -> tuple[PortTraffic, ...]:
    """Both directions of every link that was captured at one end at least, in order of links."""
    files = {packets.path.stem: packets for packets in capture.files}
    found = []
    for link in capture.run.fabric.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            packets = files.get(here.interface) or files.get(there.interface)
            if packets is not None:
                found.append(_of_port(capture, packets, link, here, there))
    return tuple(found)


def _of_port(
    capture: RunCapture, packets: Packets, link: Link, here: Port, there: Port
) -> PortTraffic:
    rows = np.flatnonzero(_sources(packets) == int(here.mac.replace(":", ""), 16))
    rows = rows[np.argsort(packets.timestamp_ns[rows], kind="stable")]
    return PortTraffic(
        here.interface,
        here.node,
        there.node,
        link.rate_bps / capture.run.environment.scale,
        packets.path.stem != here.interface,
        packets.timestamp_ns[rows] - capture.clock_offset_ns,
        packets.wire_bytes[rows] + L1_OVERHEAD_BYTES,
    )


def _sources(packets: Packets) -> Int64:
    """Ethernet source addresses as numbers, shape (packets,)."""
    octets = packets.data[packets.offset[:, None] + np.arange(6, 12)].astype(np.int64)
    shifts: Sequence[int] = range(40, -1, -8)
    found: Int64 = (octets << np.array(list(shifts))).sum(axis=1)
    return found
