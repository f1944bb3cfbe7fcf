"""A setting's links as ports that packets pass."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.tcp.packet import HEADERS_BYTES
from analysis.predict.engines.tcp.ports import Port, RedPort
from analysis.predict.interface import PredictorError
from topologies.spec.queue_section import Dctcp, DropTail, Red

_FRAME_BYTES = HEADERS_BYTES + 24
"""What a frame without data takes on the line."""


class FabricPorts:
    """The ports of a fabric, made as paths need them, by the number of the directed link."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._ports: dict[int, Port] = {}

    @property
    def ports(self) -> Sequence[Port]:
        """Those that were needed."""
        return tuple(self._ports.values())

    def along(self, directed: Sequence[int]) -> tuple[Port, ...]:
        """The ports of a path. Raises PredictorError for a discipline that is not followed."""
        return tuple(self._port(number) for number in directed)

    def one_way_ns(self, directed: Sequence[int]) -> int:
        """What a frame without data takes over an idle path."""
        return sum(
            port.delay_ns + -(-_FRAME_BYTES * 8_000_000_000 // port.rate_bps)
            for port in self.along(directed)
        )

    def _port(self, number: int) -> Port:
        if number not in self._ports:
            self._ports[number] = self._made(number)
        return self._ports[number]

    def _made(self, number: int) -> Port:
        link = self._paths.setting.fabric.links[number // 2]
        end = link.b if number % 2 else link.a
        rate_bps, delay_ns = link.rate_bps, link.delay_ns
        match end.queue:
            case DropTail(buffer_bytes=buffer):
                return Port(rate_bps, delay_ns, buffer)
            case Dctcp(buffer_bytes=buffer, k_bytes=k):
                return Port(rate_bps, delay_ns, buffer, k)
            case Red() as red:
                thresholds = red.kmin_bytes, red.kmax_bytes, red.pmax, red.weight
                seed = self._paths.setting.seed << 16 | number
                mtu = link.mtu_bytes
                return RedPort(rate_bps, delay_ns, red.buffer_bytes, thresholds, red.ecn, mtu, seed)
            case other:
                raise PredictorError(f"tcp does not follow queues of kind {other.kind}")
