"""RoCE as predictors know it: RDMA WRITEs between queue pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.decode.roce.wire_format import UDP_PORT, udp_source_port, value_port
from analysis.predict.carrier import Carrier, PredictedTransport
from analysis.predict.engines.wire import Wire
from analysis.predict.interface import Setting
from analysis.predict.transports.roce.columns import roce_columns
from analysis.predict.transports.roce.wire import QUEUED_PACKETS, REFILLED_BELOW, RoceWire
from analysis.runs.run import RankLog
from simulation.columns import Column
from topologies.routing.ecmp_hash import UDP
from topologies.spec.sections import Sections
from topologies.spec.transports.connections import ONE, Connections
from topologies.spec.transports.roce.section import RoceTransport


class RoceCarrier(Carrier):
    """Queue pairs. `settings` are those of the spec."""

    protocol, port = UDP, UDP_PORT
    in_port = QUEUED_PACKETS, REFILLED_BELOW

    def __init__(self, settings: RoceTransport, between_ranks: Connections = ONE) -> None:
        self.settings = settings
        self.between_ranks = between_ranks
        self.stamps = settings.congestion_control == "hpcc"
        self.values = 1 if settings.entropy is None else settings.entropy.values

    def port_of(self, port: int, value: int) -> int:
        """As queue pairs have it."""
        return port if self.values == 1 else value_port(port, value)

    def wire(self, mtu_bytes: int, outer_bytes: int = 0) -> Wire:
        """Packets of the path MTU, whatever links can take."""
        of = self.settings
        return RoceWire(of.path_mtu_bytes, of.packets_per_ack, of.is_selective, outer_bytes)

    def columns(self, setting: Setting, line_rates_bps: Sequence[int]) -> dict[str, Column]:
        """Those of queue pairs and their devices."""
        return roce_columns(self.settings, setting.fabric, line_rates_bps)

    def ports(self, log: RankLog) -> Iterator[tuple[str, int, int]]:
        """By the numbers of the queue pairs, those of two ranks in order."""
        for pair in log.queue_pairs:
            yield pair.group, pair.peer, udp_source_port(pair.local_qpn, pair.remote_qpn)


class PredictedRoce(PredictedTransport):
    """RoCE, beside TCP."""

    def carrier(self, spec: Sections) -> Carrier | None:
        """Queue pairs."""
        assert isinstance(spec.transport, RoceTransport)
        return RoceCarrier(spec.transport, spec.between_ranks)

    def unknown(self, spec: Sections) -> str | None:
        """Nothing."""
        return None


PART = PredictedRoce()
