"""A setting's links as columns of ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np

from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError, Setting
from simulation.columns import Column
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link, NodeKind, headroom_bytes
from topologies.fabrics.fabric import Port as FabricPort
from topologies.fabrics.port_seed import port_seed
from topologies.registration import complete
from topologies.spec.queue_section import (
    CLASSES,
    DISCIPLINES,
    Cells,
    Classes,
    ClassQueue,
    Codel,
    Credits,
    Dctcp,
    DropTail,
    FqCodel,
    Lossless,
    Red,
    Shared,
    Voq,
    queue_of,
    queues_in,
    trims,
)
from topologies.spec.transports.checks import fabric_trims
from topologies.units import q32

_FIFO, _SHARED, _RED, _QUEUED = range(4)
"""`Discipline` of simulation/engine/port.hpp."""

_KINDS = (
    *("droptail", "red", "dctcp", "codel", "fq_codel"),
    *("shared", "voq", "lossless", "credits", "cells"),
)
"""`QueueKind` of simulation/engine/queued.hpp."""

_COLUMNS = (
    *("kind", "rate_bps", "delay_ns", "buffer", "mark_above", "memory"),
    *("first", "second", "third", "fourth", "fifth", "sixth"),
)

_FRAME_BYTES = 66 + 24
"""The bytes of a frame without data on the line: Ethernet 14, IPv4 20, TCP 20, timestamps 12, and
24 of checksum, preamble and gap."""

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Port:
    kind: int
    buffer: int
    mark_above: int | None = None
    memory: str | None = None
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Options:
    """`QueueOptions` of simulation/engine/queued.hpp, in their order; -1 for no threshold."""

    kind: int
    buffer_bytes: int
    k_bytes: int = -1
    kmin_bytes: int = 0
    kmax_bytes: int = 0
    target_ns: int = 0
    interval_ns: int = 0
    ce_threshold_ns: int = -1
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0
    quantum_bytes: int = 0
    class_quantum_bytes: int = 0
    pmax_q32: int = 0
    weight_q32: int = 0
    alpha_q16: int = 0
    lossy_classes: int = 0
    ecn: int = 0
    trim: int = 0
    card: int = 0
    cards: int = 0
    fabric_links: int = 0
    fabric_bps: int = 0
    fabric_ns: int = 0
    cell_bytes: int = 0
    header_bytes: int = 0


@dataclass(slots=True)
class FabricPorts:
    """The ports of a fabric by the number of the directed link, of those that paths take.

    A port whose packets leave in the order in which they come needs no event of its own, where one
    class of traffic is used and nothing is to be seen at the moment at which a packet leaves.
    """

    paths: Paths
    has_faults: bool = False
    _class: int | None = field(init=False)
    _has_pauses: bool = field(init=False)
    _plain: bool = field(init=False)
    _options: dict[tuple[_Options, ...], int] = field(init=False, default_factory=dict)
    _rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        setting = self.paths.setting
        ends = [end for link in setting.fabric.links for end in (link.a, link.b)]
        used = _classes(setting)
        self._class = used.pop() if len(used) == 1 else None
        self._has_pauses = any(
            isinstance(queue, Lossless | Credits | Cells)
            for end in ends
            for queue in queues_in(end.queue)
        )
        carrier = setting.transport.carrier
        stamped = carrier is not None and carrier.stamps
        self._plain = self._class is not None and not (
            self._has_pauses or stamped or self.has_faults or fabric_trims(setting.fabric)
        )

    def one_way_ns(self, matrix: Ints) -> Ints:
        """The time of a frame without data over the idle paths of a path matrix."""
        links = self.paths.setting.fabric.links
        frame = _FRAME_BYTES + self.paths.outer_bytes
        taken = [link.delay_ns + -(-frame * 8_000_000_000 // link.rate_bps) for link in links]
        by_number = np.append(np.repeat(np.array(taken, dtype=np.int64), 2), 0)
        found: Ints = by_number[matrix].sum(axis=1, dtype=np.int64)
        return found

    def columns(self, used: set[int]) -> dict[str, Column]:
        """The ports of all links; those that are not used have no discipline."""
        links = self.paths.setting.fabric.links
        if self._has_pauses:
            used = used | {number ^ 1 for number in used}
        table = np.full((self.paths.links, len(_COLUMNS)), -1, dtype=np.int64)
        memories: dict[str, int] = {}
        for number in sorted(used):
            link = links[number // 2]
            port = self._port(link, link.b if number % 2 else link.a)
            memory = -1 if port.memory is None else memories.setdefault(port.memory, len(memories))
            mark = -1 if port.mark_above is None else port.mark_above
            row = (port.kind, link.rate_bps, link.delay_ns, port.buffer, mark, memory)
            table[number, : 6 + len(port.parameters)] = row + port.parameters
        rows = [astuple(each) for queues in self._options for each in queues]
        columns = {f"port.{name}": table[:, place].copy() for place, name in enumerate(_COLUMNS)}
        return columns | {"queue.options": np.array(rows, dtype=np.int64).reshape(-1)}

    def _port(self, link: Link, end: FabricPort) -> _Port:
        if not self._plain or self._class is None:
            return self._queued(link, end)
        match queue_of(end.queue, self._class):
            case DropTail(buffer_bytes=buffer):
                return _Port(_FIFO, buffer)
            case Dctcp(buffer_bytes=buffer, k_bytes=k):
                return _Port(_FIFO, buffer, k)
            case Shared(buffer_bytes=buffer, alpha=alpha, k_bytes=k):
                return _Port(_SHARED, buffer, k, end.node, (_alpha_q16(alpha),))
            case Red() as red:
                line = (red.kmin_bytes << 16, red.kmax_bytes << 16, q32(red.pmax), q32(red.weight))
                packet = _packet_ns(link) << 1 | int(red.ecn)
                parameters = (*line, packet, self._seed(end))
                return _Port(_RED, red.buffer_bytes, None, None, parameters)
            case _:
                return self._queued(link, end)

    def _queued(self, link: Link, end: FabricPort) -> _Port:
        queue = end.queue
        to_host = self.paths.setting.fabric.by_name[link.other(end.node).node]
        trim = 2 if to_host.kind is NodeKind.HOST else 1
        if isinstance(queue, Classes):
            served = [queue.of(priority) for priority in range(CLASSES)]
            weights = [each.weight for each in queue.classes.values() if each.weight is not None]
            frame = link.frame_bytes + L1_OVERHEAD_BYTES
            options = tuple(
                replace(
                    _options(each.queue, link, trim),
                    class_quantum_bytes=(
                        0 if each.weight is None else frame * each.weight // min(weights)
                    ),
                )
                for each in served
            )
            class_map = sum(each.priority << 4 * number for number, each in enumerate(served))
        else:
            options, class_map = (_options(queue, link, trim),), _OWN_CLASS
        if isinstance(queue, Cells):
            beside = self.paths.setting.fabric.links_of[end.node]
            card = [each.index for each in beside].index(link.index) // queue.ports
            options = (replace(options[0], card=card, cards=queue.cards(len(beside))),)
        if options not in self._options:
            self._options[options] = self._rows
            self._rows += len(options)
        first = self._options[options]
        times = (link.frame_bytes, _packet_ns(link), self._seed(end))
        return _Port(_QUEUED, 0, None, end.node, (first, len(options), class_map, *times))

    def _seed(self, end: FabricPort) -> int:
        return _as_signed(port_seed(self.paths.setting.seed, end.interface))


_OWN_CLASS = sum(number << 4 * number for number in range(CLASSES))
"""Each class selector is a class of its own."""


def _options(queue: ClassQueue, link: Link, trim: int) -> _Options:
    found = _OF_KIND[queue.kind](queue, _Options(0, queue.buffer_bytes), link)
    return replace(found, kind=_KINDS.index(queue.kind), trim=trim if trims(queue) else 0)


def _not_followed(queue: ClassQueue, plain: _Options, link: Link) -> _Options:
    """For a discipline that the engine lacks."""
    raise PredictorError(f"packet follows no {queue.kind} queue")


def _red(queue: Red, plain: _Options, link: Link) -> _Options:
    return replace(
        plain,
        kmin_bytes=queue.kmin_bytes,
        kmax_bytes=queue.kmax_bytes,
        pmax_q32=q32(queue.pmax),
        weight_q32=q32(queue.weight),
        ecn=int(queue.ecn),
    )


def _shared(queue: Shared, plain: _Options, link: Link) -> _Options:
    return replace(plain, k_bytes=_or_none(queue.k_bytes), alpha_q16=_alpha_q16(queue.alpha))


def _voq(queue: Voq, plain: _Options, link: Link) -> _Options:
    return replace(plain, k_bytes=_or_none(queue.k_bytes), quantum_bytes=link.frame_bytes)


def _cells(queue: Cells, plain: _Options, link: Link) -> _Options:
    return replace(
        plain,
        k_bytes=_or_none(queue.k_bytes),
        quantum_bytes=queue.credit_bytes,
        fabric_links=queue.links,
        fabric_bps=queue.link_rate_bps,
        fabric_ns=queue.link_delay_ns,
        cell_bytes=queue.cell_bytes,
        header_bytes=queue.header_bytes,
    )


def _codel(queue: Codel, plain: _Options, link: Link) -> _Options:
    return replace(
        plain,
        target_ns=queue.target_ns,
        interval_ns=queue.interval_ns,
        ce_threshold_ns=_or_none(queue.ce_threshold_ns),
        ecn=int(queue.ecn),
    )


def _fq_codel(queue: FqCodel, plain: _Options, link: Link) -> _Options:
    quantum = queue.quantum_bytes or link.frame_bytes
    return replace(_codel(queue, plain, link), quantum_bytes=quantum)


def _lossless(queue: Lossless, plain: _Options, link: Link) -> _Options:
    given = queue.headroom_bytes
    return replace(
        plain,
        k_bytes=_or_none(queue.k_bytes),
        kmin_bytes=queue.kmin_bytes or 0,
        kmax_bytes=queue.kmax_bytes or 0,
        pmax_q32=q32(queue.pmax),
        xoff_bytes=queue.xoff_bytes,
        xon_bytes=queue.xon_bytes,
        headroom_bytes=headroom_bytes(link) if given is None else given,
        lossy_classes=sum(1 << priority for priority in set(queue.lossy_priorities)),
    )


_OF_KIND: Mapping[str, Callable[[Any, _Options, Link], _Options]] = complete(
    DISCIPLINES,
    {
        "droptail": lambda queue, plain, link: plain,
        "red": _red,
        "dctcp": lambda queue, plain, link: replace(plain, k_bytes=queue.k_bytes),
        "codel": _codel,
        "fq_codel": _fq_codel,
        "shared": _shared,
        "voq": _voq,
        "lossless": _lossless,
        "credits": lambda queue, plain, link: plain,
        "cells": _cells,
    },
    __name__,
)
"""(queue, what all disciplines have, link) -> the options, by kind; `_not_followed` of those that
the engine lacks."""


def _or_none(threshold: int | None) -> int:
    return -1 if threshold is None else threshold


def _alpha_q16(alpha: float) -> int:
    return max(1, round(alpha * 2**16))


def _packet_ns(link: Link) -> int:
    """The time of a full packet, by which RED's average falls while a port is idle."""
    bits = 8 * (link.frame_bytes + L1_OVERHEAD_BYTES)
    return max(1, bits * _SECOND_NS // link.rate_bps)


def _as_signed(number: int) -> int:
    """The 64 bits of an unsigned number."""
    return number - (1 << 64) if number >> 63 else number


def _classes(setting: Setting) -> set[int]:
    """The class selectors that packets of ranks have."""
    found = set(setting.priorities[0]) or {0}
    if setting.transport.carrier is not None:
        found |= set(setting.priorities[1]) or {0}
    return found | set(setting.group_priorities.values())
