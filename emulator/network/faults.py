"""Faults during a run: links that go down, lose or damage packets, become slower or longer.

Both directions of a link suffer. When links go down or come back, routing reconverges at once, or
after the fault's `reroute`: next hops that lead nowhere are withdrawn everywhere.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Literal

from emulator.linux.real_time import use_real_time_priority
from emulator.network.network import Network
from emulator.ports.arrangement import Impairment, UnsupportedPort
from topologies.fabrics.fabric import Link
from topologies.routing.routes import compute_routes
from topologies.spec.run_sections import (
    Corruption,
    DelayChange,
    FaultSpec,
    Flap,
    Freeze,
    Kill,
    LinkDown,
    LinkFault,
    LinkUp,
    Loss,
    MemoryLimit,
    NodeDies,
    Partition,
    ProcessFault,
    RankFault,
    RateChange,
    TimedFault,
    WrongClock,
    links_of_fault,
)
from topologies.units import format_rate, format_size, format_time


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """A fault that began or ended, at `at_ns` of the monotonic clock. `link` is None for what
    happens to a node, and `job` for what happens to no job alone."""

    at_ns: int
    link: int | None
    what: str
    began: bool
    job: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return asdict(self)


_OnLinks = LinkFault | Partition | Kill
_Downs = LinkDown | Flap | Partition | Kill

ProcessOrder = Literal["kill", "restart", "freeze", "thaw", "limit"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A rank of a program is about to begin an `iteration`, or to post an `operation`; the other
    is None. The only job has no name."""

    job: str
    rank: int
    iteration: int | None = None
    operation: int | None = None


# A rank goes on so long after a fault of its moment has begun: what is to be killed or stopped is.
_SETTLED_NS = 1_000
_REALLY_SETTLED_NS = 5_000_000


@dataclass(order=True)
class _ScheduledAction:
    at_ns: int
    number: int
    action: Callable[[], None] = field(compare=False)


class FaultInjector:
    """Applies the faults of a spec to a live network.

    A context manager around the run; `on_iteration` tells it that an iteration begins, and the
    first one starts the clock of faults with a time. Works from a thread of its own, so that times
    hold while the ranks are watched: exact on the virtual kernel, to about a millisecond natively.
    With `real_time_priority` the thread goes before what else the machine does. `events` lists
    what was done, `worst_lateness_ns` says how late. Leaving the block raises what applying a
    fault raised.
    """

    def __init__(
        self,
        network: Network,
        faults: Sequence[FaultSpec],
        real_time_priority: bool = False,
        kill_node: Callable[[str], None] | None = None,
        order: Callable[[ProcessOrder, ProcessFault], None] | None = None,
    ) -> None:
        self._network = network
        self._real_time_priority = real_time_priority
        self._kill_node, self._order = kill_node, order
        self._deaths = [fault for fault in faults if isinstance(fault, NodeDies)]
        self._of_processes = [fault for fault in faults if isinstance(fault, ProcessFault)]
        self._of_clocks = [fault for fault in faults if isinstance(fault, WrongClock)]
        self._wrong: dict[str, list[tuple[WrongClock, int]]] = defaultdict(list)
        self._faults: list[tuple[_OnLinks, tuple[Link, ...]]] = [
            (fault, links_of_fault(network.fabric, fault))
            for fault in faults
            if not isinstance(fault, NodeDies | RankFault | WrongClock)
        ]
        self._active: dict[int, list[_OnLinks]] = {}
        self._down: set[int] = set()
        self._withdrawn: set[int] = set()  # the links that routes do without
        self._timetable: list[_ScheduledAction] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopping = False
        self._told: list[threading.Event] = []
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._all = tuple(faults)
        self._begun: set[int] = set()
        self.events: list[FaultEvent] = []
        self.worst_lateness_ns = 0
        """The worst lateness of a fault's beginning or end."""
        self._check_supported()

    def _check_supported(self) -> None:
        """Raises UnsupportedPort, before the run, for a fault that this kernel cannot make."""
        arrangement = self._network.options.arrangement
        for fault, links in self._faults:
            if isinstance(fault, _Downs | LinkUp):
                if _reroute_ns(fault) and not arrangement.cuts_links:
                    raise UnsupportedPort(
                        f"fault {fault.kind}: found reroute {format_time(_reroute_ns(fault))}, "
                        "expected 0 on this kernel: routes leave a link whose carrier is gone at "
                        "once"
                    )
                continue
            link = links[0]
            context = next(
                c for c in self._network.contexts(link.a.node) if c.link.index == link.index
            )
            try:
                arrangement.impair(context, _impairment(self._network, link.index, [fault], False))
            except UnsupportedPort as refusal:
                raise UnsupportedPort(f"fault {fault.kind} on {fault.link}: {refusal}") from None

    def __enter__(self) -> FaultInjector:
        for fault in self._of_clocks:
            if fault.at_ns == 0:  # before a program can look; it drifts from its time on
                self._network.set_clock(fault.host, fault.offset_ns, 0, 0)
        self._thread = threading.Thread(target=self._work, name="faults", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def on_iteration(self, iteration: int, began_ns: int | None = None) -> None:
        """An iteration begins now, or began at `began_ns` of the monotonic clock."""
        now_ns = time.monotonic_ns() if began_ns is None else began_ns
        self._begin(lambda fault: _start_ns(fault, iteration, now_ns))

    def on_moment(self, moment: Moment) -> None:
        """A rank has come to a moment that a fault names. Returns when the fault has begun."""
        settled = threading.Event()
        with self._changed:
            if self._stopping or self._failure is not None:
                return
            self._told.append(settled)
        now_ns = time.monotonic_ns()
        self._begin(lambda fault: now_ns if _is_of(fault, moment) else None)
        settles_ns = _REALLY_SETTLED_NS if self._real_time_priority else _SETTLED_NS
        self._plan_action(now_ns + settles_ns, settled.set)
        settled.wait()

    def _begin(self, start: Callable[[TimedFault], int | None]) -> None:
        """Plan all faults for which `start` has a time of the monotonic clock."""
        for fault, links in self._faults:
            start_ns = start(fault)
            if start_ns is None:
                continue
            if isinstance(fault, Flap):
                ends_ns = None if fault.duration_ns is None else start_ns + fault.duration_ns
                self._flap(fault, links, start_ns, ends_ns)
                continue
            lasts_ns = fault.restart_ns if isinstance(fault, Kill) else fault.duration_ns
            for link in links:
                self._plan(start_ns, fault, link.index, begins=True)
                if lasts_ns is not None:
                    self._plan(start_ns + lasts_ns, fault, link.index, begins=False)
        for victim in self._of_processes:
            start_ns = start(victim)
            if start_ns is not None:
                self._plan_victim(victim, start_ns)
        for clock in self._of_clocks:
            start_ns = start(clock)
            if start_ns is not None:
                self._plan_action(start_ns, partial(self._set_clock, clock, start_ns, True))
                if clock.duration_ns is not None:
                    ends = partial(self._set_clock, clock, start_ns, False)
                    self._plan_action(start_ns + clock.duration_ns, ends)
        for death in self._deaths:
            start_ns = start(death)
            if start_ns is not None:
                self._plan_action(start_ns, partial(self._kill, death))

    @property
    def missed(self) -> list[str]:
        """The faults of the spec that have not begun, in words."""
        return [
            f"{_describe(fault)} at {fault.begins}"
            for fault in self._all
            if id(fault) not in self._begun
        ]

    # -- in the thread -----------------------------------------------------------------------------

    def _plan(self, at_ns: int, fault: _OnLinks, link: int, begins: bool) -> None:
        self._plan_action(at_ns, partial(self._apply, fault, link, begins))

    def _flap(self, fault: Flap, links: Sequence[Link], at_ns: int, ends_ns: int | None) -> None:
        """Plan one time that links go down and come back, and to plan the next one then."""
        if ends_ns is not None and at_ns >= ends_ns:
            return
        for link in links:
            self._plan(at_ns, fault, link.index, begins=True)
            self._plan(at_ns + fault.down_ns, fault, link.index, begins=False)
        again = partial(self._flap, fault, links, at_ns + fault.every_ns, ends_ns)
        self._plan_action(at_ns + fault.down_ns, again)

    def _plan_victim(self, fault: ProcessFault, at_ns: int) -> None:
        """Plan what happens to processes; links of the same fault change before that."""
        if isinstance(fault, Kill):
            if fault.switch is not None:
                return
            self._plan_action(at_ns, partial(self._tell, "kill", fault))
            if fault.restart_ns is not None:
                self._plan_action(at_ns + fault.restart_ns, partial(self._tell, "restart", fault))
            return
        if isinstance(fault, MemoryLimit):
            self._plan_action(at_ns, partial(self._tell, "limit", fault))
            return
        self._plan_action(at_ns, partial(self._tell, "freeze", fault))
        self._plan_action(at_ns + fault.duration_ns, partial(self._tell, "thaw", fault))
        if fault.every_ns is not None:
            again = partial(self._plan_victim, fault, at_ns + fault.every_ns)
            self._plan_action(at_ns + fault.duration_ns, again)

    def _tell(self, order: ProcessOrder, fault: ProcessFault) -> None:
        self._begun.add(id(fault))
        if self._order is not None:
            self._order(order, fault)
        began = order in ("kill", "freeze", "limit")
        now_ns = time.monotonic_ns()
        self.events.append(FaultEvent(now_ns, None, _describe(fault), began, fault.job))

    def _set_clock(self, fault: WrongClock, since_ns: int, begins: bool) -> None:
        """The last of a host's faults that have begun counts."""
        self._begun.add(id(fault))
        wrong = self._wrong[fault.host]
        if begins:
            wrong.append((fault, since_ns))
        else:
            wrong.remove((fault, since_ns))
        if wrong:
            last, since_ns = wrong[-1]
            self._network.set_clock(fault.host, last.offset_ns, last.drift_ns_per_s, since_ns)
        else:
            self._network.set_clock(fault.host, 0, 0, 0)
        now_ns = time.monotonic_ns()
        self.events.append(FaultEvent(now_ns, None, _describe(fault), begins))

    def _kill(self, death: NodeDies) -> None:
        self._begun.add(id(death))
        if self._kill_node is not None:
            self._kill_node(death.switch)
        self.events.append(FaultEvent(time.monotonic_ns(), None, _describe(death), True))

    def _plan_action(self, at_ns: int, act: Callable[[], None]) -> None:
        def action() -> None:
            act()
            self.worst_lateness_ns = max(self.worst_lateness_ns, time.monotonic_ns() - at_ns)

        with self._changed:
            heapq.heappush(self._timetable, _ScheduledAction(at_ns, next(self._numbers), action))
            self._changed.notify()

    def _work(self) -> None:
        if self._real_time_priority:
            use_real_time_priority()
        while True:
            with self._changed:
                while not self._stopping:
                    if not self._timetable:
                        self._changed.wait()
                        continue
                    left_ns = self._timetable[0].at_ns - time.monotonic_ns()
                    if left_ns <= 0:
                        break
                    self._changed.wait(left_ns / 1e9)
                if self._stopping:
                    self._let_go()
                    return
                due = heapq.heappop(self._timetable)
            try:
                due.action()
            except BaseException as problem:
                with self._changed:
                    self._failure = problem
                    self._let_go()
                return

    def _let_go(self) -> None:
        """Nobody waits for a fault any more."""
        for settled in self._told:
            settled.set()

    def _apply(self, fault: _OnLinks, link: int, begins: bool) -> None:
        active = self._active.setdefault(link, [])
        if begins:
            self._begun.add(id(fault))
            active.append(fault)
        else:
            active.remove(fault)
        down = _is_down(active)
        moved = down != (link in self._down)
        (self._down.add if down else self._down.discard)(link)
        cuts = self._network.options.arrangement.cuts_links
        if moved and not cuts:
            self._network.set_link(link, up=not down)
        if cuts or not isinstance(fault, _Downs | LinkUp):
            self._network.impair(_impairment(self._network, link, active, down and cuts))
        if moved and _reroute_ns(fault):
            learn = partial(self._reroute, link)
            self._plan_action(time.monotonic_ns() + _reroute_ns(fault), learn)
        elif moved:
            self._reroute(link)
        self.events.append(FaultEvent(time.monotonic_ns(), link, _describe(fault), begins))

    def _reroute(self, link: int) -> None:
        """Routes learn whether a link is down."""
        if (link in self._down) == (link in self._withdrawn):
            return
        (self._withdrawn.add if link in self._down else self._withdrawn.discard)(link)
        self._network.set_routes(compute_routes(self._network.fabric, self._withdrawn))


def _reroute_ns(fault: FaultSpec) -> int:
    """How long routes take to follow a link of a fault."""
    return fault.reroute_ns if isinstance(fault, LinkDown | Flap) else 0


def _is_of(fault: TimedFault, moment: Moment) -> bool:
    """Whether a fault begins at a moment of a rank."""
    job = fault.job if isinstance(fault, ProcessFault) else None
    if fault.counting_rank != moment.rank or (moment.job and job != moment.job):
        return False
    return fault.at_ns is None and (fault.iteration, fault.operation) == (
        moment.iteration,
        moment.operation,
    )


def _start_ns(fault: TimedFault, iteration: int, now_ns: int) -> int | None:
    """When a fault begins that an iteration, which begins now, decides; None for others."""
    if fault.iteration == iteration:
        return now_ns
    return now_ns + fault.at_ns if iteration == 0 and fault.at_ns is not None else None


def _is_down(active: Sequence[_OnLinks]) -> bool:
    """The last of a link's faults that takes it down or up decides."""
    for fault in reversed(active):
        if isinstance(fault, _Downs | LinkUp):
            return not isinstance(fault, LinkUp)
    return False


def _impairment(network: Network, link: int, active: Sequence[_OnLinks], down: bool) -> Impairment:
    """All faults that are active on a link, together: the last rate and the last delay count."""
    result = Impairment(network.link(link), down=down)
    for fault in active:
        match fault:
            case Loss():
                result = replace(result, loss=1 - (1 - result.loss) * (1 - fault.value))
            case Corruption():
                kept = (1 - result.corruption) * (1 - fault.value)
                result = replace(result, corruption=1 - kept)
            case RateChange():
                result = replace(result, link=replace(result.link, rate_bps=fault.value))
            case DelayChange():
                result = replace(result, link=replace(result.link, delay_ns=fault.value))
            case LinkUp() | LinkDown() | Flap() | Partition() | Kill():
                pass
    return result


def _describe(fault: FaultSpec) -> str:
    match fault:
        case NodeDies():
            return f"the aggregation node of {fault.switch} dies"
        case Kill():
            again = "" if fault.restart_ns is None else f", restart {format_time(fault.restart_ns)}"
            return f"kill {fault.victim}{again}"
        case Freeze():
            return f"freeze {fault.victim} for {format_time(fault.duration_ns)}"
        case MemoryLimit():
            return f"memory-limit {format_size(fault.value)} of {fault.victim}"
        case WrongClock():
            return f"clock of {fault.host} {fault.in_words}"
        case Partition():
            return f"partition {', '.join(fault.nodes)}"
        case Loss() | Corruption():
            return f"{fault.kind} {fault.value:g} on {fault.link}"
        case RateChange():
            return f"rate {format_rate(fault.value)} on {fault.link}"
        case DelayChange():
            return f"delay {format_time(fault.value)} on {fault.link}"
        case _:
            return f"{fault.kind} {fault.link}"
