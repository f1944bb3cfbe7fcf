"""Shared, virtual-output and lossless queues on the native kernel: stock qdiscs, and eBPF that does
the switch's book-keeping (`emulator/switches/memory.py`).

At the egress a token bucket (tbf) with, as its child, a FIFO (shared), one FIFO per ingress port
served by deficit round robin (voq), or a plug wherever the neighbour may pause the port (lossless).
A process mirrors the pauses that the counters ask for onto the plugs
(`emulator/switches/pause_controller.py`). The receiver's ingress is as in
`emulator/ports/stock_queues.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from emulator.linux.messages import formats
from emulator.linux.messages.formats import TC_H_ROOT
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import qdisc, round_robin_class, run_classifier
from emulator.ports.arrangement import (
    Impairment,
    PortContext,
    QdiscStatistics,
    QueueCounters,
    UnsupportedPort,
    root_drops,
    tbf_options,
)
from emulator.ports.port_qdisc import Waiting
from emulator.ports.stock_queues import (
    QUEUE_HANDLE,
    SHAPER_CLASS,
    SHAPER_HANDLE,
    delay_line,
    impair_port,
    marks_of,
    stock_queue,
)
from emulator.ports.token_depth import spare_depth_bytes, token_depth_bytes
from emulator.switches.memory import (
    BY_CLASS,
    BY_INGRESS,
    CLASSES,
    COUNTED,
    NEVER,
    PAUSES,
    PortRules,
    SwitchMemory,
    Word,
    port_number,
)
from emulator.switches.pause_controller import (
    PauseController,
    Plug,
    allowed_reaction_ns,
    plug_request,
    travel_ns,
)
from topologies.fabrics.fabric import Fabric, Link, Port, headroom_bytes
from topologies.spec.queue_section import Dctcp, DropTail, Lossless, QueueSpec, Shared, Voq

SWITCH_KINDS = (Shared, Voq, Lossless)
"""Queues that need to know of the other ports of their switch."""

_FIRST_CLASS_QUEUE = 0x30
_UNLIMITED = 2**32 - 1
"""The limit of a queue whose packets have been admitted by the switch's memory."""
REACTION_NS = 1_000_000
"""The least time of the pause controller when the scale is chosen for it: as late as the
verdict lets timers be."""


def needs_switch_memory(fabric: Fabric) -> bool:
    """Whether any port of a fabric has such a queue."""
    return any(
        isinstance(port.queue, SWITCH_KINDS) for link in fabric.links for port in (link.a, link.b)
    )


class SwitchArrangement:
    """Stock qdiscs with the book-keeping of a switch. Its counters live as long as it does."""

    name = "stock-switch"
    needs_delay_device = True
    delays_at_sender = False
    needs_fillers = False
    cuts_links = False

    def __init__(self, fabric: Fabric, lateness_ns: int = 0) -> None:
        self._fabric = fabric
        self.lateness_ns = lateness_ns

    @cached_property
    def memory(self) -> SwitchMemory:
        """The counters. Raises OSError when the kernel refuses eBPF."""
        return SwitchMemory(self._fabric, QUEUE_HANDLE, has_lossy_classes(self._fabric))

    # -- making ports ------------------------------------------------------------------------------

    def requests(self, context: PortContext) -> Sequence[Request]:
        """The port's shaper, queue, delay line and classifiers."""
        link, port, index = context.link, context.port, context.ifindex
        number, name = port_number(link, port), port.interface
        queue = self._queue(context)
        headroom = self._reserved_bytes(port.node)
        for priority in self.memory.classes:
            rules = port_rules(port, link, priority, headroom)
            if self._by_class(port, link):
                rules = replace(rules, flags=rules.flags | BY_CLASS)
            self.memory.rule(number, priority, port.node, rules)
        shaper = self._shaper(link, port)
        made = [qdisc(index, "tbf", TC_H_ROOT, SHAPER_HANDLE, shaper, name), *queue]
        delay, hooks, redirect = delay_line(context)
        arrived = run_classifier(index, self.memory.arrived, number, arriving=True, name=name)
        made += [delay, hooks, arrived, redirect]
        if rules.flags:
            queued = self.memory.queued
            made.append(run_classifier(index, queued, number, arriving=False, name=name))
        return made

    def _queue(self, context: PortContext) -> list[Request]:
        """The qdisc that the shaper serves."""
        link, port, index = context.link, context.port, context.ifindex
        name, frame = port.interface, link.frame_bytes
        held = can_be_paused(port, link)
        match port.queue:
            case Lossless() | Shared():
                limit = _UNLIMITED
            case DropTail() if held:
                limit = port.queue.buffer_bytes
            case _ if held:
                raise _cannot_be_paused(port)
            case Voq():
                classes = [qdisc(index, "drr", SHAPER_CLASS, QUEUE_HANDLE, b"", name)]
                for number in (SwitchMemory.OWN_TRAFFIC, *self._numbers(port.node)):
                    class_id = QUEUE_HANDLE | number
                    classes.append(round_robin_class(index, QUEUE_HANDLE, class_id, frame, name))
                    kind, options = _ingress_queue(port.queue, link, name)
                    classes.append(qdisc(index, kind, class_id, 0, options, name))
                return classes
            case _:
                kind, options = stock_queue(port.queue, link, name)
                return [qdisc(index, kind, SHAPER_CLASS, QUEUE_HANDLE, options, name)]
        if not self._by_class(port, link):
            return _fifo(index, SHAPER_CLASS, QUEUE_HANDLE, limit, held, name)
        # The band of each priority: the higher class goes first.
        bands = [CLASSES - 1 - priority for priority in range(CLASSES)]
        order = formats.PRIO.fill(CLASSES, bytes([*bands, *([CLASSES - 1] * CLASSES)]))
        made = [qdisc(index, "prio", SHAPER_CLASS, QUEUE_HANDLE, order, name)]
        lossy = lossy_classes(link.other(port.node).queue)
        for priority in range(CLASSES):
            parent, handle = class_queue(priority)
            pausable = held and priority not in lossy
            made += _fifo(index, parent, handle, limit, pausable, name)
        return made

    def _by_class(self, port: Port, link: Link) -> bool:
        """Whether a port has a queue for every class."""
        return len(self.memory.classes) > 1 and (
            can_be_paused(port, link) or isinstance(port.queue, Lossless)
        )

    def _reserved_bytes(self, node: str) -> int:
        """The headroom of all lossless ports of a switch."""
        total = 0
        for link in self._fabric.links_of[node]:
            queue = link.port(node).queue
            if isinstance(queue, Lossless):
                total += headroom_of(queue, link)
        return total

    def _numbers(self, node: str) -> list[int]:
        return [port_number(link, link.port(node)) for link in self._fabric.links_of[node]]

    def _shaper(self, link: Link, port: Port) -> bytes:
        return tbf_options(link, port.queue.buffer_bytes, self._depth_bytes(link, port))

    def _depth_bytes(self, link: Link, port: Port) -> int:
        """The depth of the port's token bucket beyond a frame."""
        own = token_depth_bytes(link, port.queue, self.lateness_ns)
        downstream = link.other(port.node).queue
        if not isinstance(downstream, Lossless):
            return own
        spare = headroom_of(downstream, link) - headroom_bytes(link)
        return min(own, spare_depth_bytes(link, self.lateness_ns, spare))

    def impair(self, context: PortContext, impairment: Impairment) -> Sequence[Request]:
        """As the stock arrangement's."""
        return impair_port(context, impairment, self._shaper(impairment.link, context.port))

    # -- running -----------------------------------------------------------------------------------

    def pause_controller(
        self,
        contexts: Mapping[str, Sequence[PortContext]],
        netns_path: Callable[[str], Path],
    ) -> PauseController | None:
        """The controller of the plugs; None when no port is lossless."""
        plugs = self.plugs(contexts, netns_path)
        return PauseController(self.memory, plugs) if plugs else None

    def plugs(
        self,
        contexts: Mapping[str, Sequence[PortContext]],
        netns_path: Callable[[str], Path],
    ) -> tuple[Plug, ...]:
        """The plugs that lossless ports close, each at the other end of the port's link."""
        found = []
        for node_contexts in contexts.values():
            for context in node_contexts:
                link, port = context.link, context.port
                if not isinstance(port.queue, Lossless):
                    continue
                upstream = link.other(port.node)
                far = next(c for c in contexts[upstream.node] if c.port == upstream)
                by_class = has_lossy_classes(self._fabric)
                for priority in range(CLASSES if by_class else 1):
                    if priority in port.queue.lossy_priorities:
                        continue
                    parent, handle = SHAPER_CLASS, QUEUE_HANDLE
                    headroom = headroom_of(port.queue, link)
                    # The bucket's rest comes after the pause as well.
                    left = headroom - self._depth_bytes(link, upstream)
                    if by_class:
                        parent, handle = class_queue(priority)
                    found.append(
                        Plug(
                            ingress=port_number(link, port),
                            egress=port_number(link, upstream),
                            priority=priority,
                            port=port.interface,
                            netns=str(netns_path(upstream.node)),
                            ifindex=far.ifindex,
                            parent=parent,
                            handle=handle,
                            travel_ns=travel_ns(link),
                            allowed_ns=allowed_reaction_ns(link, left),
                            suffices=headroom >= headroom_bytes(link),
                        )
                    )
        return tuple(found)

    def waiting(self, contexts: Mapping[str, Sequence[PortContext]]) -> dict[str, list[Waiting]]:
        """Node -> what waits at its ports, by the port that it came in by."""
        by_number = {
            port_number(context.link, context.port): context
            for node_contexts in contexts.values()
            for context in node_contexts
        }
        found: dict[str, list[Waiting]] = {}
        for egress, ingress, priority, size in self.memory.waiting():
            out = by_number[egress]
            paused = bool(self.memory.read(egress, Word.CLASS_PAUSED, priority))
            found.setdefault(out.port.node, []).append(
                Waiting(out.ifindex, by_number[ingress].ifindex, priority, size, paused)
            )
        return found

    def counters(self, context: PortContext, qdiscs: Sequence[QdiscStatistics]) -> QueueCounters:
        """Refusals of the switch's memory, drops and marks of the qdiscs, and pauses."""
        number = port_number(context.link, context.port)

        def read(word: Word) -> int:
            return self.memory.read(number, word)

        reasons = {
            "queue": root_drops(qdiscs, "tbf"),
            "buffer": self.memory.total(number, Word.DROPS_BUFFER),
            "headroom": self.memory.total(number, Word.DROPS_HEADROOM),
        }
        counted, by_class = read(Word.FLAGS) & COUNTED, len(self.memory.classes) > 1
        since = read(Word.PAUSED_SINCE) if read(Word.PAUSED) else 0
        return QueueCounters(
            drops=sum(reasons.values()),
            drops_by_reason={reason: count for reason, count in reasons.items() if count},
            ecn_marks=self.memory.total(number, Word.MARKS) + sum(marks_of(q) for q in qdiscs),
            pauses=read(Word.PAUSES),
            paused_ns=read(Word.PAUSED_NS) + (time.monotonic_ns() - since if since else 0),
            # By class there is no moment at which all of them were longest.
            max_backlog_bytes=read(Word.BACKLOG_MAX) if counted and not by_class else None,
        )


def _ingress_queue(queue: Voq, link: Link, interface: str) -> tuple[str, bytes]:
    """The qdisc for the packets of one ingress port: a FIFO, or one that marks by a step."""
    if queue.k_bytes is None:
        return stock_queue(DropTail(buffer=queue.buffer_bytes), link, interface)
    marking = Dctcp(kind="dctcp", k=queue.k_bytes, buffer=queue.buffer_bytes)
    return stock_queue(marking, link, interface)


def _fifo(
    ifindex: int, parent: int, handle: int, limit: int, pausable: bool, name: str
) -> list[Request]:
    """A FIFO, or a plug that is open: it starts closed."""
    limit = min(limit, _UNLIMITED)
    if not pausable:
        return [qdisc(ifindex, "bfifo", parent, handle, formats.BFIFO.fill(limit), name)]
    return [
        qdisc(ifindex, "plug", parent, handle, formats.PLUG.fill(0, limit), name),
        plug_request(ifindex, parent, handle, False, name),
    ]


def class_queue(priority: int) -> tuple[int, int]:
    """Parent and handle of the queue of a class, where a port has one for each."""
    return QUEUE_HANDLE | (CLASSES - priority), (_FIRST_CLASS_QUEUE + priority) << 16


def lossy_classes(queue: QueueSpec) -> frozenset[int]:
    """The classes that a lossless neighbour does not pause."""
    return frozenset(queue.lossy_priorities if isinstance(queue, Lossless) else ())


def has_lossy_classes(fabric: Fabric) -> bool:
    """Whether any lossless port has classes that may be lost."""
    return any(lossy_classes(port.queue) for link in fabric.links for port in (link.a, link.b))


def can_be_paused(port: Port, link: Link) -> bool:
    """Whether the neighbour at the other end may pause this port."""
    return isinstance(link.other(port.node).queue, Lossless)


def _cannot_be_paused(port: Port) -> UnsupportedPort:
    return UnsupportedPort(
        f"{port.interface}: a {port.queue.kind} queue cannot be paused by its lossless neighbour "
        "natively, only droptail, shared and lossless ones can (--kernel virtual)"
    )


def pause_scale(fabric: Fabric) -> float:
    """By how much a fabric must be slowed down at least for pauses to be in time; 1 without
    lossless ports. All that a pause may take is multiplied by the factor."""
    allowed = [
        allowed_reaction_ns(link, headroom_of(port.queue, link))
        for link in fabric.links
        for port in (link.a, link.b)
        if isinstance(port.queue, Lossless)
    ]
    return max(1.0, REACTION_NS / min(allowed)) if allowed else 1.0


def headroom_of(queue: Lossless, link: Link) -> int:
    """The headroom that the spec gives, or that the link needs; bytes."""
    return headroom_bytes(link) if queue.headroom_bytes is None else queue.headroom_bytes


def port_rules(port: Port, link: Link, priority: int = 0, reserved_bytes: int = 0) -> PortRules:
    """The limits of a class at a port of a switch whose lossless ports have so much headroom
    together, of which lossy classes must not take any."""
    queue = port.queue
    match queue:
        case Shared():
            return PortRules(
                flags=COUNTED,
                buffer_bytes=queue.buffer_bytes,
                alpha_q16=max(1, round(queue.alpha * 2**16)),
                k_bytes=NEVER if queue.k_bytes is None else queue.k_bytes,
            )
        case Voq():
            return PortRules(flags=BY_INGRESS)
        case Lossless():
            k_bytes = NEVER if queue.k_bytes is None else queue.k_bytes
            if priority in queue.lossy_priorities:
                room = max(0, queue.buffer_bytes - reserved_bytes)
                return PortRules(flags=COUNTED, buffer_bytes=room, k_bytes=k_bytes)
            return PortRules(
                flags=COUNTED | PAUSES,
                buffer_bytes=queue.buffer_bytes,
                k_bytes=k_bytes,
                xoff_bytes=queue.xoff_bytes,
                xon_bytes=queue.xon_bytes,
                limit_bytes=queue.xoff_bytes + headroom_of(queue, link),
            )
        case _:
            return PortRules()


def needed_qdiscs(fabric: Fabric) -> frozenset[str]:
    """The stock qdiscs that such a fabric is made of. Raises UnsupportedPort for a port that cannot
    be made."""
    kinds = {"tbf", "netem", "clsact"}
    for link in fabric.links:
        for port in (link.a, link.b):
            if isinstance(port.queue, Lossless) and port.queue.kmin_bytes is not None:
                raise UnsupportedPort(
                    f"{port.interface}: a lossless queue marks by a step natively (k), not by a "
                    "line (kmin, kmax; --kernel virtual)"
                )
            if can_be_paused(port, link):
                if not isinstance(port.queue, DropTail | Shared | Lossless):
                    raise _cannot_be_paused(port)
                kinds.add("plug")
                if has_lossy_classes(fabric):
                    kinds |= {"prio", "bfifo"}
            elif isinstance(port.queue, Voq):
                kinds |= {"drr", _ingress_queue(port.queue, link, port.interface)[0]}
            elif not isinstance(port.queue, SWITCH_KINDS):
                kinds.add(stock_queue(port.queue, link, port.interface)[0])
            else:
                kinds.add("bfifo")
    return frozenset(kinds)
