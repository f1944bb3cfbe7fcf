"""What Gloo's messages take on paths, with a calibration's corrections applied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.paths import PathCosts
from analysis.predict.engines.trains import Cut
from analysis.predict.engines.wire import (
    CONTROL_BYTES,
    HEADER_BYTES,
    PREAMBLE_BYTES,
    SEGMENTS_PER_ACK,
    TCP_IP_BYTES,
    Floats,
    Ints,
    data_bytes,
    packets,
)
from analysis.predict.parameters import Parameters
from collectives.call import CollectiveCall
from collectives.kinds import Kind

_ONE_WAY_KINDS = frozenset({Kind.BROADCAST, Kind.GATHER, Kind.SCATTER, Kind.INCAST, Kind.SEND_RECV})
"""Here a loaded port carries data in one direction, so acknowledgements leave by an idle one."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Which effects of the protocol are counted; leaving one out shows what it costs."""

    headers: bool = True
    rendezvous: bool = True
    acknowledgements: bool = True


ALL_EFFECTS = Effects()


@dataclass(frozen=True)
class MessageCosts:
    """Costs of one call's messages. Arrays are by message or by path, elementwise."""

    call: CollectiveCall
    parameters: Parameters
    mtu_bytes: int
    effects: Effects = ALL_EFFECTS

    @property
    def sharing_factor(self) -> float:
        return self.parameters.sharing_factor(self.call.kind)

    @property
    def notice_bytes(self) -> int:
        """A message's SEND_READY, and the RECV_READY of one that comes in, on the way out."""
        return 2 * CONTROL_BYTES if self.effects.rendezvous else 0

    def wire_bytes(self, size_bytes: npt.ArrayLike) -> Floats:
        """L1 bytes that a message of `size_bytes` takes on a loaded port, both ways counted in.

        The message itself with its headers and, where every member sends and receives at once,
        the acknowledgements of the equal message that comes in meanwhile. Two ranks need none:
        their acknowledgements are in the payload that goes the other way.
        """
        if not self.effects.headers:
            return np.asarray(size_bytes, dtype=np.float64)
        wire = np.asarray(data_bytes(size_bytes, self.mtu_bytes), dtype=np.float64)
        one_way = self.call.kind in _ONE_WAY_KINDS or self.call.world == 2
        if one_way or not self.effects.acknowledgements:
            return wire
        segments = packets(size_bytes, self.mtu_bytes)
        return np.asarray(wire + segments / SEGMENTS_PER_ACK * HEADER_BYTES, dtype=np.float64)

    def cuts(self, size_bytes: Ints) -> list[Cut]:
        """How messages are cut into segments, with the same bytes on the wire as `wire_bytes`."""
        mss = self.mtu_bytes - TCP_IP_BYTES
        found = {}
        for size in np.unique(size_bytes).tolist():
            full, rest = divmod(size + PREAMBLE_BYTES, mss)
            bare = full * (mss + HEADER_BYTES) + (rest + HEADER_BYTES if rest else 0)
            more = float(self.wire_bytes(size)) / bare
            found[size] = Cut(
                full, (mss + HEADER_BYTES) * more, (rest + HEADER_BYTES) * more if rest else 0.0
            )
        return [found[size] for size in size_bytes.tolist()]

    def ns_per_byte(self, costs: PathCosts) -> Floats:
        """Of the slowest link of each path."""
        return costs.ns_per_byte / self.parameters.bandwidth_efficiency

    def notification_ns(self, costs: PathCosts) -> Floats:
        """RECV_READY from posting the receive to its arrival at the sender."""
        if not self.effects.rendezvous:
            return np.zeros(len(costs.hops))
        return costs.latency_ns(CONTROL_BYTES) + costs.hops * self.parameters.hop_overhead_ns

    def tail_ns(self, costs: PathCosts, wire_bytes: npt.ArrayLike) -> Floats:
        """What a message takes beyond its serialisation on the slowest link."""
        return costs.tail_ns(wire_bytes) + costs.hops * self.parameters.hop_overhead_ns
