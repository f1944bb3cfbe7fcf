"""Collectives that are in flight together, compiled for the engines: what all ranks do.

Each rank has a main thread that computes, posts collectives and waits for them. A collective's
chunks begin where the rank's slots let them (`rank_slots`): programs by the spec's order, with the
messages of its agreements; Gloo's own as its process group's threads get free, first in, first out.
Everything runs on one fabric, so that nothing has to be assumed about how collectives share it.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.joint_events import (
    Agreed,
    CameBy,
    Ended,
    MeetingTime,
    Noted,
    PassedOn,
    Posted,
    Proposed,
    SetLate,
    WaitBegins,
    WaitIsOver,
    WithLateness,
)
from analysis.predict.engines.message_costs import Cut, MessageCosts
from analysis.predict.engines.ports.class_ports import priorities_of
from analysis.predict.engines.rank_slots import RankSlots
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import PredictorError, Setting, Transport, connection_key
from analysis.predict.scenario import (
    Act,
    Begin,
    Compute,
    Due,
    GroupedCall,
    Meet,
    Pass,
    PostCall,
    Propose,
    Timeline,
    Until,
    WaitForCall,
)
from analysis.predict.stream_queues import Lock, Stream, StreamQueues
from collectives.call import CollectiveCall
from collectives.schedule.operations import (
    Await,
    CompiledPrograms,
    Do,
    Gates,
    Mark,
    Marks,
    Operation,
    Pause,
    Runner,
    Sleep,
    Start,
)
from collectives.schedule.program import FIRST_SLOT, ProgramSchedule
from collectives.schedule.schedule import Schedule
from collectives.settings import agreement_of
from collectives.start_order import CollectiveOrder, StartOrder
from topologies.spec.transports.connections import ONE, Connections

MOST_MESSAGES = 300_000
"""Beyond this many, which take about 30 s, collectives are not followed message by message."""


def has_programs(calls: Iterable[GroupedCall]) -> bool:
    """Whether one of them runs as a program of ours."""
    return any(grouped.call.schedule.algorithm is not None for grouped in calls)


class JointPrograms:
    """Compiled from calls and from what each rank's main thread does. Ranks are those of the run.

    Each group has connections of its own: messages go from end to end, and `ends` has their ranks.

    After a run it has, by call and rank, when each was posted and complete, and by rank when the
    main thread ended and how long it waited. Times are in ns.
    """

    def __init__(
        self,
        calls: Sequence[GroupedCall],
        acts: Mapping[int, Sequence[Act]],
        seed: int,
        transport: Transport | None = None,
        *,
        follows_steps: bool = False,
        is_whole: Callable[[int, int], bool] = lambda source, destination: False,
    ) -> None:
        """Between ranks of which it `is_whole`, a message goes whole, by the first connection of
        several."""
        self._transport = transport
        self._is_whole = is_whole
        self._slots_taken: Counter[str] = Counter()
        self.compiled = CompiledPrograms(follows_steps=follows_steps)
        self.owners = array("i")
        """The call of each message; what agrees on a call is its own as well."""
        self.posted_ns: list[dict[int, float]] = [{} for _ in calls]
        self.completed_ns: list[dict[int, float]] = [{} for _ in calls]
        self.ended_ns: dict[int, float] = {}
        self.waited_ns: dict[int, float] = defaultdict(float)
        self.passed_ns: dict[tuple[int, int], tuple[float, float]] = {}
        """(rank, number of a `Pass`) -> when it came by, and how long it had waited until then."""
        self.awaited_ns: list[dict[int, float]] = [{} for _ in calls]
        """By call and rank: when a wait for it was over, where the rank waited."""
        self._ends: dict[tuple[str, int, int], int] = {}
        """(group, rank, which of the connections of two ranks) -> the number of the end."""
        self._marks = Marks()
        self.calls = calls
        self._slots: dict[tuple[object, ...], RankSlots] = {}
        self._pools: dict[tuple[str, int], int] = {}
        self.proposals: dict[int, int] = {}
        self.left: dict[tuple[object, ...], int] = {}
        self.streams = StreamQueues()
        self._asked: set[Stream] = set()
        self.late_ns: dict[int, float] = defaultdict(float)
        self.meetings: dict[int, float] = {}
        for rank, doing in acts.items():
            self.compiled.program(-1, self._main(rank, doing))
        for number in range(len(calls)):
            self._add(number, seed)

    def add_ends(self, ranks: Iterable[int], number: int = 0) -> None:
        """Ranks have ends of their connections of this number, of the group of all, whether or not
        a call has them exchange anything."""
        for rank in ranks:
            self._end("", rank, number)

    def _end(self, group: str, rank: int, number: int = 0) -> int:
        return self._ends.setdefault((group, rank, number), len(self._ends))

    @property
    def pools(self) -> int:
        """How many pools of threads there are."""
        return len(self._pools)

    @property
    def ends(self) -> Ints:
        """The rank of each end."""
        return np.array([rank for _, rank, _ in self._ends], dtype=np.int64)

    def groups(self, setting: Setting) -> list[str | None]:
        """The group of each end whose connections are its own, as `connection_key` has it; None for
        the first ones of all ranks.

        Where a run recorded ports, it has those of such groups by name; before a run they are
        groups that are narrower than the widest.
        """
        size = Counter(group for group, _, number in self._ends if not number)
        widest = max(size.values(), default=0)

        def has_own(group: str) -> bool:
            if setting.ports:
                return group in setting.group_ports or group in setting.group_carrier_ports
            return size[group] < widest

        return [
            connection_key(group if has_own(group) else None, number)
            for group, _, number in self._ends
        ]

    def priorities(self, setting: Setting, carried: bool) -> list[int]:
        """The class selector of what each end sends: of its group, else of its rank."""
        of_ranks = priorities_of(setting, self.ends, carried)
        own = setting.group_priorities
        return [own.get(group, of_ranks[end]) for end, (group, *_) in enumerate(self._ends)]

    @property
    def size_bytes(self) -> Ints:
        """The bytes of each message."""
        return np.frombuffer(self.compiled.size_bytes, dtype=np.int64)

    def all_carried(self, transport: Transport) -> bool:
        """Whether all messages go by the carrier; else they all go over TCP. Raises PredictorError
        for some of each."""
        found = {transport.carries(grouped.call) for grouped in self.calls}
        if len(found) > 1:
            raise PredictorError(
                "collectives over TCP and over another transport in flight together"
            )
        return found == {True}

    def messages_carried(self, transport: Transport) -> npt.NDArray[np.bool_]:
        """Whether each message goes by the carrier."""
        carried = np.array([transport.carries(grouped.call) for grouped in self.calls], dtype=bool)
        found: npt.NDArray[np.bool_] = carried[np.array(self.owners, dtype=np.int64)]
        return found

    @classmethod
    def of_one(
        cls, call: CollectiveCall, seed: int = 1, transport: Transport | None = None
    ) -> JointPrograms:
        """One collective that all its ranks post at once. Raises PredictorError for more messages
        than can be followed."""
        count = call.schedule.count(call.shape, seed, MOST_MESSAGES)
        if count > MOST_MESSAGES:
            raise PredictorError(f"found {count:,} messages, allowed {MOST_MESSAGES:,}")
        acts = {rank: (PostCall(0),) for rank in call.ranks}
        return cls([GroupedCall(call, "")], acts, seed, transport)

    @property
    def first(self) -> CollectiveCall:
        """The call whose kind stands for all where only one can."""
        return self.calls[0].call

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """(source, destination) of the pairs of ends that exchange messages, each once."""
        ends = max(len(self._ends), 1)
        source = np.frombuffer(self.compiled.source, dtype=np.int32).astype(np.int64)
        keys = np.unique(source * ends + np.frombuffer(self.compiled.destination, dtype=np.int32))
        return keys // ends, keys % ends

    def cuts(self, costs: MessageCosts) -> tuple[npt.NDArray[np.int32], list[Cut]]:
        """(by message, how it is cut into segments by its own collective's kind; each way to be
        cut)."""
        sizes, owners = self.size_bytes, np.frombuffer(self.owners, dtype=np.int32).astype(np.int64)
        longest = int(sizes.max(initial=0)) + 1
        keys, cut_of = np.unique(owners * longest + sizes, return_inverse=True)
        found = []
        for owner, size in zip((keys // longest).tolist(), (keys % longest).tolist(), strict=True):
            found.append(replace(costs, call=self.calls[owner].call).cut(size))
        return cut_of.astype(np.int32), found

    def timeline(self) -> Timeline:
        """The answer, after a run. Raises PredictorError when ranks wait for each other."""
        return Timeline(
            self.calls,
            self.posted_ns,
            self.completed_ns,
            self.awaited_ns,
            self.ended_ns,
            self.waited_ns,
            self.passed_ns,
        )

    def _main(self, rank: int, acts: Sequence[Act]) -> list[Operation]:
        program: list[Operation] = []
        for act in acts:
            match act:
                case Compute(duration_ns):
                    program.append(Pause(duration_ns))
                case Due(at_ns):
                    program.append(Do(SetLate(self, rank, at_ns)))
                case Until(at_ns):
                    program.append(Sleep(WithLateness(self, rank, at_ns)))
                case PostCall(call):
                    program.append(Do(self._post(call, rank)))
                case WaitForCall(call):
                    mark = self._marks.number("complete", call, rank)
                    program += [
                        Do(WaitBegins(self, rank)),
                        Await([], [], [mark]),
                        Do(WaitIsOver(self, rank, call)),
                    ]
                case Pass(number):
                    program.append(Do(CameBy(self, rank, number)))
                case Propose(meeting, margin_ns, grid_ns):
                    program.append(Do(Proposed(self, meeting, margin_ns, grid_ns)))
                case Meet(meeting):
                    program.append(Sleep(MeetingTime(self, meeting)))
                case Begin(iteration):
                    program.append(Mark(self.begun(iteration)))
        program.append(Do(Noted(self, rank)))
        return program

    def begun(self, iteration: int) -> int:
        """The mark of an iteration's begin."""
        return self._marks.number("begun", iteration)

    def _post(self, number: int, rank: int) -> Posted:
        grouped = self.calls[number]
        schedule = grouped.call.schedule
        marks = [
            self._marks.number("start", number, chunk, rank) for chunk in range(_parts(schedule))
        ]
        slots = self._slots_of(grouped, rank)
        agree = asked = None
        if slots is not None and slots.order.agrees:
            agree = self._marks.number("agree", number, rank)
        asks: tuple[int, ...] = ()
        if schedule.aggregators:
            asked = self._marks.number("asked", number)
            asks = tuple(chunk.index for chunk in schedule.chunks[: schedule.in_flight])
        pool = self._pool_of(grouped, rank)
        woken = (
            ()
            if pool is None
            else (self._woken(number, chunk, rank) for chunk in range(len(marks)))
        )
        marked, priority = tuple(marks), schedule.priority
        return Posted(
            self, number, rank, marked, slots, priority, agree, asked, asks, pool, tuple(woken)
        )

    def _woken(self, number: int, chunk: int, rank: int) -> int:
        return self._marks.number("woken", number, chunk, rank)

    def _pool_of(self, grouped: GroupedCall, rank: int) -> int | None:
        """The number of the threads that run a rank's chunks of a group's programs; None where none
        of them share a lock: at nodes of switches, and for what is no program."""
        schedule = grouped.call.schedule
        if schedule.algorithm is None or schedule.aggregators:
            return None
        return self._pools.setdefault((grouped.group, rank), len(self._pools))

    def _slots_of(self, grouped: GroupedCall, rank: int) -> RankSlots | None:
        queue = grouped.call.schedule.queue(grouped.call.shape.kind)
        if queue is None:
            return None
        key = grouped.group, rank, *queue.name
        if key not in self._slots:
            self._slots[key] = RankSlots(StartOrder(queue.order, queue.at_once))
        return self._slots[key]

    def _add(self, number: int, seed: int) -> None:
        call = self.calls[number].call
        schedule = call.schedule
        ranks = call.participants
        members = len(call.ranks)
        slot = self._take_slots(number, schedule)
        queue = schedule.queue(call.shape.kind)
        if queue is not None and queue.order is not CollectiveOrder.FIFO:
            agreement = agreement_of(len(ranks), schedule.endpoint_delay_ns)
            gates = Gates(
                lambda _, rank: Await([], [], [self._marks.number("agree", number, ranks[rank])]),
                lambda _, rank, count: Do(self._agreed(number, ranks[rank], count)),
            )
            first = self._take_slots(number, agreement)
            self._compile(number, replace(call, schedule=agreement), gates, "order", first, seed)

        def begin(chunk: int, rank: int) -> Operation:
            if rank < members:
                return Await([], [], [self._marks.number("start", number, chunk, ranks[rank])])
            # A switch sets out when the first rank asks it to; then slots get free one by one.
            before = chunk - schedule.in_flight
            what: tuple[object, ...] = "asked", number
            if schedule.in_flight and before >= 0:
                what = "free", number, before, rank
            hold = schedule.chunks[chunk].hold
            if hold is not None and rank == hold.participant:
                what = "granted", number, chunk
            return Await([], [], [self._marks.number(*what)])

        def end(chunk: int, rank: int, count: int) -> Operation:
            if rank < members:
                return Do(self._ended(number, chunk, ranks[rank], count))
            return Do(self._passed_on(number, chunk, rank, count))

        def woken(chunk: int, rank: int) -> int:
            return self._woken(number, chunk, ranks[rank])

        pooled = schedule.algorithm is not None and not schedule.aggregators
        gates = Gates(begin, end, woken if pooled else None)
        self._compile(number, call, gates, "chunks", slot, seed)

    def _take_slots(self, number: int, schedule: Schedule) -> int:
        """The first of the slots of a program, which those of a group take one after the other."""
        group = self.calls[number].group
        first = FIRST_SLOT + self._slots_taken[group]
        if isinstance(schedule, ProgramSchedule):
            self._slots_taken[group] += schedule.slots
        return first

    def _compile(
        self,
        number: int,
        call: CollectiveCall,
        gates: Gates,
        name: str,
        slot: int,
        seed: int,
    ) -> None:
        group, trees = self.calls[number].group, call.schedule.trees
        for tree in range(trees):
            part = call.schedule.part(tree, trees)
            # Each of several trees of a group has connections of its own.
            own = f"{group}.{tree}" if tree else group
            ranks = part.participants(call.ranks)
            ends = [self._end(own, rank) for rank in ranks]
            mark = partial(self._marks.number, name, number)
            compiled = self.compiled
            first, program = len(compiled.source), len(compiled.programs)
            between = ONE if self._transport is None else self._transport.between_ranks(call)
            compiled.packs = compiled.follows_steps and between.count == 1
            part.compile(call.shape, compiled, ends, mark, gates, seed)
            if between.count > 1:
                added, numbers = compiled.programs[program:], range(first, len(compiled.source))
                self._spread(part, own, ranks, numbers, slot, added, between)
        self.owners += array("i", [number]) * (len(self.compiled.source) - len(self.owners))

    def _spread(
        self,
        schedule: Schedule,
        group: str,
        ranks: Sequence[int],
        numbers: range,
        slot: int,
        programs: Sequence[Sequence[Operation]],
        between: Connections,
    ) -> None:
        """Have the messages of a schedule go by all connections of two ranks, in parts or whole.
        `numbers` are those of its messages in `programs`, and `slot` is that of its first."""
        compiled = self.compiled
        parts: dict[int, list[int]] = {}
        for number, message in zip(numbers, schedule.numbered_messages(), strict=True):
            sender, receiver = compiled.sender[number], compiled.receiver[number]
            ends = ranks[message.source], ranks[message.destination]
            ways = ONE if self._is_whole(*ends) else between
            for connection, size_bytes in ways.parts(message.size_bytes, slot + message.slot):
                source, destination = (self._end(group, rank, connection) for rank in ends)
                if number in parts:
                    part = source, destination, size_bytes, sender, receiver
                    parts[number].append(compiled.message(*part))
                else:
                    parts[number] = [number]
                    compiled.source[number] = source
                    compiled.destination[number] = destination
                    compiled.size_bytes[number] = size_bytes
        for operation in (each for program in programs for each in program):
            if isinstance(operation, Start | Await):
                for messages in (operation.sends, operation.receives):
                    messages[:] = [part for whole in messages for part in parts[whole]]

    def _agreed(self, number: int, rank: int, count: int) -> Agreed:
        slots = self._slots_of(self.calls[number], rank)
        assert slots is not None
        return Agreed(self, number, rank, slots, count)

    def _passed_on(self, number: int, chunk: int, switch: int, count: int) -> PassedOn:
        schedule = self.calls[number].call.schedule
        hold = schedule.chunks[chunk].hold
        following = schedule.chunks[chunk + schedule.in_flight :][:1]
        mark = self._marks.number("free", number, chunk, switch)
        holds = hold is not None and switch == hold.participant
        asks = tuple(each.index for each in following)
        return PassedOn(self, number, chunk, switch, count, mark, holds, asks)

    def _ended(self, number: int, chunk: int, rank: int, count: int) -> Ended:
        parts = _parts(self.calls[number].call.schedule)
        slots = self._slots_of(self.calls[number], rank)
        mark = self._marks.number("complete", number, rank)
        pool = self._pool_of(self.calls[number], rank)
        return Ended(self, number, chunk, rank, count, parts, slots, mark, pool)

    def is_last(self, what: tuple[object, ...], count: int) -> bool:
        """Whether this is the last of so many."""
        self.left[what] = self.left.get(what, count) - 1
        return not self.left[what]

    def ask(self, stream: Stream, programs: Runner, now: float) -> None:
        """A stream wants what it has to itself, when the first rank posts it or when the chunk
        before it on its tree is over."""
        locks = self.locks_of(stream)
        if locks and stream not in self._asked:
            self._asked.add(stream)
            self.streams.ask(stream, locks, partial(programs.mark, self.granted(stream)), now)

    def locks_of(self, stream: Stream) -> Sequence[Lock]:
        """The locks that a stream wants; nothing for a chunk that has no stream."""
        hold = self.calls[stream[0]].call.schedule.chunks[stream[1]].hold
        return () if hold is None else hold.locks

    def granted(self, stream: Stream) -> int:
        """The mark of a stream that has what it wants."""
        return self._marks.number("granted", *stream)


def _parts(schedule: Schedule) -> int:
    """How many parts of a collective start on their own: its chunks, or all of it."""
    return max(1, len(schedule.chunks))
