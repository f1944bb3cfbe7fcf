"""Proves a program right, or says what is wrong with it, without running it.

Every block's contents are followed as the set of contributions that they are made of. Messages move
only when both their ends are posted (rendezvous), which is the strictest transport there is: a
program that ends so ends on every other. The order in which steps happen to be followed does not
matter, as conflicting steps that are not ordered by the program itself are refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from collectives.kinds import Kind
from collectives.program import (
    PROGRAM_KINDS,
    RECEIVES,
    Action,
    At,
    Blocks,
    Buffer,
    Division,
    Program,
    Sequence,
    Step,
)
from collectives.waits import Waits, reads, waits_of, writes

_Piece = tuple[int, int, int]
"""Blocks in a row: how many, the identity of the first one, which those of the others follow, and
the ranks whose contributions they hold as bits."""
_Key = tuple[Buffer, int]


class WrongProgram(ValueError):
    """A program that does not do what its collective defines. `participant` and `at` are the step
    that shows it, if there is one."""

    def __init__(self, reason: str, participant: int | None = None, at: At | None = None) -> None:
        where = ""
        if participant is not None:
            where = f"rank {participant}"
            if at is not None:
                where += f", sequence {at.sequence}, step {at.place}"
            where += ": "
        super().__init__(where + reason)
        self.reason = reason
        self.participant = participant
        self.at = at


def verify(program: Program) -> None:
    """Every rank ends with exactly the contributions that the collective defines, once each;
    nothing deadlocks; nothing is read before it is there. Raises WrongProgram."""
    if program.kind not in PROGRAM_KINDS:
        raise WrongProgram(f"found {program.kind}, allowed are {', '.join(PROGRAM_KINDS)}")
    _check_form(program)
    run = _Run(program)
    run.follow()
    run.check_result()


def staging_blocks(program: Program) -> int:
    """Blocks that receive-and-reduces under way may take at once at one participant, at most."""
    staged = frozenset({Action.REDUCE})
    return max(_received_blocks(program, sequences, staged) for sequences in program.participants)


def blocks_in_lines(program: Program) -> int:
    """Blocks that one participant holds at once, at most, where messages are put together before
    they are sent and taken apart when they have come: all that it sends, and receives under way."""
    most = 0
    for sequences in program.participants:
        steps = (step for sequence in sequences for step in sequence.steps)
        sent = sum(step.blocks.count for step in steps if step.action is Action.SEND)
        most = max(most, sent + _received_blocks(program, sequences, RECEIVES))
    return most


def _received_blocks(
    program: Program, sequences: tuple[Sequence, ...], held: frozenset[Action]
) -> int:
    """Blocks of receives under way at once, at most, of those of these kinds."""
    total = 0
    for sequence in sequences:
        counts = [
            step.blocks.count if step.action in held else 0
            for step in sequence.steps
            if step.action in RECEIVES
        ]
        window = program.window or max(1, len(counts))
        starts = range(max(1, len(counts) - window + 1))
        total += max(sum(counts[start : start + window]) for start in starts)
    return total


def _check_form(program: Program) -> None:
    """Messages have two ends that agree, blocks exist and have the same length at both."""
    if program.window is not None and program.window < 1:
        raise WrongProgram(f"window: found {program.window}, allowed are 1 and more")
    sends: dict[int, tuple[int, At, Step]] = {}
    receives: dict[int, tuple[int, At, Step]] = {}
    exist = {buffer: program.blocks_of(buffer) for buffer in Buffer}
    of_switches = exist | {Buffer.INPUT: 0, Buffer.OUTPUT: 0}
    for participant, at, step in program.steps():
        own = exist if participant < program.ranks else of_switches
        _check_step(program, participant, at, step, own)
        if step.message is None:
            continue
        ends = sends if step.action is Action.SEND else receives
        if step.message in ends:
            raise WrongProgram(f"message {step.message} has two such ends", participant, at)
        ends[step.message] = participant, at, step
    for number, (participant, at, step) in (sends | receives).items():
        if number not in sends or number not in receives:
            peer = "receives" if number in sends else "sends"
            reason = f"{step.action} of message {number}: rank {step.peer} never {peer} it"
            raise WrongProgram(reason, participant, at)
        sender, _, send = sends[number]
        receiver, there, receive = receives[number]
        if send.peer != receiver or receive.peer != sender:
            reason = f"message {number} goes to rank {send.peer}, where rank {receiver} receives it"
            raise WrongProgram(reason, participant, at)
        _check_lengths(program, send.blocks, receive.blocks, receiver, there)


_ENDS = {
    Action.SEND: (True, False),
    Action.RECEIVE: (False, True),
    Action.REDUCE: (False, True),
    Action.COPY: (True, True),
    Action.ADD: (True, True),
}
"""Whether each step has a source and a target."""


def _check_step(
    program: Program, participant: int, at: At, step: Step, blocks_of: Mapping[Buffer, int]
) -> None:
    def wrong(reason: str) -> WrongProgram:
        return WrongProgram(f"{step.action}: {reason}", participant, at)

    has = (step.source is not None, step.target is not None)
    needs = _ENDS[step.action]
    if has != needs:
        raise wrong("source or target is missing or too many")
    local = step.action in (Action.COPY, Action.ADD)
    if local != (step.peer is None) or local != (step.message is None):
        raise wrong("messages have a peer and a number, other steps have neither")
    if step.peer is not None and not 0 <= step.peer < len(program.participants):
        raise wrong(f"found peer {step.peer}, allowed are 0 to {len(program.participants) - 1}")
    if step.peer == participant:
        raise wrong("the peer is the rank itself")
    if not 0 <= step.phase < len(program.phases):
        raise wrong(f"found phase {step.phase}, allowed are 0 to {len(program.phases) - 1}")
    for blocks in (step.source, step.target):
        if blocks is None:
            continue
        if program.in_place and blocks.buffer is Buffer.OUTPUT:
            raise wrong("in place, the output is the input")
        exist = blocks_of[blocks.buffer]
        if blocks.count < 1 or blocks.start < 0 or blocks.start + blocks.count > exist:
            found = f"{blocks.start} to {blocks.start + blocks.count - 1}"
            raise wrong(f"found {blocks.buffer} blocks {found}, there are {exist}")
        if blocks is step.target and blocks.buffer is Buffer.INPUT and not program.in_place:
            raise wrong("the caller's input is written")
    for other in step.after:
        sequences = program.participants[participant]
        if not (
            0 <= other.sequence < len(sequences)
            and 0 <= other.place < len(sequences[other.sequence].steps)
        ):
            raise wrong(f"waits for step {other.place} of sequence {other.sequence}: none such")
    if local:
        assert step.source is not None
        assert step.target is not None
        _check_lengths(program, step.source, step.target, participant, at)


def _check_lengths(
    program: Program, source: Blocks, target: Blocks, participant: int, at: At
) -> None:
    pieces = 1 if program.division is Division.EQUAL else program.pieces
    if source.count != target.count or (source.start - target.start) % pieces:
        reason = f"{source} and {target} need not be of the same length"
        raise WrongProgram(reason, participant, at)


@dataclass(slots=True)
class _Access:
    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _Contents:
    """The contents of a buffer's blocks, in pieces: a message moves many blocks, most of which were
    moved together before."""

    def __init__(self, blocks: int) -> None:
        self._starts = [0, blocks]
        """The first block of each piece, and at last the number of blocks."""
        self._shifts = [0]
        """By piece: how far the identity of a block is from its number."""
        self._ranks = [0]
        """By piece: whose contributions it holds, 0 where it was never set."""

    def read(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """The first block, count, identity and ranks of each piece of some blocks; the ranks of
        those that were never set are 0."""
        piece = bisect_right(self._starts, start) - 1
        while start < end:
            until = min(self._starts[piece + 1], end)
            yield start, until - start, start + self._shifts[piece], self._ranks[piece]
            start, piece = until, piece + 1

    def set(self, start: int, piece: _Piece) -> None:
        """Replace blocks."""
        count, identity, ranks = piece
        first, end = self._cut(start), self._cut(start + count)
        self._starts[first:end] = [start]
        self._shifts[first:end] = [identity - start]
        self._ranks[first:end] = [ranks]
        self._join(first + 1)
        self._join(first)

    def add(self, start: int, count: int, ranks: int) -> None:
        """Blocks hold the contributions of further ranks."""
        first, end = self._cut(start), self._cut(start + count)
        for piece in range(first, end):
            self._ranks[piece] |= ranks
        for piece in range(end, first - 1, -1):
            self._join(piece)

    def _join(self, piece: int) -> None:
        """A piece and the one before it are one where they go on alike: what is moved on together
        is followed together."""
        if not 0 < piece < len(self._ranks) or self._shifts[piece] != self._shifts[piece - 1]:
            return
        if self._ranks[piece] == self._ranks[piece - 1]:
            del self._starts[piece], self._shifts[piece], self._ranks[piece]

    def _cut(self, block: int) -> int:
        """The piece that begins with a block."""
        piece = bisect_left(self._starts, block)
        if self._starts[piece] != block:
            self._starts.insert(piece, block)
            self._shifts.insert(piece, self._shifts[piece - 1])
            self._ranks.insert(piece, self._ranks[piece - 1])
        return piece


class _Participant:
    """One participant: its blocks' contents, and which steps are ordered before which."""

    def __init__(self, program: Program, number: int) -> None:
        self.number = number
        self.waits: tuple[tuple[Waits, ...], ...] = waits_of(program, number)
        self.sequences = program.participants[number]
        self.next = [0] * len(self.sequences)
        self.contents = {each: _Contents(program.blocks_of(each)) for each in Buffer}
        self.access: dict[_Key, _Access] = defaultdict(_Access)
        self.complete: set[At] = set()
        self.awaited: dict[At, list[At]] = defaultdict(list)
        """By step that is not complete: the steps to look at again once it is."""
        # Steps are numbered to be bits: what is complete before a step is posted (and, for the
        # next of its sequence, because it is posted).
        self.first = [0]
        for sequence in self.sequences:
            self.first.append(self.first[-1] + len(sequence.steps))
        self.before: dict[At, int] = {}
        self.known = [0] * len(self.sequences)

    def bit(self, at: At) -> int:
        return self.first[at.sequence] + at.place

    def at(self, bit: int) -> At:
        sequence = max(i for i, first in enumerate(self.first[:-1]) if first <= bit)
        return At(sequence, bit - self.first[sequence])

    def is_free(self, at: At, waits: tuple[At, ...]) -> bool:
        """Whether all that a step waits for is complete; else the step is looked at again later."""
        if self.complete.issuperset(waits):
            return True
        missing = next(other for other in waits if other not in self.complete)
        self.awaited[missing].append(at)
        return False

    def post(self, at: At) -> None:
        sequence = at.sequence
        self.next[sequence] += 1
        if len(self.sequences) < 2:
            return
        waits = self.waits[sequence][at.place]
        before = self.known[sequence]
        for other in waits.posted:
            before |= self.before[other] | 1 << self.bit(other)
        self.known[sequence] = before
        for other in waits.applied:
            before |= self.before[other] | 1 << self.bit(other)
        self.before[at] = before

    def check_order(self, at: At, step: Step) -> None:
        """Conflicting steps that came before must be complete because the program says so. In one
        sequence they wait for each other."""
        if len(self.sequences) < 2:
            return
        before = self.before[at]
        written = writes(step)
        for block in reads(step) | written:
            access = self.access[block]
            others = [] if access.writer is None else [access.writer]
            others += access.readers if block in written else []
            for other in others:
                if not before >> other & 1:
                    place = self.at(other)
                    reason = (
                        f"{step.action} is not ordered after step {place.place} of sequence "
                        f"{place.sequence}, which uses {block[0]} block {block[1]} too"
                    )
                    raise WrongProgram(reason, self.number, at)
        for block in written:
            self.access[block] = _Access(self.bit(at))
        for block in reads(step) - written:
            self.access[block].readers.append(self.bit(at))


class _Run:
    """A program that is being followed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.all = [_Participant(program, n) for n in range(len(program.participants))]
        for rank in range(program.ranks):
            identity = _first_identity(program, rank)
            if identity is not None and program.input_blocks:
                given = program.input_blocks, identity, 1 << rank
                self.all[rank].contents[Buffer.INPUT].set(0, given)
        self.sent: dict[int, tuple[_Participant, At]] = {}
        self.invited: dict[int, tuple[_Participant, At]] = {}
        self.arrived: dict[tuple[int, At], list[_Piece]] = {}
        self.free: list[tuple[_Participant, At]] = []
        """Steps that may go on: those to be posted next, and messages that have come."""

    def follow(self) -> None:
        """Post and complete whatever can be, until nothing can."""
        for participant in reversed(self.all):
            for number in reversed(range(len(participant.sequences))):
                if participant.sequences[number].steps:
                    self.free.append((participant, At(number, 0)))
        while self.free:
            me, at = self.free.pop()
            if (me.number, at) in self.arrived:
                self._apply(me, at)
            else:
                self._post_from(me, at)
        for participant in self.all:
            for sequence, place in enumerate(participant.next):
                if place < len(participant.sequences[sequence].steps):
                    self._report_deadlock()
        if self.sent or self.invited or self.arrived:
            self._report_deadlock()

    def _post_from(self, me: _Participant, at: At) -> None:
        """Post the steps of a sequence, from one on, up to the first that has to wait."""
        steps, waits = me.sequences[at.sequence].steps, me.waits[at.sequence]
        for place in range(at.place, len(steps)):
            at = At(at.sequence, place)
            if not me.is_free(at, waits[place].posted):
                return
            me.post(at)
            step = steps[place]
            if step.message is None:
                self._do_locally(me, at, step)
                continue
            mine, theirs = self.sent, self.invited
            if step.action in RECEIVES:
                mine, theirs = theirs, mine
            if step.action is Action.SEND:
                me.check_order(at, step)
            mine[step.message] = me, at
            if step.message in theirs:
                self._move(step.message)

    def _move(self, message: int) -> None:
        """Both ends are posted: the message goes over."""
        sender, at_send = self.sent.pop(message)
        receiver, at_receive = self.invited.pop(message)
        send = sender.sequences[at_send.sequence].steps[at_send.place]
        assert send.source is not None
        self.arrived[receiver.number, at_receive] = self._read(sender, at_send, send.source)
        self._complete(sender, at_send)
        self._apply(receiver, at_receive)

    def _apply(self, me: _Participant, at: At) -> None:
        """A message that has come is applied as soon as what it waits for is complete."""
        if not me.is_free(at, me.waits[at.sequence][at.place].applied):
            return
        step = me.sequences[at.sequence].steps[at.place]
        me.check_order(at, step)
        self._write(me, at, step, self.arrived.pop((me.number, at)))
        self._complete(me, at)

    def _complete(self, me: _Participant, at: At) -> None:
        me.complete.add(at)
        self.free += [(me, other) for other in me.awaited.pop(at, ())]

    def _do_locally(self, me: _Participant, at: At, step: Step) -> None:
        assert step.source is not None
        me.check_order(at, step)
        values = self._read(me, at, step.source)
        self._write(me, at, step, values)
        self._complete(me, at)

    def _read(self, me: _Participant, at: At, blocks: Blocks) -> list[_Piece]:
        found = []
        contents = me.contents[blocks.buffer]
        for first, count, identity, ranks in contents.read(
            blocks.start, blocks.start + blocks.count
        ):
            if not ranks:
                reason = f"{blocks.buffer} block {first} is read before it is set"
                raise WrongProgram(reason, me.number, at)
            found.append((count, identity, ranks))
        return found

    def _write(self, me: _Participant, at: At, step: Step, values: list[_Piece]) -> None:
        target = step.target
        assert target is not None
        contents, start = me.contents[target.buffer], target.start
        for count, identity, ranks in values:
            if step.action in (Action.REDUCE, Action.ADD):
                for piece in contents.read(start, start + count):
                    self._check_sum(me, at, target.buffer, piece, identity - start, ranks)
                contents.add(start, count, ranks)
            else:
                contents.set(start, (count, identity, ranks))
            start += count

    def _check_sum(
        self,
        me: _Participant,
        at: At,
        buffer: Buffer,
        piece: tuple[int, int, int, int],
        shift: int,
        ranks: int,
    ) -> None:
        """Blocks that others are added to are there, of the same identity, and of other ranks."""
        first, _, identity, held = piece
        if held and identity == first + shift and not held & ranks:
            return
        name = f"{buffer} block {first}"
        if not held:
            raise WrongProgram(f"{name} is read before it is set", me.number, at)
        if identity != first + shift:
            raise WrongProgram(f"{name} is reduced with another piece", me.number, at)
        twice = (held & ranks).bit_length() - 1
        raise WrongProgram(f"{name} gets rank {twice}'s contribution twice", me.number, at)

    def _report_deadlock(self) -> None:
        for me in self.all:
            for number, sequence in enumerate(me.sequences):
                place = me.next[number]
                if place < len(sequence.steps):
                    missing = [at for at in me.waits[number][place].posted if at not in me.complete]
                    reason = (
                        f"deadlock: {sequence.steps[place].action} waits forever for step "
                        f"{missing[0].place} of sequence {missing[0].sequence}"
                    )
                    raise WrongProgram(reason, me.number, At(number, place))
        for ends in (self.sent, self.invited):
            for message, (me, at) in ends.items():
                raise WrongProgram(f"deadlock: message {message} never moves", me.number, at)
        raise WrongProgram("deadlock")

    def check_result(self) -> None:
        """Every rank has what the collective gives it."""
        program = self.program
        buffer = Buffer.INPUT if program.in_place else Buffer.OUTPUT
        for me in self.all[: program.ranks]:
            start = 0
            for count, identity, ranks in _expected(program, me.number):
                for piece in me.contents[buffer].read(start, start + count):
                    first, _, found, held = piece
                    if (found, held) != (identity + first - start, ranks):
                        self._report_wrong(me, piece, identity + first - start, ranks)
                start += count

    def _report_wrong(
        self, me: _Participant, piece: tuple[int, int, int, int], identity: int, ranks: int
    ) -> None:
        block, _, found, held = piece
        if not held:
            reason = f"output block {block} is never set"
        elif found != identity:
            reason = f"output block {block} ends with another piece"
        else:
            missing = [r for r in range(self.program.ranks) if ranks & ~held >> r & 1]
            reason = f"output block {block} lacks the contributions of ranks {missing}"
        raise WrongProgram(reason, me.number)


def _first_identity(program: Program, rank: int) -> int | None:
    """Which piece of the collective's data a rank's first input block is; the others follow. None
    where the input has nothing."""
    match program.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE | Kind.REDUCE_SCATTER:
            return 0
        case Kind.ALL_GATHER | Kind.ALL_TO_ALL:
            return rank * program.input_blocks
        case _:
            return 0 if rank == program.root else None


def _expected(program: Program, rank: int) -> Iterator[_Piece]:
    """The contents that a rank's output must have in the end, from the first block on; nothing for
    any."""
    everybody = (1 << program.ranks) - 1
    pieces, blocks = program.pieces, program.output_blocks
    match program.kind:
        case Kind.ALL_REDUCE:
            yield blocks, 0, everybody
        case Kind.REDUCE:
            if rank == program.root:
                yield blocks, 0, everybody
        case Kind.REDUCE_SCATTER:
            yield blocks, rank * pieces, everybody
        case Kind.ALL_GATHER:
            for source in range(program.ranks):
                yield pieces, source * pieces, 1 << source
        case Kind.ALL_TO_ALL:
            for source in range(program.ranks):
                yield pieces, source * program.input_blocks + rank * pieces, 1 << source
        case _:
            yield blocks, 0, 1 << program.root
