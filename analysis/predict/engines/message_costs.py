"""The costs of messages on paths, with a calibration's corrections applied."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.paths import PathCosts, Paths
from analysis.predict.engines.unannounced_wire import UnannouncedWire
from analysis.predict.engines.wire import Floats, GlooWire, Wire
from analysis.predict.interface import Transport
from analysis.predict.parameters import Parameters
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule.observed import ObservedSchedule

_ONE_WAY_KINDS = frozenset({Kind.BROADCAST, Kind.GATHER, Kind.SCATTER, Kind.INCAST, Kind.SEND_RECV})
"""Here a loaded port carries data in one direction, so acknowledgements leave by an idle one."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of the protocol that are counted; leaving one out shows what it costs."""

    headers: bool = True
    rendezvous: bool = True
    acknowledgements: bool = True


ALL_EFFECTS = Effects()


def wire_of(
    transport: Transport, call: CollectiveCall, mtu_bytes: int, outer_bytes: int = 0
) -> Wire:
    """How a call's messages lie on links of this MTU, where so many bytes wrap each packet of
    TCP."""
    if transport.carrier is not None and transport.carries(call):
        return transport.carrier.wire(mtu_bytes, outer_bytes)
    if isinstance(call.schedule, ObservedSchedule):
        return UnannouncedWire(mtu_bytes, call.schedule.header_bytes, outer_bytes)
    return GlooWire(mtu_bytes, outer_bytes=outer_bytes)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a message is cut: full segments with their bytes on the wire, then a shorter one."""

    full: int
    full_bytes: float
    rest_bytes: float


@dataclass(frozen=True)
class MessageCosts:
    """Costs of one call's messages. Arrays are by message or by path, elementwise."""

    call: CollectiveCall
    parameters: Parameters
    mtu_bytes: int
    effects: Effects = ALL_EFFECTS
    transport: Transport = field(default_factory=Transport)
    outer_bytes: int = 0

    @classmethod
    def on(
        cls,
        paths: Paths,
        call: CollectiveCall,
        parameters: Parameters,
        effects: Effects = ALL_EFFECTS,
    ) -> MessageCosts:
        """Those of a call on the paths of its setting."""
        transport = paths.setting.transport
        return cls(call, parameters, paths.mtu_bytes, effects, transport, paths.outer_bytes)

    @property
    def carried(self) -> bool:
        """Whether the call's messages go between ends of the transport's own."""
        return self.transport.carries(self.call)

    @property
    def wire(self) -> Wire:
        """How the call's messages lie on a link."""
        return wire_of(self.transport, self.call, self.mtu_bytes, self.outer_bytes)

    @property
    def sharing_factor(self) -> float:
        return self.parameters.sharing_factor(self.call.kind)

    @property
    def control_bytes(self) -> int:
        """The bytes of what a receiver tells the sender before a message, if anything."""
        return self.wire.control_bytes if self.effects.rendezvous else 0

    @property
    def notice_bytes(self) -> int:
        """The bytes that go the way of a message to prepare it, and the one that comes in
        meanwhile."""
        return self.wire.notice_bytes if self.effects.rendezvous else 0

    def wire_bytes(self, size_bytes: npt.ArrayLike) -> Floats:
        """L1 bytes that a message of `size_bytes` takes on a loaded port, both ways counted in.

        The message itself with its headers and, where every member sends and receives at once,
        what the equal message that comes in meanwhile sends out. Over TCP two ranks need none:
        their acknowledgements are in the payload that goes the other way.
        """
        if not self.effects.headers:
            return np.asarray(size_bytes, dtype=np.float64)
        wire = np.asarray(self.wire.data_bytes(size_bytes), dtype=np.float64)
        both_carry = self.call.world == 2 and self.wire.completed_by_bytes is None
        one_way = self.call.kind in _ONE_WAY_KINDS or both_carry
        if one_way or not self.effects.acknowledgements:
            return wire
        return np.asarray(wire + self.wire.beside_bytes(size_bytes), dtype=np.float64)

    def cut(self, size_bytes: int) -> Cut:
        """How a message is cut into segments, with the same bytes on the wire as `wire_bytes`; over
        RoCE, whose acknowledgements are followed as well, without those of others."""
        full, full_bytes, rest_bytes = self.wire.cut(size_bytes)
        bare = full * full_bytes + rest_bytes
        followed = self.wire.completed_by_bytes is not None
        keeps = followed and self.effects.headers
        more = 1.0 if keeps else float(self.wire_bytes(size_bytes)) / bare
        return Cut(full, full_bytes * more, rest_bytes * more)

    def ns_per_byte(self, costs: PathCosts) -> Floats:
        """The cost on the slowest link of each path."""
        return costs.ns_per_byte / self.parameters.bandwidth_efficiency

    def notification_ns(self, costs: PathCosts) -> Floats:
        """From posting a receive to the arrival of what tells the sender of it."""
        if not self.effects.rendezvous:
            return np.zeros(len(costs.hops))
        latency_ns = self._framed(costs).latency_ns(self.wire.control_bytes)
        return latency_ns + self._overhead_ns(costs)

    def tail_ns(self, costs: PathCosts, wire_bytes: npt.ArrayLike) -> Floats:
        """The time of a message beyond its serialisation on the slowest link."""
        return self._framed(costs).tail_ns(wire_bytes) + self._overhead_ns(costs)

    def _overhead_ns(self, costs: PathCosts) -> Floats:
        return np.asarray(costs.hops * self.parameters.hop_overhead_ns, dtype=np.float64)

    def _framed(self, costs: PathCosts) -> PathCosts:
        """With frames of the size that the call's messages have."""
        return replace(costs, full_frame_bytes=self.wire.full_frame_bytes)
