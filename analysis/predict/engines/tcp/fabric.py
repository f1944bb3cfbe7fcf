"""A setting's links as ports that packets pass."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.tcp.packet import HEADERS_BYTES
from analysis.predict.engines.tcp.pausable import (
    Clock,
    PausablePort,
    PauseLimits,
    SwitchMemory,
)
from analysis.predict.engines.tcp.ports import Port, SharedMemory, SharedPort
from analysis.predict.engines.tcp.red import RedPort
from analysis.predict.engines.tcp.served import CodelPort, CodelSetting, FqCodelPort, VoqPort
from analysis.predict.interface import PredictorError, Setting
from topologies.fabrics.fabric import Link
from topologies.fabrics.fabric import Port as FabricPort
from topologies.fabrics.port_seed import port_seed
from topologies.spec.queue_section import (
    Codel,
    Dctcp,
    DropTail,
    FqCodel,
    Lossless,
    Red,
    Shared,
    Voq,
    queue_of,
)

_FRAME_BYTES = HEADERS_BYTES + 24
"""What a frame without data takes on the line."""

_PAUSE_WIRE_BYTES = 84
"""What a pause frame takes."""


class FabricPorts:
    """The ports of a fabric, made as paths need them, by the number of the directed link."""

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths = paths
        self._clock = clock
        self._ports: dict[int, Port] = {}
        self._memories: dict[str, SharedMemory] = defaultdict(SharedMemory)
        self._lossless_memories: dict[str, SwitchMemory] = defaultdict(SwitchMemory)
        links = paths.setting.fabric.links
        self._class = _only_class(paths.setting)
        self._pauses = any(
            isinstance(queue_of(end.queue, self._class), Lossless)
            for link in links
            for end in (link.a, link.b)
        )

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
            self._ports[number] = made = self._made(number)
            if isinstance(made, PausablePort):
                other = self._port(number ^ 1)
                assert isinstance(other, PausablePort)
                made.reverse, other.reverse = other, made
        return self._ports[number]

    def _made(self, number: int) -> Port:
        link = self._paths.setting.fabric.links[number // 2]
        end = link.b if number % 2 else link.a
        if self._pauses:
            return self._pausable(link, end)
        rate_bps, delay_ns = link.rate_bps, link.delay_ns
        match queue_of(end.queue, self._class):
            case DropTail(buffer_bytes=buffer):
                return Port(rate_bps, delay_ns, buffer)
            case Dctcp(buffer_bytes=buffer, k_bytes=k):
                return Port(rate_bps, delay_ns, buffer, k)
            case Shared(buffer_bytes=buffer, alpha=alpha, k_bytes=k):
                memory = self._memories[end.node]
                return SharedPort(rate_bps, delay_ns, buffer, k, alpha, memory)
            case Red() as red:
                return RedPort(rate_bps, delay_ns, red, link.mtu_bytes, self._seed_of(end))
            case Voq(buffer_bytes=buffer, k_bytes=k):
                return VoqPort(rate_bps, delay_ns, buffer, k, link.frame_bytes, self._clock)
            case Codel() as codel:
                return self._codel(link, codel)
            case other:
                raise PredictorError(f"tcp does not follow queues of kind {other.kind}")

    def _seed_of(self, end: FabricPort) -> int:
        return port_seed(self._paths.setting.seed, end.interface)

    def _codel(self, link: Link, queue: Codel) -> Port:
        setting = CodelSetting(
            queue.target_ns, queue.interval_ns, queue.ce_threshold_ns, queue.ecn, link.frame_bytes
        )
        kind, quantum = CodelPort, link.frame_bytes
        if isinstance(queue, FqCodel):
            kind, quantum = FqCodelPort, queue.quantum_bytes or quantum
        line = link.rate_bps, link.delay_ns, queue.buffer_bytes
        return kind(*line, quantum, setting, self._clock)

    def _pausable(self, link: Link, end: FabricPort) -> PausablePort:
        memory = self._lossless_memories[end.node]
        limits = mark_above = None
        found = queue_of(end.queue, self._class)
        match found:
            case Lossless(kmin_bytes=int()):
                raise PredictorError("tcp does not follow lossless queues that mark by RED's line")
            case Lossless() as queue if not queue.lossy_priorities:
                mark_above = queue.k_bytes
                headroom = queue.headroom_bytes
                if headroom is None:
                    wire = 2 * link.rate_bps * link.delay_ns / 8e9
                    headroom = math.ceil(wire) + 3 * link.frame_bytes + _PAUSE_WIRE_BYTES
                limits = PauseLimits(queue.xoff_bytes, queue.xon_bytes, headroom)
            case DropTail():
                pass
            case Lossless():
                raise PredictorError("tcp does not follow lossless queues with lossy_priorities")
            case other:
                raise PredictorError(
                    f"tcp does not follow queues of kind {other.kind} beside lossless ones"
                )
        buffer = found.buffer_bytes
        return PausablePort(
            link.rate_bps, link.delay_ns, buffer, mark_above, limits, memory, self._clock
        )


def _only_class(setting: Setting) -> int:
    """The class selector that all ranks' packets have. Raises PredictorError where they differ."""
    found = (set(setting.priorities[0]) or {0}) | set(setting.group_priorities.values())
    if len(found) > 1:
        raise PredictorError(
            f"tcp follows traffic of one class: found {', '.join(map(str, sorted(found)))}"
        )
    return found.pop()
