"""Collectives that are in flight together, compiled for the engines: what all ranks do.

Each rank has a main thread that computes, posts collectives and waits for them. A collective's
chunks begin where the rank's slots let them (`rank_slots`): programs by the spec's order, with the
messages of its agreements; Gloo's own as its process group's threads get free, first in, first out.
Everything runs on one fabric, so that nothing has to be assumed about how collectives share it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from analysis.predict.engines.acts import (
    Act,
    Compute,
    Due,
    Meet,
    Pass,
    PostCall,
    Propose,
    Until,
    WaitForCall,
)
from analysis.predict.engines.member_programs import (
    Await,
    CompiledPrograms,
    Do,
    Operation,
    Pause,
    Programs,
    Sleep,
    Start,
    compile_steps,
)
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.mpi.exchanges import compile_exchange
from analysis.predict.engines.plan_programs import Gates, Marks, PlanCompiler, message_count
from analysis.predict.engines.ports.class_ports import priorities_of
from analysis.predict.engines.rank_slots import RankSlots
from analysis.predict.engines.trains import Cut
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError, Setting, Transport
from analysis.predict.queue_waits import QueueWaits
from analysis.predict.stream_queues import StreamQueues
from collectives.call import CollectiveCall
from collectives.gloo.schedule import Post as GlooPost
from collectives.gloo.schedule import gloo_schedule
from collectives.kinds import Kind
from collectives.mpi.exchange import Exchange
from collectives.plan import Chunk, CollectivePlan
from collectives.settings import agreement_of
from collectives.start_order import CollectiveOrder, StartOrder

MOST_MESSAGES = 300_000
"""Beyond this many, which take about 30 s, collectives are not followed message by message."""

GLOO_THREADS = 2
"""ProcessGroupGloo::Options::threads as torch creates the group (ProcessGroupGloo.hpp)."""

_POINT_TO_POINT = frozenset({Kind.SEND_RECV, Kind.INCAST, Kind.PERMUTATION})
"""Kinds that take no thread of the process group."""

ENDS_WHEN_AWAITED = _POINT_TO_POINT | {Kind.REDUCE_SCATTER}
"""Kinds whose end nobody is told of, so that it is where a rank waits for it: torch gives these no
future (`workloads.execution.operations`)."""


@dataclass(frozen=True, slots=True)
class GroupedCall:
    """A collective and the group that it belongs to: each group has slots of its own."""

    call: CollectiveCall
    group: str


def has_programs(calls: Iterable[GroupedCall]) -> bool:
    """Whether one of them runs as a program."""
    return any(grouped.call.plan is not None for grouped in calls)


def at_most(messages: int, calls: Iterable[GroupedCall], seed: int) -> bool:
    """Whether some calls have no more messages than this, told without keeping them."""
    left = messages
    for grouped in calls:
        if grouped.call.plan is not None:
            left -= message_count(grouped.call.plan)
        elif grouped.call.exchange is not None:
            left -= len(grouped.call.exchange.messages)
        else:
            for step in gloo_schedule(grouped.call, seed):
                left -= len(step.source) if isinstance(step, GlooPost) else 0
                if left < 0:
                    break
        if left < 0:
            return False
    return True


_Call = Callable[[Programs, float], None]


class JointPrograms:
    """Compiled from calls and from what each rank's main thread does. Ranks are those of the run.

    Each group has connections of its own: messages go from end to end, and `ends` has their ranks.

    After a run it has, by call and rank, when each was posted and complete, and by rank when the
    main thread ended and how long it waited. Times are in ns.
    """

    def __init__(
        self, calls: Sequence[GroupedCall], acts: Mapping[int, Sequence[Act]], seed: int
    ) -> None:
        self.compiled = CompiledPrograms([])
        self.owners: list[int] = []
        """The call of each message; what agrees on a call is its own as well."""
        self.posted_ns: list[dict[int, float]] = [{} for _ in calls]
        self.completed_ns: list[dict[int, float]] = [{} for _ in calls]
        self.ended_ns: dict[int, float] = {}
        self.waited_ns: dict[int, float] = defaultdict(float)
        self.passed_ns: dict[tuple[int, int], tuple[float, float]] = {}
        """(rank, number of a `Pass`) -> when it came by, and how long it had waited until then."""
        self.awaited_ns: list[dict[int, float]] = [{} for _ in calls]
        """By call and rank: when a wait for it was over, where the rank waited."""
        self.waits: QueueWaits | None = None
        """Is told of packet trains that pass ports, where somebody wants to know."""
        self._sizes: list[int] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._marks = Marks()
        self._calls = calls
        self._slots: dict[tuple[object, ...], RankSlots] = {}
        self._proposals: dict[int, int] = {}
        self._left: dict[tuple[object, ...], int] = {}
        self._streams = StreamQueues()
        self._asked: set[tuple[int, int]] = set()
        self._late_ns: dict[int, float] = defaultdict(float)
        self._meetings: dict[int, float] = {}
        for rank, doing in acts.items():
            self.compiled.programs.append(self._main(rank, doing))
            self.compiled.members.append(rank)
        for number, grouped in enumerate(calls):
            if grouped.call.plan is not None:
                self._add_plan(number, grouped.call.plan)
            elif grouped.call.exchange is not None:
                self._add_exchange(number, grouped.call, grouped.call.exchange)
            else:
                self._add_gloo(number, grouped.call, seed)

    @property
    def ends(self) -> Ints:
        """The rank of each end."""
        return np.array([rank for _, rank in self._ends], dtype=np.int64)

    def groups(self, setting: Setting) -> list[str | None]:
        """The group of each end whose connections are its own; None for those of all ranks.

        Where a run recorded ports, it has those of such groups by name; before a run they are
        groups that are narrower than the widest.
        """
        size = Counter(group for group, _ in self._ends)
        widest = max(size.values(), default=0)

        def has_own(group: str) -> bool:
            if setting.ports:
                return group in setting.group_ports
            return size[group] < widest

        return [group if has_own(group) else None for group, _ in self._ends]

    def priorities(self, setting: Setting, over_roce: bool) -> list[int]:
        """The class selector of what each end sends: of its group, else of its rank."""
        of_ranks = priorities_of(setting, self.ends, over_roce)
        own = setting.group_priorities
        return [own.get(group, of_ranks[end]) for end, (group, _) in enumerate(self._ends)]

    @property
    def size_bytes(self) -> Ints:
        """Of each message."""
        return np.array(self._sizes, dtype=np.int64)

    def over_roce(self, transport: Transport) -> bool:
        """Whether all messages go over RoCE; else they all go over TCP. Raises PredictorError for
        some of each."""
        found = {transport.carries(grouped.call) for grouped in self._calls}
        if len(found) > 1:
            raise PredictorError("collectives over RoCE and over TCP in flight together")
        return found == {True}

    @classmethod
    def of_plan(cls, call: CollectiveCall, plan: CollectivePlan) -> JointPrograms:
        """One collective that all its ranks post at once. Raises PredictorError for more messages
        than can be followed."""
        if message_count(plan) > MOST_MESSAGES:
            raise PredictorError(
                f"found {message_count(plan):,} messages, allowed {MOST_MESSAGES:,}"
            )
        acts = {rank: (PostCall(0),) for rank in call.ranks}
        return cls([GroupedCall(replace(call, plan=plan), "")], acts, seed=0)

    @property
    def first(self) -> CollectiveCall:
        """The call whose kind stands for all where only one can."""
        return self._calls[0].call

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """(source, destination) of the pairs of ends that exchange messages, each once."""
        found = sorted(set(zip(self.compiled.source, self.compiled.destination, strict=True)))
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def wire_bytes(self, costs: MessageCosts) -> list[float]:
        """Of each message, by its own collective's kind."""
        sizes, owners = self.size_bytes, np.array(self.owners, dtype=np.int64)
        found = np.zeros(len(sizes))
        for number in np.unique(owners):
            own = replace(costs, call=self._calls[number].call)
            found[owners == number] = own.wire_bytes(sizes[owners == number])
        wire: list[float] = found.tolist()
        return wire

    def cuts(self, costs: MessageCosts) -> list[Cut]:
        """How each message is cut into segments, by its own collective's kind."""
        by_call = [replace(costs, call=grouped.call) for grouped in self._calls]
        known: dict[tuple[int, int], Cut] = {}
        found = []
        for owner, size in zip(self.owners, self._sizes, strict=True):
            if (owner, size) not in known:
                (known[owner, size],) = by_call[owner].cuts(np.array([size], dtype=np.int64))
            found.append(known[owner, size])
        return found

    def durations_ns(self) -> list[float]:
        """Of each call, from its last rank's posting it to its last rank's completion. Raises
        PredictorError when ranks wait for each other."""
        for grouped, completed in zip(self._calls, self.completed_ns, strict=True):
            missing = set(grouped.call.ranks) - set(completed)
            if missing:
                raise PredictorError(f"{grouped.call.kind}: rank {min(missing)} waits for ever")
        return [
            max(completed.values()) - max(posted.values())
            for posted, completed in zip(self.posted_ns, self.completed_ns, strict=True)
        ]

    def measured_ns(self) -> list[float]:
        """Of each call, as a run measures it: as `durations_ns`, but what ends where a rank waits
        for it ends there (`ENDS_WHEN_AWAITED`)."""
        found = []
        for number, duration in enumerate(self.durations_ns()):
            call = self._calls[number].call
            if call.kind in ENDS_WHEN_AWAITED and call.plan is None:
                ends = self.completed_ns[number] | self.awaited_ns[number]
                duration = max(ends.values()) - max(self.posted_ns[number].values())
            found.append(duration)
        return found

    def _main(self, rank: int, acts: Sequence[Act]) -> list[Operation]:
        program: list[Operation] = []
        for act in acts:
            match act:
                case Compute(duration_ns):
                    program.append(Pause(duration_ns))
                case Due(at_ns):
                    program.append(Do(partial(self._set_late, rank, at_ns)))
                case Until(at_ns):
                    program.append(Sleep(partial(self._at_with_lateness, rank, at_ns)))
                case PostCall(call):
                    program.append(self._post(call, rank))
                case WaitForCall(call):
                    mark = self._marks.number("complete", call, rank)
                    program += [
                        self._count_wait(rank, -1),
                        Await([], [], [mark]),
                        self._waited(rank, call),
                    ]
                case Pass(number):
                    program.append(self._pass(rank, number))
                case Propose():
                    program.append(self._propose(act))
                case Meet(meeting):
                    program.append(Sleep(partial(self._meetings.__getitem__, meeting)))
        program.append(Do(lambda _, now: self.ended_ns.__setitem__(rank, now)))
        return program

    def _set_late(self, rank: int, at_ns: float, _: Programs, now: float) -> None:
        self._late_ns[rank] = max(0.0, now - at_ns)

    def _at_with_lateness(self, rank: int, at_ns: float) -> float:
        return at_ns + self._late_ns[rank]

    def _pass(self, rank: int, number: int) -> Do:
        def passed(_: Programs, now: float) -> None:
            self.passed_ns[rank, number] = now, self.waited_ns[rank]

        return Do(passed)

    def _propose(self, act: Propose) -> Do:
        def propose(_: Programs, now: float) -> None:
            proposed = math.ceil((now + act.margin_ns) / act.grid_ns) * act.grid_ns
            self._meetings[act.meeting] = max(self._meetings.get(act.meeting, 0.0), proposed)

        return Do(propose)

    def _count_wait(self, rank: int, sign: int) -> Do:
        def count(_: Programs, now: float) -> None:
            self.waited_ns[rank] += sign * now

        return Do(count)

    def _waited(self, rank: int, call: int) -> Do:
        def waited(_: Programs, now: float) -> None:
            self.waited_ns[rank] += now
            self.awaited_ns[call][rank] = now

        return Do(waited)

    def _post(self, number: int, rank: int) -> Do:
        grouped = self._calls[number]
        plan = grouped.call.plan
        chunks = 1 if plan is None else len(plan.chunks)
        marks = [self._marks.number("start", number, chunk, rank) for chunk in range(chunks)]
        slots = self._slots_of(grouped, rank)
        exchange = grouped.call.exchange
        # Of one that begins by receiving no run knows when it came.
        counts = exchange is None or exchange.begins_by_sending(grouped.call.ranks.index(rank))

        def post(programs: Programs, now: float) -> None:
            if counts:
                self.posted_ns[number][rank] = now
            if plan is not None and plan.aggregators:
                programs.mark(self._marks.number("asked", number), now)
                for chunk in plan.chunks[: plan.in_flight]:
                    self._ask(number, chunk, programs, now)
            if slots is None:
                for mark in marks:
                    programs.mark(mark, now)
                return
            place, proposal = slots.post(0 if plan is None else plan.priority, marks)
            if slots.order.agrees:
                self._proposals[number] = max(self._proposals.get(number, 0), proposal)
                self._left["place", number, rank] = place
                programs.mark(self._marks.number("agree", number, rank), now)
            slots.start(programs, now)

        return Do(post)

    def _slots_of(self, grouped: GroupedCall, rank: int) -> RankSlots | None:
        plan = grouped.call.plan
        if plan is not None and not plan.in_flight:
            return None
        if plan is None and grouped.call.kind in _POINT_TO_POINT:
            return None
        if grouped.call.exchange is not None:
            return None
        # Switches have slots of their own, of each of their two kinds.
        own = (plan.in_flight,) if plan is not None and plan.aggregators else ()
        key = grouped.group, plan is None, rank, *own
        if key not in self._slots:
            order = CollectiveOrder.FIFO if plan is None else plan.order
            bound = GLOO_THREADS if plan is None else plan.in_flight
            self._slots[key] = RankSlots(StartOrder(order, bound))
        return self._slots[key]

    def _add_plan(self, number: int, plan: CollectivePlan) -> None:
        ranks = plan.participants(self._calls[number].call.ranks)
        if plan.in_flight and plan.order is not CollectiveOrder.FIFO:
            agreement = agreement_of(len(ranks), plan.endpoint_delay_ns)
            gates = Gates(
                lambda _, rank: Await([], [], [self._marks.number("agree", number, ranks[rank])]),
                lambda _, rank, count: Do(self._agreed(number, ranks[rank], count)),
            )
            self._compile(number, agreement, gates, "order")
        members = len(self._calls[number].call.ranks)

        def begin(chunk: int, rank: int) -> Operation:
            if rank < members:
                return Await([], [], [self._marks.number("start", number, chunk, ranks[rank])])
            # A switch sets out when the first rank asks it to; then slots get free one by one.
            before = chunk - plan.in_flight
            what: tuple[object, ...] = "asked", number
            if plan.in_flight and before >= 0:
                what = "free", number, before, rank
            hold = plan.chunks[chunk].hold
            if hold is not None and rank == hold.participant:
                what = "granted", number, chunk
            return Await([], [], [self._marks.number(*what)])

        def end(chunk: int, rank: int, count: int) -> Operation:
            if rank < members:
                return Do(self._ended(number, chunk, ranks[rank], count))
            return Do(self._passed_on(number, chunk, rank, count))

        self._compile(number, plan, Gates(begin, end), "chunks")

    def _compile(self, number: int, plan: CollectivePlan, gates: Gates, name: str) -> None:
        for tree in range(plan.trees):
            part = plan.part(tree, plan.trees)
            ends = self._ends_of(self._calls[number], part, tree)
            PlanCompiler(
                part, self.compiled, self._sizes, self._marks, ends, gates, (name, number)
            ).compile()
        self.owners += [number] * (len(self._sizes) - len(self.owners))

    def _ends_of(
        self, grouped: GroupedCall, plan: CollectivePlan | None = None, tree: int = 0
    ) -> tuple[int, ...]:
        """Each of several trees of a group has connections of its own."""
        ranks = grouped.call.ranks
        group = f"{grouped.group}.{tree}" if tree else grouped.group
        return tuple(
            self._ends.setdefault((group, rank), len(self._ends))
            for rank in (ranks if plan is None else plan.participants(ranks))
        )

    def _add_gloo(self, number: int, call: CollectiveCall, seed: int) -> None:
        steps = list(gloo_schedule(call, seed))
        found = compile_steps(steps, call.world)
        base = len(self._sizes)
        first = len(self.compiled.programs)
        for member, program in enumerate(found.programs):
            rank = call.ranks[member]
            begin = Await([], [], [self._marks.number("start", number, 0, rank)])
            end = Do(self._ended(number, 0, rank, 1))
            moved = [_moved(operation, base) for operation in program]
            self.compiled.programs.append([begin, *moved, end])
            self.compiled.members.append(rank)
        ends = self._ends_of(self._calls[number])
        self.compiled.source += [ends[member] for member in found.source]
        self.compiled.destination += [ends[member] for member in found.destination]
        self.compiled.sender += [first + member for member in found.sender]
        self.compiled.receiver += [first + member for member in found.receiver]
        for step in steps:
            if isinstance(step, GlooPost):
                self._sizes += step.size_bytes.tolist()
        self.owners += [number] * (len(self._sizes) - base)

    def _add_exchange(self, number: int, call: CollectiveCall, exchange: Exchange) -> None:
        found = compile_exchange(exchange)
        base, first = len(self._sizes), len(self.compiled.programs)
        for place, (member, program) in enumerate(zip(found.members, found.programs, strict=True)):
            rank = call.ranks[member]
            moved = [_moved(operation, base) for operation in program]
            if place < call.world:  # the others are the ranks' libraries
                begin = Await([], [], [self._marks.number("start", number, 0, rank)])
                moved = [begin, *moved, Do(self._ended(number, 0, rank, 1))]
            self.compiled.programs.append(moved)
            self.compiled.members.append(rank)
        ends = self._ends_of(self._calls[number])
        self.compiled.source += [ends[member] for member in found.source]
        self.compiled.destination += [ends[member] for member in found.destination]
        self.compiled.sender += [first + program for program in found.sender]
        self.compiled.receiver += [first + program for program in found.receiver]
        self._sizes += found.size_bytes
        self.owners += [number] * (len(self._sizes) - base)

    def _agreed(self, number: int, rank: int, count: int) -> _Call:
        def agreed(programs: Programs, now: float) -> None:
            if self._is_last(("agree", number, rank), count):
                slots = self._slots_of(self._calls[number], rank)
                assert slots is not None
                place = self._left["place", number, rank]
                slots.agree(place, self._proposals[number], programs, now)

        return agreed

    def _passed_on(self, number: int, chunk: int, switch: int, count: int) -> _Call:
        plan = self._calls[number].call.plan
        assert plan is not None, "switches take part in programs"
        hold, following = plan.chunks[chunk].hold, plan.chunks[chunk + plan.in_flight :][:1]

        def ended(programs: Programs, now: float) -> None:
            if self._is_last(("passed on", number, chunk, switch), count):
                programs.mark(self._marks.number("free", number, chunk, switch), now)
                if hold is not None and switch == hold.participant:
                    self._streams.give_back((number, chunk), now)
                    for each in following:
                        self._ask(number, each, programs, now)

        return ended

    def _ask(self, number: int, chunk: Chunk, programs: Programs, now: float) -> None:
        """A stream wants what it has to itself, when the first rank posts it or when the chunk
        before it on its tree is over."""
        key = number, chunk.index
        if chunk.hold is not None and key not in self._asked:
            self._asked.add(key)
            granted = self._marks.number("granted", *key)
            self._streams.ask(key, chunk.hold.locks, partial(programs.mark, granted), now)

    def _ended(self, number: int, chunk: int, rank: int, count: int) -> _Call:
        def ended(programs: Programs, now: float) -> None:
            if not self._is_last(("chunk", number, chunk, rank), count):
                return
            plan = self._calls[number].call.plan
            chunks = 1 if plan is None else len(plan.chunks)
            over = self._is_last(("call", number, rank), chunks)
            if over:
                self.completed_ns[number][rank] = now
            slots = self._slots_of(self._calls[number], rank)
            if slots is not None:
                slots.complete(programs, now)
            if over:
                programs.mark(self._marks.number("complete", number, rank), now)

        return ended

    def _is_last(self, what: tuple[object, ...], count: int) -> bool:
        """Whether this is the last of so many."""
        self._left[what] = self._left.get(what, count) - 1
        return not self._left[what]


def _moved(operation: Operation, base: int) -> Operation:
    """With messages numbered from `base`."""
    match operation:
        case Start(sends, receives, sends_first):
            return Start([m + base for m in sends], [m + base for m in receives], sends_first)
        case Await(sends, receives, marks):
            return Await([m + base for m in sends], [m + base for m in receives], marks)
        case _:
            return operation
