"""A setting's links as columns of ports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError, Setting
from simulation.columns import Column
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

_FIFO, _SHARED, _RED, _VOQ, _CODEL, _FQ_CODEL, _PAUSABLE = range(7)
"""`Discipline` of simulation/engine/port.hpp."""

_COLUMNS = (
    *("kind", "rate_bps", "delay_ns", "buffer", "mark_above", "memory"),
    *("first", "second", "third", "fourth", "fifth", "sixth"),
)

_FRAME_BYTES = 66 + 24
"""The bytes of a frame without data on the line: Ethernet 14, IPv4 20, TCP 20, timestamps 12, and
24 of checksum, preamble and gap."""

_PAUSE_WIRE_BYTES = 84
"""The bytes of a pause frame."""

_ETHERNET_BYTES, _OVERHEAD_BYTES, _SECOND_NS, _U32 = 14, 24, 1_000_000_000, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Port:
    kind: int
    buffer: int
    mark_above: int | None = None
    memory: str | None = None
    parameters: tuple[int, ...] = ()


@dataclass(slots=True)
class FabricPorts:
    """The ports of a fabric by the number of the directed link, of those that paths take."""

    paths: Paths
    _class: int = field(init=False)
    _pauses: bool = field(init=False)

    def __post_init__(self) -> None:
        links = self.paths.setting.fabric.links
        self._class = _only_class(self.paths.setting)
        self._pauses = any(
            isinstance(queue_of(end.queue, self._class), Lossless)
            for link in links
            for end in (link.a, link.b)
        )

    def one_way_ns(self, matrix: Ints) -> Ints:
        """The time of a frame without data over the idle paths of a path matrix."""
        links = self.paths.setting.fabric.links
        taken = [
            link.delay_ns + -(-_FRAME_BYTES * 8_000_000_000 // link.rate_bps) for link in links
        ]
        by_number = np.append(np.repeat(np.array(taken, dtype=np.int64), 2), 0)
        found: Ints = by_number[matrix].sum(axis=1, dtype=np.int64)
        return found

    def columns(self, used: set[int]) -> dict[str, Column]:
        """The ports of all links; those that are not used have no discipline. Raises PredictorError
        for a discipline that is not followed."""
        links = self.paths.setting.fabric.links
        if self._pauses:
            used = used | {number ^ 1 for number in used}
        table = np.full((self.paths.links, len(_COLUMNS)), -1, dtype=np.int64)
        memories: dict[str, int] = {}
        for number in used:
            link = links[number // 2]
            port = self._port(link, link.b if number % 2 else link.a)
            memory = -1 if port.memory is None else memories.setdefault(port.memory, len(memories))
            mark = -1 if port.mark_above is None else port.mark_above
            row = (port.kind, link.rate_bps, link.delay_ns, port.buffer, mark, memory)
            table[number, : 6 + len(port.parameters)] = row + port.parameters
        return {f"port.{name}": table[:, place].copy() for place, name in enumerate(_COLUMNS)}

    def _port(self, link: Link, end: FabricPort) -> _Port:
        if self._pauses:
            return self._pausable(link, end)
        frame = link.frame_bytes
        match queue_of(end.queue, self._class):
            case DropTail(buffer_bytes=buffer):
                return _Port(_FIFO, buffer)
            case Dctcp(buffer_bytes=buffer, k_bytes=k):
                return _Port(_FIFO, buffer, k)
            case Shared(buffer_bytes=buffer, alpha=alpha, k_bytes=k):
                return _Port(_SHARED, buffer, k, end.node, (round(alpha * 65536),))
            case Red() as red:
                return self._red(link, end, red)
            case Voq(buffer_bytes=buffer, k_bytes=k):
                return _Port(_VOQ, buffer, k, None, (frame,))
            case Codel() as codel:
                kind, quantum = _CODEL, frame
                if isinstance(codel, FqCodel):
                    kind, quantum = _FQ_CODEL, codel.quantum_bytes or frame
                threshold = -1 if codel.ce_threshold_ns is None else codel.ce_threshold_ns
                times = codel.target_ns, codel.interval_ns, threshold
                return _Port(
                    kind, codel.buffer_bytes, None, None, (quantum, *times, int(codel.ecn), frame)
                )
            case other:
                raise PredictorError(f"packet does not follow queues of kind {other.kind}")

    def _red(self, link: Link, end: FabricPort, red: Red) -> _Port:
        bits = 8 * (link.mtu_bytes + _ETHERNET_BYTES + _OVERHEAD_BYTES)
        packet_ns = max(1, bits * _SECOND_NS // link.rate_bps)
        parameters = (
            red.kmin_bytes << 16,
            red.kmax_bytes << 16,
            _q32(red.pmax),
            _q32(red.weight),
            packet_ns << 1 | int(red.ecn),
            _as_signed(port_seed(self.paths.setting.seed, end.interface)),
        )
        return _Port(_RED, red.buffer_bytes, None, None, parameters)

    def _pausable(self, link: Link, end: FabricPort) -> _Port:
        found = queue_of(end.queue, self._class)
        match found:
            case Lossless(kmin_bytes=int()):
                raise PredictorError(
                    "packet does not follow lossless queues that mark by RED's line"
                )
            case Lossless() as queue if not queue.lossy_priorities:
                headroom = queue.headroom_bytes
                if headroom is None:
                    wire = 2 * link.rate_bps * link.delay_ns / 8e9
                    headroom = math.ceil(wire) + 3 * link.frame_bytes + _PAUSE_WIRE_BYTES
                limits = queue.xoff_bytes, queue.xon_bytes, headroom
                return _Port(_PAUSABLE, found.buffer_bytes, queue.k_bytes, end.node, limits)
            case DropTail():
                return _Port(_PAUSABLE, found.buffer_bytes, None, end.node)
            case Lossless():
                raise PredictorError("packet does not follow lossless queues with lossy_priorities")
            case other:
                raise PredictorError(
                    f"packet does not follow queues of kind {other.kind} beside lossless ones"
                )


def _q32(share: float) -> int:
    """A probability as ports take it: 2^32 - 1 stands for 1."""
    return min(round(share * 2**32), _U32)


def _as_signed(number: int) -> int:
    """The 64 bits of an unsigned number."""
    return number - (1 << 64) if number >> 63 else number


def _only_class(setting: Setting) -> int:
    """The class selector that all ranks' packets have. Raises PredictorError where they differ."""
    found = (set(setting.priorities[0]) or {0}) | set(setting.group_priorities.values())
    if len(found) > 1:
        raise PredictorError(
            f"packet follows traffic of one class: found {', '.join(map(str, sorted(found)))}"
        )
    return found.pop()
