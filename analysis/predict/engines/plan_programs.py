"""The plan of a collective that runs as a program, compiled for the engines.

Every rank, chunk and sequence is a program of posts and waits, by the rules of
`collectives.program`; the same that ranks keep to when they execute the plan
(`workloads.execution.programs`). Copies and sums take no time; a copy at a switch is the way
through its unit (`collectives.in_network.node`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.member_programs import (
    Await,
    CompiledPrograms,
    Mark,
    Occupy,
    Operation,
    Pause,
    Start,
)
from analysis.predict.engines.wire import Ints
from collectives.gloo.schedule import Post
from collectives.plan import Chunk, CollectivePlan
from collectives.program import MESSAGES, RECEIVES, Action, At, Program, Step
from collectives.turns import Turn
from collectives.waits import Waits, waits_of


@dataclass(frozen=True)
class CompiledPlan:
    """Programs, and the bytes of their messages."""

    programs: CompiledPrograms
    size_bytes: Ints

    def as_post(self) -> Post:
        """All messages by number, as one post has them."""
        source = np.array(self.programs.source, dtype=np.int64)
        return Post(source, np.array(self.programs.destination, dtype=np.int64), self.size_bytes)


def message_count(plan: CollectivePlan) -> int:
    """Messages of a plan, empty ones included."""
    counts: dict[int, int] = {}
    total = 0
    for chunk in plan.chunks:
        key = id(chunk.program)
        if key not in counts:
            counts[key] = len(chunk.program.messages())
        total += counts[key]
    return total


def compile_plan(plan: CollectivePlan) -> CompiledPlan:
    """Compile a plan for all of its ranks, on its own: a chunk waits for the one `in_flight` before
    it."""
    world = len(plan.chunks[0].program.participants)
    compiler = PlanCompiler(plan, CompiledPrograms([]), [], Marks(), tuple(range(world)))
    compiler.compile()
    return CompiledPlan(compiler.compiled, np.array(compiler.sizes, dtype=np.int64))


class Marks:
    """Numbers of marks, by what they mark."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def number(self, *what: object) -> int:
        """The number of a mark."""
        return self._numbers.setdefault(what, len(self._numbers))


@dataclass(frozen=True, slots=True)
class Gates:
    """What a chunk at a rank begins with, and what each of its sequences, of which there are so
    many, ends with."""

    begin: Callable[[int, int], Operation]
    end: Callable[[int, int, int], Operation]


class PlanCompiler:
    """Adds a plan to programs that may have others already. `sizes` has the bytes of all messages,
    `ranks` those of the participants; `gates` replace the plan's own bound of chunks in flight."""

    def __init__(
        self,
        plan: CollectivePlan,
        compiled: CompiledPrograms,
        sizes: list[int],
        marks: Marks,
        ranks: tuple[int, ...],
        gates: Gates | None = None,
        name: object = None,
    ) -> None:
        self._plan = plan
        self.compiled = compiled
        compiled.has_nodes |= bool(plan.aggregators)
        self.sizes = sizes
        self._marks = marks
        self._ranks = ranks
        self.gates = gates
        self._name = name
        self._waits: dict[tuple[int, int], tuple[tuple[Waits, ...], ...]] = {}
        self._places = {
            turn: (order, place)
            for order in plan.turns.values()
            for place, turn in enumerate(order)
        }

    def compile(self) -> None:
        """Add all that all ranks do."""
        for chunk in self._plan.chunks:
            numbers = self._add_messages(chunk)
            for rank in range(len(chunk.program.participants)):
                _ChunkCompiler(self, chunk, rank, numbers).compile()

    def _add_messages(self, chunk: Chunk) -> dict[int, int]:
        """Numbers of a chunk's messages; empty ones are not sent."""
        found = {}
        element_bytes = self._plan.shape.element_bytes
        for message in chunk.program.messages():
            elements = chunk.program.elements_of(message.blocks, chunk.elements)
            if elements:
                found[message.number] = len(self.sizes)
                self.sizes.append(elements * element_bytes)
                self.compiled.source.append(self._ranks[message.source])
                self.compiled.destination.append(self._ranks[message.destination])
                self.compiled.sender.append(-1)
                self.compiled.receiver.append(-1)
        return found

    def mark(self, *what: object) -> int:
        """The number of a mark by what it marks."""
        return self._marks.number(self._name, *what)

    def add(self, rank: int, program: list[Operation]) -> None:
        number = len(self.compiled.programs)
        self.compiled.programs.append(program)
        self.compiled.members.append(self._ranks[rank])
        for operation in program:
            if isinstance(operation, Start):
                for message in operation.sends:
                    self.compiled.sender[message] = number
                for message in operation.receives:
                    self.compiled.receiver[message] = number

    def waits(self, program: Program, rank: int) -> tuple[tuple[Waits, ...], ...]:
        key = id(program), rank
        if key not in self._waits:
            self._waits[key] = waits_of(program, rank)
        return self._waits[key]

    @property
    def plan(self) -> CollectivePlan:
        return self._plan

    def before(self, turn: Turn) -> Turn | None:
        """The turn that must be over before this one begins."""
        if turn not in self._places:
            return None
        order, place = self._places[turn]
        earlier = place - self._plan.active_per_dimension
        return order[earlier] if earlier >= 0 else None


class _ChunkCompiler:
    """One chunk at one rank."""

    def __init__(
        self, compiler: PlanCompiler, chunk: Chunk, rank: int, numbers: dict[int, int]
    ) -> None:
        self._of = compiler
        self._chunk = chunk
        self._rank = rank
        self._numbers = numbers
        self._sequences = chunk.program.participants[rank]
        self._waits = compiler.waits(chunk.program, rank)
        self._users: dict[int, list[int]] = defaultdict(list)
        for number, sequence in enumerate(self._sequences):
            for phase in dict.fromkeys(step.phase for step in sequence.steps):
                self._users[phase].append(number)
        self._watched = {at for steps in self._waits for waits in steps for at in waits.posted}

    def compile(self) -> None:
        for number in range(len(self._sequences)):
            self._of.add(self._rank, self._sequence(number))
        if not self._sequences:
            program: list[Operation] = []
            self._wait_for_room(program)
            program.append(self._end(0))
            self._of.add(self._rank, program)

    def _sequence(self, number: int) -> list[Operation]:
        program: list[Operation] = []
        self._wait_for_room(program)
        waited: set[At] = set()
        begun: int | None = None
        gated = bool(self._of.plan.turns)
        steps = self._sequences[number].steps
        for place, step in enumerate(steps):
            if gated and step.phase != begun:
                if begun is not None:
                    self._wait(program, {At(number, p) for p in range(place)}, waited)
                    program.append(Mark(self._part(begun, number)))
                begun = step.phase
                self._take_turn(program, step.phase)
            self._wait(program, set(self._waits[number][place].posted), waited)
            self._post(program, At(number, place), step)
        self._wait(program, {At(number, p) for p in range(len(steps))}, waited)
        if gated and begun is not None:
            program.append(Mark(self._part(begun, number)))
        program.append(self._end(number))
        return program

    def _end(self, sequence: int) -> Operation:
        if self._of.gates is not None:
            count = max(1, len(self._sequences))
            return self._of.gates.end(self._chunk.index, self._rank, count)
        return Mark(self._done(self._chunk.index, sequence))

    def _wait_for_room(self, program: list[Operation]) -> None:
        plan = self._of.plan
        if self._of.gates is not None:
            program.append(self._of.gates.begin(self._chunk.index, self._rank))
        elif plan.in_flight and self._chunk.index >= plan.in_flight:
            earlier = self._chunk.index - plan.in_flight
            sequences = plan.chunks[earlier].program.participants[self._rank]
            marks = [self._done(earlier, n) for n in range(max(1, len(sequences)))]
            program.append(Await([], [], marks))

    def _take_turn(self, program: list[Operation], phase: int) -> None:
        before = self._of.before(Turn(self._chunk.index, phase))
        if before is None:
            return
        sequences = self._of.plan.chunks[before.chunk].program.participants[self._rank]
        users = [
            number
            for number, sequence in enumerate(sequences)
            if any(step.phase == before.phase for step in sequence.steps)
        ]
        marks = [self._of.mark("part", self._rank, before.chunk, before.phase, n) for n in users]
        program.append(Await([], [], marks))

    def _post(self, program: list[Operation], at: At, step: Step) -> None:
        if step.action in MESSAGES:
            assert step.message is not None
            message = self._numbers.get(step.message)
            if message is None:
                return
            delay_ns = self._of.plan.endpoint_delay_ns
            if step.action is Action.SEND and delay_ns and self._rank < self._chunk.program.ranks:
                program.append(Pause(delay_ns))
            if not program or not isinstance(program[-1], Start):
                program.append(Start([], []))
            start = program[-1]
            assert isinstance(start, Start)
            if step.action in RECEIVES and start.sends:
                # Within one start, receives go before sends.
                start = Start([], [])
                program.append(start)
            (start.receives if step.action in RECEIVES else start.sends).append(message)
            return
        ranks = self._chunk.program.ranks
        if step.action is Action.COPY and self._rank >= ranks:
            unit = self._of.plan.aggregators[self._rank - ranks]
            elements = self._chunk.program.elements_of(step.blocks, self._chunk.elements)
            taken_ns = unit.occupied_ns(elements * self._of.plan.shape.element_bytes)
            program.append(Occupy(unit.number, taken_ns, unit.latency_ns))
        if at in self._watched:
            program.append(Mark(self._of.mark("step", self._rank, self._chunk.index, at)))

    def _wait(
        self,
        program: list[Operation],
        wanted: set[At],
        waited: set[At],
    ) -> None:
        """Wait until steps are complete, which those of this program that were waited for are."""
        sends: list[int] = []
        receives: list[int] = []
        marks: list[int] = []
        pending = sorted(wanted - waited)
        while pending:
            at = pending.pop()
            if at in waited:
                continue
            waited.add(at)
            step = self._sequences[at.sequence].steps[at.place]
            pending += self._waits[at.sequence][at.place].applied
            if step.message is not None:
                message = self._numbers.get(step.message)
                if message is not None:
                    (sends if step.action is Action.SEND else receives).append(message)
            elif at in self._watched and self._is_elsewhere(at, program):
                marks.append(self._of.mark("step", self._rank, self._chunk.index, at))
        if sends or receives or marks:
            program.append(Await(sends, receives, marks))

    def _is_elsewhere(self, at: At, program: list[Operation]) -> bool:
        """Whether a local step is not one that this program has done before."""
        done = Mark(self._of.mark("step", self._rank, self._chunk.index, at))
        return done not in program

    def _part(self, phase: int, sequence: int) -> int:
        return self._of.mark("part", self._rank, self._chunk.index, phase, sequence)

    def _done(self, chunk: int, sequence: int) -> int:
        return self._of.mark("done", self._rank, chunk, sequence)
