"""How much a port sent over time, from captures at it or at its peer, and of copies of memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analysis.decode.run_capture import RunCapture
from analysis.decode.tcp.pcap import Packets
from analysis.runs.copies import copies_of
from analysis.runs.run import Run
from topologies.fabrics.copies import CopyPaths
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link, Port

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


_PIECE_BYTES = 1 << 16
"""Copies are taken to be sent in pieces of this length, as a time step may be shorter than one."""


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
    """Both directions of every link that was captured at one end at least, or carried copies of
    memory, in order of links. Raises RunError."""
    copied = _copied(capture.run)
    files = {packets.path.stem: packets for packets in capture.files}
    found = []
    for link in capture.run.fabric.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            packets = files.get(here.interface) or files.get(there.interface)
            number = 2 * link.index + (here is link.b)
            if packets is not None:
                of_packets = _of_port(capture, packets, link, here, there)
                found.append(_with_copies(of_packets, copied.get(number, ())))
    return tuple(found)


def _copied(run: Run) -> dict[int, list[tuple[int, int]]]:
    """Directed link -> times and bytes of pieces of copies, each when its first bit was sent."""
    paths = CopyPaths.of(run.fabric)
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for copy in copies_of(run) if paths is not None else ():
        assert paths is not None
        last_ns = copy.end_ns - paths.delay_ns - paths.occupied_ns(copy.bytes)
        begins = [copy.begin_ns, last_ns][-len(copy.links) :]
        for link, begin_ns in zip(copy.links, begins, strict=True):
            for sent in range(0, copy.bytes, _PIECE_BYTES):
                size_bytes = min(_PIECE_BYTES, copy.bytes - sent)
                found[link].append((begin_ns + paths.occupied_ns(sent), size_bytes))
    return found


def _with_copies(traffic: PortTraffic, pieces: Sequence[tuple[int, int]]) -> PortTraffic:
    if not pieces:
        return traffic
    times, sizes = np.array(pieces, dtype=np.int64).T
    time_ns = np.concatenate([traffic.time_ns, times])
    order = np.argsort(time_ns, kind="stable")
    wire_bytes = np.concatenate([traffic.wire_bytes, sizes])[order]
    return replace(traffic, time_ns=time_ns[order], wire_bytes=wire_bytes)


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
