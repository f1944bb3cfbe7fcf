"""The records of a profiler on a device, as a graph that keeps its order without the profiler's
network.

A profile says when each kernel was launched, when it began and when it ended, and on which stream;
it does not say what a kernel waited for. The rules here give dependencies that never contradict the
record:

- Work on one stream is in order.
- Computation is one line: what ran on several streams at once is one stretch of it. A stretch takes
  from the end of the one before, or of the communication that it waited for, to its own end: time
  in which the device was idle for its host's sake is part of it.
- Communication waits for the computation that was launched before it and was over when it began,
  and for communication of other streams that the host had waited for meanwhile.
- Computation waits for communication that was launched before it, over when it began, and waited
  for by the host in between. Where a profile has no waits of the host (it was taken without runtime
  events), communication that ended while the device idled before the computation counts.
- Communication that began later than all that it waited for was launched late: the time between is
  computation of the host.

A replay on a network of the same speed takes what the profile took; on another one, computation
keeps its times and communication has its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from collectives.call import CollectiveCall

_LATE_NS = 1000
"""The lateness of a launch that needs no node of its own: profilers' clocks differ by as much."""


HOST_WAITS = ("Synchronize", "WaitEvent")
"""Words in the names of calls of CUDA by which a host waits for its device."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Work of the device: launched by the host, begun and over, in nanoseconds of one clock."""

    name: str
    stream: int
    launch_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message between two ranks of the world; on the rank that `sends`, or on the other one."""

    sends: bool
    peer: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Communication:
    """A kernel that communicates: a collective, or messages that go together."""

    kernel: Kernel
    parts: tuple[CollectiveCall | Message, ...]


@dataclass(slots=True)
class RecordedDevice:
    """One rank's profile. `waits_ns` are the times at which its host made a stream, or itself, wait
    for others."""

    compute: list[Kernel] = field(default_factory=list)
    communication: list[Communication] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)

    def graph(self) -> Graph:
        """The rank's graph; times count from the first kernel of the device."""
        return _Ordering(self).graph()


@dataclass(slots=True)
class _Stretch:
    """Computation without a gap of meaning: kernels `first` to `last`."""

    first: int
    last: int
    waits_for: set[int]


class _Ordering:
    def __init__(self, device: RecordedDevice) -> None:
        self._compute = sorted(device.compute, key=lambda kernel: (kernel.start_ns, kernel.end_ns))
        self._comm = sorted(
            device.communication, key=lambda c: (c.kernel.start_ns, c.kernel.end_ns)
        )
        self._waits = sorted(device.waits_ns)
        # The end of computation up to each kernel, as kernels of several streams overlap.
        self._over_ns: list[int] = []
        for kernel in self._compute:
            before = self._over_ns[-1] if self._over_ns else kernel.end_ns
            self._over_ns.append(max(before, kernel.end_ns))

    def graph(self) -> Graph:
        if not self._compute and not self._comm:
            return ()
        origin = min(kernel.start_ns for kernel in self._kernels())
        behind = [self._computation_before(one.kernel) for one in self._comm]
        stretches = self._stretches({kernel for kernel in behind if kernel is not None})
        stretch_of = {kernel: at for at, s in enumerate(stretches) for kernel in (s.last,)}
        nodes: list[GraphNode] = []
        ids: dict[tuple[str, int], tuple[int, ...]] = {}
        over_ns: dict[int, int] = {}

        def add(node: GraphNode, end_ns: int) -> int:
            made = replace(node, id=len(nodes))
            nodes.append(made)
            over_ns[made.id] = end_ns
            return made.id

        # A stretch and a communication are made in the order in which they began; the stretch that
        # a communication waits for began before it, and the other way round.
        order = [(self._compute[s.first].start_ns, 0, at) for at, s in enumerate(stretches)]
        order += [(one.kernel.start_ns, 1, at) for at, one in enumerate(self._comm)]
        last_on: dict[int, int] = {}
        for _, what, at in sorted(order):
            if what == 0:
                stretch = stretches[at]
                after = ids.get(("compute", at - 1), ())
                for waited in sorted(stretch.waits_for):
                    after += ids[("comm", waited)]
                end_ns = self._over_ns[stretch.last]
                begins_ns = max((over_ns[id] for id in after), default=origin)
                node = ComputeNode(
                    id=0,
                    name=self._compute[stretch.first].name,
                    after=after,
                    start_ns=begins_ns - origin,
                    duration_ns=max(end_ns - begins_ns, 0),
                )
                ids["compute", at] = (add(node, max(end_ns, begins_ns)),)
                continue
            one = self._comm[at]
            after = self._before(at, last_on, ids)
            kernel = behind[at]
            if kernel is not None:
                after = (*ids["compute", stretch_of[kernel]], *after)
            begins_ns = max((over_ns[id] for id in after), default=origin)
            if one.kernel.start_ns - begins_ns > _LATE_NS:
                late = ComputeNode(
                    id=0,
                    name="launch",
                    after=after,
                    start_ns=begins_ns - origin,
                    duration_ns=one.kernel.start_ns - begins_ns,
                    on_host=True,
                )
                after = (add(late, one.kernel.start_ns),)
            ids["comm", at] = tuple(
                add(self._node(one, part, after, origin), one.kernel.end_ns) for part in one.parts
            )
            last_on[one.kernel.stream] = at
        return tuple(nodes)

    def _kernels(self) -> Iterator[Kernel]:
        yield from self._compute
        for one in self._comm:
            yield one.kernel

    def _computation_before(self, kernel: Kernel) -> int | None:
        """The last computing kernel, with all before it, of those that were launched before this
        one and were over when it began."""
        found = bisect_right(self._over_ns, kernel.start_ns) - 1
        while found >= 0 and self._compute[found].launch_ns > kernel.launch_ns:
            found -= 1
        return found if found >= 0 else None

    def _stretches(self, ends: set[int]) -> list[_Stretch]:
        """Computation, cut behind what communication waits for and before what waits for it."""
        found: list[_Stretch] = []
        known: set[int] = set()
        by_end = sorted(range(len(self._comm)), key=lambda at: self._comm[at].kernel.end_ns)
        ended = [self._comm[at].kernel.end_ns for at in by_end]
        seen = 0
        pending: set[int] = set()
        for number, kernel in enumerate(self._compute):
            over = bisect_right(ended, kernel.start_ns)
            pending.update(by_end[seen:over])
            seen = max(seen, over)
            waited = {at for at in pending if self._waited(at, number)} - known
            pending -= waited
            known |= waited
            if not found or waited or found[-1].last in ends:
                found.append(_Stretch(number, number, waited))
            else:
                found[-1].last = number
        return found

    def _waited(self, at: int, number: int) -> bool:
        """Whether a computation waited for communication that was over when it began."""
        kernel, comm = self._compute[number], self._comm[at].kernel
        if comm.launch_ns > kernel.launch_ns or comm.start_ns >= kernel.start_ns:
            return False
        if self._waits:
            return self._host_waited(comm.launch_ns, kernel.launch_ns)
        before_ns = self._over_ns[number - 1] if number else comm.start_ns
        return before_ns < comm.end_ns

    def _host_waited(self, after_ns: int, before_ns: int) -> bool:
        place = bisect_right(self._waits, after_ns)
        return place < bisect_left(self._waits, before_ns)

    def _before(
        self, at: int, last_on: dict[int, int], ids: dict[tuple[str, int], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """The communication that a communication waits for."""
        kernel = self._comm[at].kernel
        found: list[int] = []
        for stream, before in last_on.items():
            other = self._comm[before].kernel
            waited = other.launch_ns < kernel.launch_ns and self._host_waited(
                other.launch_ns, kernel.launch_ns
            )
            if stream == kernel.stream or (waited and other.end_ns <= kernel.start_ns):
                found += ids["comm", before]
        return tuple(found)

    def _node(
        self,
        one: Communication,
        part: CollectiveCall | Message,
        after: tuple[int, ...],
        origin: int,
    ) -> GraphNode:
        start_ns = one.kernel.start_ns - origin
        duration_ns = one.kernel.end_ns - one.kernel.start_ns
        if isinstance(part, CollectiveCall):
            return CollectiveNode(
                id=0,
                name=one.kernel.name,
                after=after,
                start_ns=start_ns,
                duration_ns=duration_ns,
                call=part,
            )
        return (SendNode if part.sends else ReceiveNode)(
            id=0,
            name=one.kernel.name,
            after=after,
            start_ns=start_ns,
            duration_ns=duration_ns,
            peer=part.peer,
            size_bytes=part.size_bytes,
        )
