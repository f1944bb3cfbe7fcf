"""Read an MSCCL algorithm file as a program, and prove it right.

A thread block becomes a sequence. MSCCL runs the steps of a thread block strictly one after the
other, with sends that buffer; here messages overlap where data allows it, which changes no result.
Fused instructions become their parts. Where a file's buffers are laid on each other otherwise than
a program's are, the data is copied at the start or the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from collectives.builder import renumbered
from collectives.kinds import Kind
from collectives.msccl.elements import Element, MscclError, parse
from collectives.msccl.extras import annotated, restored
from collectives.msccl.names import BUFFERS, COLLECTIVES, INSTRUCTIONS, RECEIVING, SENDING
from collectives.program import (
    IN_PLACE,
    MESSAGES,
    Action,
    At,
    Blocks,
    Buffer,
    Division,
    Phase,
    Program,
    Sequence,
    Step,
)
from collectives.verify import WrongProgram, verify
from collectives.waits import writes

_BUFFERS = {name: buffer for buffer, name in BUFFERS.items()}
_CHUNKS = 2**20
"""Fewer chunks than this: each takes memory here."""
_KINDS = {name: kind for kind, name in COLLECTIVES.items()}


def read_file(path: Path) -> Program:
    """The program of a file. Raises MscclError, and OSError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"bytes that are no UTF-8 text, at offset {error.start}"
        raise MscclError(str(path), 1, "", found, "XML in UTF-8") from error
    return read(text, str(path))


def read(text: str, source: str = "<xml>") -> Program:
    """The program of a document; `source` names it in errors. Raises MscclError."""
    return _Reader(parse(text, source)).read()


@dataclass(slots=True)
class _Gpu:
    """The part of a participant that has been read. `lines` has the element of each step."""

    sequences: list[list[Step]] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    lines: list[list[Element]] = field(default_factory=list)
    places: dict[tuple[int, int], At] = field(default_factory=dict)
    """Thread block and step -> the last step that it has become."""

    def add(self, sequence: int, step: Step, element: Element) -> None:
        self.sequences[sequence].append(step)
        self.lines[sequence].append(element)


class _Reader:
    def __init__(self, root: Element) -> None:
        if root.tag != "algo":
            raise root.wrong(f"element {root.tag}", "algo")
        self.root = root
        self.kind = _KINDS[root.text("coll", tuple(_KINDS))]
        self.ranks = root.number("ngpus", 2)
        self.in_place = root.attributes.get("inplace", "0") == "1"
        self.pieces = self._pieces()
        self.root_rank = 0
        if "root" in root.attributes:
            self.root_rank = root.number("root", 0, self.ranks)
        self.gpus: list[_Gpu] = []
        self.scratch = 0
        self.own = 0
        self.free = 0
        self.ends: dict[str, dict[tuple[int, int, int], list[tuple[int, At]]]] = {
            "send": defaultdict(list),
            "recv": defaultdict(list),
        }

    def read(self) -> Program:
        elements = self._gpu_elements()
        self.gpus = [_Gpu() for _ in elements]
        self.scratch = max(gpu.number("s_chunks", 0, _CHUNKS) for gpu in elements)
        # Copies of whole buffers lie behind the file's own scratch.
        self.own = self.scratch
        if self._needs_work_buffer:
            self.scratch += self._own_blocks
        begin = self.scratch
        for rank, element in enumerate(elements):
            self.free = begin
            self._read_gpu(rank, element)
            self.scratch = max(self.scratch, self.free)
        self._match_messages()
        if annotated(self.root):
            program = restored(self._program(), self.root, [gpu.lines for gpu in self.gpus])
        else:
            for rank, element in enumerate(elements):
                self._lay_buffers(rank, element)
            program = self._program()
        try:
            verify(program)
        except WrongProgram as wrong:
            raise self._located(wrong, elements) from wrong
        return renumbered(program)

    def _program(self) -> Program:
        return Program(
            self.kind,
            self.ranks,
            self.pieces,
            tuple(
                tuple(
                    Sequence(channel, tuple(steps))
                    for channel, steps in zip(gpu.channels, gpu.sequences, strict=True)
                )
                for gpu in self.gpus
            ),
            (Phase(self.kind.traits.label, self.kind),),
            self.scratch,
            division=Division.EQUAL,
            algorithm=self.root.attributes.get("name", ""),
            root=self.root_rank,
        )

    def _pieces(self) -> int:
        chunks = self.root.number("nchunksperloop", 1, _CHUNKS)
        if not self.kind.traits.splits:
            return chunks
        if chunks % self.ranks:
            allowed = f"multiples of ngpus for {COLLECTIVES[self.kind]}"
            raise self.root.wrong(f'nchunksperloop="{chunks}"', allowed)
        return chunks // self.ranks

    def _gpu_elements(self) -> list[Element]:
        found: dict[int, Element] = {}
        for element in self.root.named("gpu"):
            rank = element.number("id", 0, self.ranks)
            element.path = f"gpu {rank}"
            if rank in found:
                raise element.wrong(f"a second gpu {rank}", "one of each")
            found[rank] = element
        if len(found) < self.ranks:
            missing = next(rank for rank in range(self.ranks) if rank not in found)
            raise self.root.wrong(f"no gpu {missing}", f"gpu 0 to {self.ranks - 1}")
        return [found[rank] for rank in range(self.ranks)]

    def _read_gpu(self, rank: int, element: Element) -> None:
        gpu = self.gpus[rank]
        blocks: dict[int, Element] = {}
        for block in element.named("tb"):
            number = block.number("id", 0)
            block.path = f"gpu {rank}, tb {number}"
            if number in blocks:
                raise block.wrong(f"a second tb {number}", "one of each")
            blocks[number] = block
        if sorted(blocks) != list(range(len(blocks))):
            raise element.wrong(f"tb {sorted(blocks)}", "numbers from 0 without gaps")
        if self._copies_first:
            gpu.sequences.append([])
            gpu.channels.append(0)
            gpu.lines.append([])
        for number in range(len(blocks)):
            gpu.sequences.append([])
            gpu.channels.append(blocks[number].number("chan", 0))
            gpu.lines.append([])
            self._read_block(rank, number, blocks[number])
        self._add_waits(gpu, blocks)

    def _read_block(self, rank: int, number: int, block: Element) -> None:
        gpu = self.gpus[rank]
        peers = {end: block.number(end, -1, self.ranks) for end in ("send", "recv")}
        for end, peer in peers.items():
            if peer == rank:
                raise block.wrong(f'{end}="{peer}"', "another gpu, or -1 for none")
        sequence = len(gpu.sequences) - 1
        for place, element in enumerate(block.named("step")):
            element.path = f"{block.path}, step {place}"
            if element.number("s", 0) != place:
                raise element.wrong(f's="{element.text("s")}"', f"{place}: steps in order")
            kind = element.text("type", INSTRUCTIONS)
            for end, ends in (("send", SENDING), ("recv", RECEIVING)):
                if kind in ends and peers[end] < 0:
                    raise element.wrong(f"type {kind} in a tb with {end} -1", f"a {end} peer")
            for step in self._parts(rank, kind, element, peers):
                gpu.add(sequence, step, element)
                at = At(sequence, len(gpu.sequences[sequence]) - 1)
                if step.action in MESSAGES:
                    assert step.peer is not None
                    sends = step.action is Action.SEND
                    key = (rank, step.peer, gpu.channels[sequence])
                    if not sends:
                        key = (step.peer, rank, gpu.channels[sequence])
                    found = self.ends["send" if sends else "recv"][key]
                    if found and found[-1][1].sequence != sequence:
                        end = "send to" if sends else "receive from"
                        allowed = "one tb for each peer and channel"
                        raise element.wrong(f"a second tb that can {end} gpu {step.peer}", allowed)
                    found.append((rank, at))
            gpu.places[number, place] = At(sequence, len(gpu.sequences[sequence]) - 1)

    def _parts(self, rank: int, kind: str, element: Element, peers: dict[str, int]) -> list[Step]:
        """The steps of one instruction."""
        if kind == "nop":
            return []
        count = element.number("cnt", 1)
        send, receive = peers["send"], peers["recv"]

        def blocks(end: str) -> Blocks:
            return self._blocks(rank, element, end, count)

        match kind:
            case "s":
                return [Step(Action.SEND, blocks("src"), None, send)]
            case "r":
                return [Step(Action.RECEIVE, None, blocks("dst"), receive)]
            case "rcs":
                into = blocks("dst")
                return [
                    Step(Action.RECEIVE, None, into, receive),
                    Step(Action.SEND, into, None, send),
                ]
            case "cpy" | "re":
                action = Action.COPY if kind == "cpy" else Action.ADD
                return [Step(action, blocks("src"), blocks("dst"))]
        operand = blocks("src")
        if kind == "rrs":
            # The sum is sent on and not kept.
            into = Blocks(Buffer.SCRATCH, self.free, count)
            self.free += count
        else:
            into = blocks("dst")
        parts = [] if operand == into else [Step(Action.COPY, operand, into)]
        parts.append(Step(Action.REDUCE, None, into, receive))
        if kind != "rrc":
            parts.append(Step(Action.SEND, into, None, send))
        return parts

    def _blocks(self, rank: int, element: Element, end: str, count: int) -> Blocks:
        """Blocks that an element names, where they lie in a program."""
        buffer = _BUFFERS[element.text(f"{end}buf", tuple(_BUFFERS))]
        start = element.number(f"{end}off", 0)
        exist = self._exist(buffer)
        if start + count > exist:
            found = f'{end}buf="{buffer[0]}" {end}off="{start}" cnt="{count}"'
            raise element.wrong(found, f"chunks 0 to {exist - 1}" if exist else "another buffer")
        buffer, first = self._place(rank, buffer)
        return Blocks(buffer, first + start, count)

    def _exist(self, buffer: Buffer) -> int:
        """Chunks of a buffer of the file."""
        if buffer is Buffer.SCRATCH:
            return self.own
        whole = self.pieces * (self.ranks if self.kind.traits.splits else 1)
        shards = {Buffer.INPUT: Kind.ALL_GATHER, Buffer.OUTPUT: Kind.REDUCE_SCATTER}
        return self.pieces if self.kind is shards[buffer] else whole

    # The places of a file's buffers in a program's.

    @property
    def _needs_work_buffer(self) -> bool:
        """An input that is written (reduce-scatter, all-to-all in place), or one that must outlive
        the output in whose place a program has it."""
        if self.kind in (Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
            return self.in_place
        return self.kind in IN_PLACE and not self.in_place

    @property
    def _own_blocks(self) -> int:
        return self.pieces * (self.ranks if self.kind.traits.splits else 1)

    @property
    def _copies_first(self) -> bool:
        return self._needs_work_buffer or (self.kind is Kind.ALL_GATHER and self.in_place)

    def _place(self, rank: int, buffer: Buffer) -> tuple[Buffer, int]:
        """The buffer of a program, and the block in it, at which a buffer of the file begins."""
        shard = rank * self.pieces
        if buffer is Buffer.SCRATCH:
            return buffer, 0
        if self.kind in IN_PLACE:
            if self.in_place or buffer is Buffer.OUTPUT:
                return Buffer.INPUT, 0
            return Buffer.SCRATCH, self.own
        if not self.in_place:
            return buffer, 0
        if self.kind is Kind.ALL_GATHER:
            return Buffer.OUTPUT, shard if buffer is Buffer.INPUT else 0
        if self.kind is Kind.REDUCE_SCATTER:
            return Buffer.SCRATCH, self.own + (shard if buffer is Buffer.OUTPUT else 0)
        return Buffer.SCRATCH, self.own

    def _lay_buffers(self, rank: int, element: Element) -> None:
        """Copy into the work buffer first, and out of it in the end."""
        gpu = self.gpus[rank]
        if not self._copies_first:
            return
        if self.kind is Kind.ALL_GATHER:
            whole = Blocks(Buffer.INPUT, 0, self.pieces)
            into = Blocks(Buffer.OUTPUT, rank * self.pieces, self.pieces)
        else:
            whole = Blocks(Buffer.INPUT, 0, self._own_blocks)
            into = Blocks(Buffer.SCRATCH, self.own, self._own_blocks)
        if self.kind is not Kind.BROADCAST or rank == self.root_rank:
            gpu.add(0, Step(Action.COPY, whole, into), element)
            for steps in gpu.sequences[1:]:
                if steps:
                    steps[0] = replace(steps[0], after=(*steps[0].after, At(0, 0)))
        if self.kind in (Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
            everything = tuple(
                At(sequence, place)
                for sequence, steps in enumerate(gpu.sequences)
                for place in range(len(steps))
            )
            first, count = self.own, self._own_blocks
            if self.kind is Kind.REDUCE_SCATTER:
                first, count = self.own + rank * self.pieces, self.pieces
            source = Blocks(Buffer.SCRATCH, first, count)
            last = Step(Action.COPY, source, Blocks(Buffer.OUTPUT, 0, count), after=everything)
            gpu.sequences.append([])
            gpu.channels.append(0)
            gpu.lines.append([])
            gpu.add(len(gpu.sequences) - 1, last, element)

    # Waits between steps.

    def _add_waits(self, gpu: _Gpu, blocks: dict[int, Element]) -> None:
        """A dependency is on a step and on all those before it in its thread block."""
        first = 1 if self._copies_first else 0
        for number, block in blocks.items():
            pending: list[At] = []
            sequence = number + first
            begun = 0
            for place, element in enumerate(block.named("step")):
                on = (
                    element.number("depid", -1, len(blocks))
                    if "depid" in element.attributes
                    else -1
                )
                if on >= 0:
                    there = element.number("deps", 0)
                    if (on, there) not in gpu.places:
                        found = f'depid="{on}" deps="{there}"'
                        raise element.wrong(found, "a step of a tb of the same gpu")
                    if on != number:
                        pending += self._up_to(gpu, gpu.places[on, there], sequence)
                end = gpu.places[number, place].place + 1
                if end > begun and pending:
                    step = gpu.sequences[sequence][begun]
                    waits = tuple(sorted({*step.after, *pending}))
                    gpu.sequences[sequence][begun] = replace(step, after=waits)
                    pending = []
                begun = max(begun, end)

    def _up_to(self, gpu: _Gpu, at: At, waiting: int) -> list[At]:
        """The steps that must be complete: those that write, and sends of what will be written."""
        written = {block for step in gpu.sequences[waiting] for block in writes(step)}
        found = []
        for place, step in enumerate(gpu.sequences[at.sequence][: at.place + 1]):
            sends = step.action is Action.SEND
            assert step.source is not None or not sends
            if not sends or written & set(step.blocks):
                found.append(At(at.sequence, place))
        return found

    def _match_messages(self) -> None:
        """The k-th send of a pair and channel meets the k-th receive."""
        number = 0
        sends, receives = self.ends["send"], self.ends["recv"]
        for key in sorted(sends.keys() | receives.keys()):
            there, here = sends.get(key, []), receives.get(key, [])
            if len(there) != len(here):
                more, fewer = (there, here) if len(there) > len(here) else (here, there)
                rank, at = more[len(fewer)]
                raise (
                    self.gpus[rank]
                    .lines[at.sequence][at.place]
                    .wrong(
                        f"{len(there)} sends and {len(here)} receives from gpu {key[0]} to gpu "
                        f"{key[1]} on channel {key[2]}",
                        "as many of both",
                    )
                )
            for (sender, send), (receiver, receive) in zip(there, here, strict=True):
                for rank, at in ((sender, send), (receiver, receive)):
                    steps = self.gpus[rank].sequences[at.sequence]
                    steps[at.place] = replace(steps[at.place], message=number)
                number += 1

    def _located(self, wrong: WrongProgram, elements: list[Element]) -> MscclError:
        element = self.root
        if wrong.participant is not None:
            element = elements[wrong.participant]
            if wrong.at is not None and not annotated(self.root):
                lines = self.gpus[wrong.participant].lines
                element = lines[wrong.at.sequence][wrong.at.place]
        return element.wrong(wrong.reason, f"what {COLLECTIVES[self.kind]} defines")
