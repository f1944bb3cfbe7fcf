"""A schedule of a program, compiled to operations.

Every participant, chunk and sequence is a list of posts and waits, by the rules of
`collectives.program`; ranks keep to the same ones when they execute it
(`workloads.execution.programs`). Copies and sums take no time; a copy at a switch is the way
through its unit (`collectives.in_network.node`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from collectives.garbage import uncollected
from collectives.program import MESSAGES, RECEIVES, Action, At, Step
from collectives.schedule.operations import (
    Await,
    CompiledPrograms,
    Gates,
    Mark,
    NumberOfMark,
    Occupy,
    Operation,
    Pause,
    Start,
)
from collectives.schedule.packed_program import PackedProgram, PackedPrograms
from collectives.schedule.schedule import Chunk
from collectives.turns import Turn
from collectives.waits import waits_of

if TYPE_CHECKING:
    from collectives.schedule.program import ProgramSchedule


_PACKED = PackedPrograms()


class ProgramCompiler:
    """Adds a schedule to programs that may have others already, as `Schedule.compile` has it."""

    def __init__(
        self,
        schedule: ProgramSchedule,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None,
    ) -> None:
        self.schedule = schedule
        self.into = into
        into.has_nodes |= bool(schedule.aggregators)
        self._ends = ends
        self.mark = mark
        self.gates = gates
        self._places = {
            turn: (order, place)
            for order in schedule.turns.values()
            for place, turn in enumerate(order)
        }

    @uncollected()
    def compile(self) -> None:
        """Add all that all ranks do."""
        packs = self.into.packs and self.gates is not None and not self._has_gates_within
        for chunk in self.schedule.chunks:
            program = chunk.program
            single = all(len(sequences) == 1 for sequences in program.participants)
            if packs and single and _PACKED.knows(program) and self._add_packed(chunk):
                continue
            first, message = len(self.into.programs), len(self.into.source)
            numbers = self._add_messages(chunk)
            for rank in range(len(program.participants)):
                _ChunkCompiler(self, chunk, rank, numbers).compile()
            is_whole = len(numbers) == program.message_count
            if packs and single and is_whole and _PACKED.comes_again(program):
                added = self.into.programs[first:]
                _PACKED.keep(program, PackedProgram.of(program, added, message))

    @property
    def _has_gates_within(self) -> bool:
        """Whether a sequence has more than messages between its begin and its end."""
        schedule = self.schedule
        delays_ns = schedule.endpoint_delay_ns or schedule.launch_ns
        return bool(schedule.turns or schedule.aggregators or delays_ns)

    def _add_packed(self, chunk: Chunk) -> bool:
        """Add a chunk whose program is known, unless some of its messages are empty."""
        import numpy as np

        packed = _PACKED[chunk.program]
        if packed is None:
            return False
        elements = packed.elements(chunk.program, chunk.elements)
        if not elements.all():
            return False
        ends = np.array(self._ends, dtype=np.int32)
        size_bytes = self.schedule.lines.wire_bytes(elements * self.schedule.shape.element_bytes)
        gates = self.gates
        assert gates is not None
        for rank, exchange in enumerate(packed.add(self.into, ends, size_bytes)):
            begin, end = gates.begin(chunk.index, rank), gates.end(chunk.index, rank, 1)
            self.into.program(self._ends[rank], [begin, exchange, end])
        return True

    def _add_messages(self, chunk: Chunk) -> dict[int, int]:
        """Numbers of a chunk's messages; empty ones are not sent."""
        import numpy as np

        program, into = chunk.program, self.into
        rows = [
            (step.message, participant, step.peer, step.blocks.start, step.blocks.count)
            for participant, _, step in program.steps()
            if step.action is Action.SEND
        ]
        number, source, destination, first, count = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        elements = program.offsets(first + count, chunk.elements)
        elements -= program.offsets(first, chunk.elements)
        order = np.argsort(number)
        order = order[elements[order] > 0]
        element_bytes, lines = self.schedule.shape.element_bytes, self.schedule.lines
        size_bytes = lines.wire_bytes(elements[order] * element_bytes)
        ends = np.array(self._ends, dtype=np.int32)
        before, none = len(into.source), np.full(len(order), -1, dtype=np.int32)
        into.source.frombytes(ends[source[order]].tobytes())
        into.destination.frombytes(ends[destination[order]].tobytes())
        into.size_bytes.frombytes(size_bytes.tobytes())
        into.sender.frombytes(none.tobytes())
        into.receiver.frombytes(none.tobytes())
        return dict(zip(number[order].tolist(), range(before, len(into.source)), strict=True))

    def add(self, rank: int, program: list[Operation]) -> None:
        number = self.into.program(self._ends[rank], program)
        for operation in program:
            if isinstance(operation, Start):
                for message in operation.sends:
                    self.into.sender[message] = number
                for message in operation.receives:
                    self.into.receiver[message] = number

    def before(self, turn: Turn) -> Turn | None:
        """The turn that must be over before this one begins."""
        if turn not in self._places:
            return None
        order, place = self._places[turn]
        earlier = place - self.schedule.active_per_dimension
        return order[earlier] if earlier >= 0 else None


class _ChunkCompiler:
    """One chunk at one rank."""

    def __init__(
        self, compiler: ProgramCompiler, chunk: Chunk, rank: int, numbers: dict[int, int]
    ) -> None:
        self._of = compiler
        self._chunk = chunk
        self._rank = rank
        self._numbers = numbers
        self._sequences = chunk.program.participants[rank]
        self._waits = waits_of(chunk.program, rank)
        self._users: dict[int, list[int]] = defaultdict(list)
        for number, sequence in enumerate(self._sequences):
            for phase in dict.fromkeys(step.phase for step in sequence.steps):
                self._users[phase].append(number)
        gates = compiler.gates
        self._woken: int | None = None
        if gates is not None and gates.woken is not None and len(self._sequences) > 1:
            # A thread that is new has its helpers come up with it, and go on at once. After a
            # launch the chunk's thread alone wakes them.
            launches = compiler.schedule.launch_ns and rank < chunk.program.ranks
            woken = partial(compiler.mark, "launched") if launches else gates.woken
            self._woken = woken(chunk.index, rank)
        self._shared: set[At] = set()
        """Steps for which others of several sequences wait, too."""
        if self._woken is not None:
            for own, steps in enumerate(self._waits):
                for waits in steps:
                    every = (*waits.posted, *waits.applied)
                    self._shared |= {at for at in every if at.sequence != own}
        self._watched = {at for steps in self._waits for waits in steps for at in waits.posted}

    def compile(self) -> None:
        # Engines have members set out from the last program on, and those that wait for one thing
        # go on in the order in which they came to wait.
        for number in reversed(range(len(self._sequences))):
            self._of.add(self._rank, self._sequence(number))
        if not self._sequences:
            program: list[Operation] = []
            self._wait_for_room(program)
            program.append(self._end(0))
            self._of.add(self._rank, program)

    def _sequence(self, number: int) -> list[Operation]:
        program: list[Operation] = []
        self._wait_for_thread(program, number)
        waited: set[At] = set()
        begun: int | None = None
        gated = bool(self._of.schedule.turns)
        steps = self._sequences[number].steps
        for place, step in enumerate(steps):
            if gated and step.phase != begun:
                if begun is not None:
                    self._wait(program, number, [At(number, p) for p in range(place)], waited)
                    program.append(Mark(self._part(begun, number)))
                begun = step.phase
                self._take_turn(program, step.phase)
            self._wait(program, number, self._waits[number][place].posted, waited)
            self._post(program, At(number, place), step)
        self._wait(program, number, [At(number, p) for p in range(len(steps))], waited)
        if gated and begun is not None:
            program.append(Mark(self._part(begun, number)))
        self._finish(program, number)
        return program

    def _finish(self, program: list[Operation], number: int) -> None:
        """The chunk's thread waits for the others before it tells of the end."""
        if self._woken is None:
            program.append(self._end(number))
        elif number:
            program.append(Mark(self._done(self._chunk.index, number)))
        else:
            others = range(1, len(self._sequences))
            program.append(Await([], [], [self._done(self._chunk.index, n) for n in others]))
            assert self._of.gates is not None
            program.append(self._of.gates.end(self._chunk.index, self._rank, 1))

    def _end(self, sequence: int) -> Operation:
        if self._of.gates is not None:
            count = max(1, len(self._sequences))
            return self._of.gates.end(self._chunk.index, self._rank, count)
        return Mark(self._done(self._chunk.index, sequence))

    def _wait_for_thread(self, program: list[Operation], number: int) -> None:
        """The chunk's thread wakes the others, which go on behind those that are awake, and then
        runs its own sequence (`workloads.execution.programs.engine`)."""
        if self._woken is not None and number:
            program.append(Await([], [], [self._woken]))
            return
        self._wait_for_room(program)
        launch_ns = self._of.schedule.launch_ns
        if launch_ns and self._rank < self._chunk.program.ranks:
            program.append(Pause(launch_ns))
        if self._woken is not None:
            program.append(Mark(self._woken))

    def _wait_for_room(self, program: list[Operation]) -> None:
        schedule = self._of.schedule
        if self._of.gates is not None:
            program.append(self._of.gates.begin(self._chunk.index, self._rank))
        elif schedule.in_flight and self._chunk.index >= schedule.in_flight:
            earlier = self._chunk.index - schedule.in_flight
            sequences = schedule.chunks[earlier].program.participants[self._rank]
            marks = [self._done(earlier, n) for n in range(max(1, len(sequences)))]
            program.append(Await([], [], marks))

    def _take_turn(self, program: list[Operation], phase: int) -> None:
        before = self._of.before(Turn(self._chunk.index, phase))
        if before is None:
            return
        sequences = self._of.schedule.chunks[before.chunk].program.participants[self._rank]
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
            delay_ns = self._of.schedule.endpoint_delay_ns
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
            if at in self._shared:
                program.append(Mark(self._posted(at)))
            return
        ranks = self._chunk.program.ranks
        if step.action is Action.COPY and self._rank >= ranks:
            unit = self._of.schedule.aggregators[self._rank - ranks]
            elements = self._chunk.program.elements_of(step.blocks, self._chunk.elements)
            taken_ns = unit.occupied_ns(elements * self._of.schedule.shape.element_bytes)
            follows = any(isinstance(operation, Occupy) for operation in program)
            program.append(Occupy(unit.number, taken_ns, unit.latency_of_ns(follows)))
        if at in self._watched:
            program.append(Mark(self._of.mark("step", self._rank, self._chunk.index, at)))

    def _posted(self, at: At) -> int:
        return self._of.mark("posted", self._rank, self._chunk.index, at)

    def _wait(
        self, program: list[Operation], number: int, wanted: Iterable[At], waited: set[At]
    ) -> None:
        """Wait for the `wanted` steps and all that they stand on, one after the other as a thread
        does: of those who wait for one step, the first goes on first. A step of another sequence
        is waited for once it is posted. Those in `waited` are complete; this adds its own to
        them."""
        for at in wanted:
            if at in waited:
                continue
            waited.add(at)
            self._wait(program, number, self._waits[at.sequence][at.place].applied, waited)
            step = self._sequences[at.sequence].steps[at.place]
            if step.message is not None:
                message = self._numbers.get(step.message)
                if message is not None:
                    if at.sequence != number and at in self._shared:
                        program.append(Await([], [], [self._posted(at)]))
                    _await_next(program, message, step.action is Action.SEND)
            elif at in self._watched and self._is_elsewhere(at, program):
                mark = self._of.mark("step", self._rank, self._chunk.index, at)
                program.append(Await([], [], [mark]))

    def _is_elsewhere(self, at: At, program: list[Operation]) -> bool:
        """Whether a local step is not one that this program has done before."""
        done = Mark(self._of.mark("step", self._rank, self._chunk.index, at))
        return done not in program

    def _part(self, phase: int, sequence: int) -> int:
        return self._of.mark("part", self._rank, self._chunk.index, phase, sequence)

    def _done(self, chunk: int, sequence: int) -> int:
        return self._of.mark("done", self._rank, chunk, sequence)


def _await_next(program: list[Operation], message: int, is_send: bool) -> None:
    """Wait for a message after all that the program waits for. One wait has its sends before its
    receives."""
    last = program[-1] if program else None
    if not isinstance(last, Await) or last.marks or (is_send and last.receives):
        last = Await([], [])
        program.append(last)
    (last.sends if is_send else last.receives).append(message)
