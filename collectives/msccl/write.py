"""Write a program as an MSCCL algorithm file.

MSCCL runs the steps of a thread block strictly one after the other, and a thread block has one peer
to send to and one to receive from. So a sequence becomes a thread block per peer and direction, and
one for local steps; the program's other orders become dependencies.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from xml.etree import ElementTree

from collectives.msccl import extras
from collectives.msccl.names import BUFFERS, COLLECTIVES, MAX_STEPS, MAX_THREAD_BLOCKS
from collectives.program import MESSAGES, Action, At, Blocks, Program, Step
from collectives.waits import waits_of

_TYPES = {
    Action.SEND: "s",
    Action.RECEIVE: "r",
    Action.REDUCE: "rrc",
    Action.COPY: "cpy",
    Action.ADD: "re",
}


class NotWritable(ValueError):
    """A program that MSCCL's format or interpreter has no place for."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A step of the file: of the program, or one that only waits."""

    at: At | None
    step: Step | None
    waits_for: At | None


@dataclass(slots=True)
class _Block:
    channel: int
    send: int
    receive: int
    lines: list[_Line]


def write(program: Program, name: str = "") -> str:
    """The XML. Raises NotWritable."""
    if program.kind not in COLLECTIVES or len(program.participants) > program.ranks:
        raise NotWritable(f"MSCCL has no {program.kind} with switches that take part")
    targets = _remote_ends(program)
    gpus = [_blocks_of(program, rank) for rank in range(program.ranks)]
    _check_order(program, gpus)
    most = max((block.channel for blocks in gpus for block in blocks), default=0)
    attributes = {
        "name": name or program.algorithm or str(program.kind),
        "proto": "Simple",
        "nchannels": str(most + 1),
        "nchunksperloop": str(max(program.input_blocks, program.output_blocks)),
        "ngpus": str(program.ranks),
        "coll": COLLECTIVES[program.kind],
        "inplace": str(int(program.in_place)),
        "outofplace": str(int(not program.in_place)),
        "minBytes": "0",
        "maxBytes": "0",
    }
    root = ElementTree.Element("algo", attributes | extras.of_program(program))
    for phase in program.phases:
        ElementTree.SubElement(root, "phase", extras.of_phase(phase))
    for rank, blocks in enumerate(gpus):
        gpu = ElementTree.SubElement(
            root,
            "gpu",
            id=str(rank),
            i_chunks=str(program.input_blocks),
            o_chunks=str(0 if program.in_place else program.output_blocks),
            s_chunks=str(program.scratch_blocks),
        )
        _write_gpu(gpu, blocks, targets)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _blocks_of(program: Program, rank: int) -> list[_Block]:
    """The thread blocks of a GPU."""
    blocks: list[_Block] = []
    waits = waits_of(program, rank)
    home: dict[At, int] = {}
    for number, sequence in enumerate(program.participants[rank]):
        own: dict[tuple[int, int], int] = {}
        for place, step in enumerate(sequence.steps):
            key = _peers(step)
            if key not in own:
                own[key] = len(blocks)
                blocks.append(_Block(sequence.channel, *key, []))
            home[At(number, place)] = own[key]
    # A step waits for those of other thread blocks; of several in one, for the last.
    for number, sequence in enumerate(program.participants[rank]):
        done: dict[int, dict[int, At]] = defaultdict(dict)
        for place, step in enumerate(sequence.steps):
            at = At(number, place)
            block = home[at]
            needed: dict[int, At] = {}
            for other in (*waits[number][place].posted, *waits[number][place].applied):
                there = home[other]
                if there != block:
                    needed[there] = max(other, needed.get(there, other))
            new = {
                there: other
                for there, other in needed.items()
                if _is_new(done[block], there, other)
            }
            done[block].update(new)
            waits_for = list(new.values())
            blocks[block].lines += [_Line(None, None, other) for other in waits_for[:-1]]
            blocks[block].lines.append(_Line(at, step, waits_for[-1] if waits_for else None))
    if len(blocks) > MAX_THREAD_BLOCKS:
        raise NotWritable(
            f"{len(blocks)} thread blocks for gpu {rank}, MSCCL has {MAX_THREAD_BLOCKS}"
        )
    most = max((len(block.lines) for block in blocks), default=0)
    if most > MAX_STEPS:
        raise NotWritable(f"{most} steps in a thread block, MSCCL has {MAX_STEPS}")
    _check_ends(blocks, rank)
    return blocks


def _is_new(done: dict[int, At], there: int, other: At) -> bool:
    return there not in done or done[there] < other


def _peers(step: Step) -> tuple[int, int]:
    if step.action not in MESSAGES:
        return -1, -1
    assert step.peer is not None
    return (step.peer, -1) if step.action is Action.SEND else (-1, step.peer)


def _check_ends(blocks: list[_Block], rank: int) -> None:
    seen = set()
    for block in blocks:
        key = block.send, block.receive, block.channel
        if key in seen and key[:2] != (-1, -1):
            raise NotWritable(
                f"two sequences of gpu {rank} share channel {block.channel} to a peer"
            )
        seen.add(key)


def _check_order(program: Program, gpus: list[list[_Block]]) -> None:
    """MSCCL has no message numbers: what is sent first to a peer is received first."""
    orders: dict[tuple[int, int, int], list[list[int]]] = defaultdict(list)
    for rank, blocks in enumerate(gpus):
        for block in blocks:
            numbers = [
                line.step.message
                for line in block.lines
                if line.step is not None and line.step.message is not None
            ]
            if block.send >= 0:
                orders[rank, block.send, block.channel].append(numbers)
            elif block.receive >= 0:
                orders[block.receive, rank, block.channel].append(numbers)
    for (sender, receiver, channel), (one, *others) in orders.items():
        if others != [one]:
            raise NotWritable(
                f"gpu {receiver} receives from gpu {sender} on channel {channel} in another order"
            )


def _remote_ends(program: Program) -> dict[int, tuple[Blocks, Blocks]]:
    """Both ends' blocks of every message."""
    sources: dict[int, Blocks] = {}
    targets: dict[int, Blocks] = {}
    for _, _, step in program.steps():
        if step.message is not None:
            (sources if step.action is Action.SEND else targets)[step.message] = step.blocks
    return {number: (sources[number], targets[number]) for number in sources}


def _write_gpu(
    gpu: ElementTree.Element, blocks: list[_Block], ends: dict[int, tuple[Blocks, Blocks]]
) -> None:
    place: dict[At, tuple[int, int]] = {}
    waited = set()
    for number, block in enumerate(blocks):
        for position, line in enumerate(block.lines):
            if line.at is not None:
                place[line.at] = number, position
            if line.waits_for is not None:
                waited.add(line.waits_for)
    for number, block in enumerate(blocks):
        element = ElementTree.SubElement(
            gpu,
            "tb",
            id=str(number),
            send=str(block.send),
            recv=str(block.receive),
            chan=str(block.channel),
        )
        for position, line in enumerate(block.lines):
            on, there = (-1, -1) if line.waits_for is None else place[line.waits_for]
            attributes = {
                "s": str(position),
                **_instruction(line.step, ends),
                "depid": str(on),
                "deps": str(there),
                "hasdep": str(int(line.at in waited)),
            }
            if line.step is not None and line.at is not None:
                attributes |= extras.of_step(line.at, line.step)
            ElementTree.SubElement(element, "step", attributes)


def _instruction(step: Step | None, ends: dict[int, tuple[Blocks, Blocks]]) -> dict[str, str]:
    if step is None:
        return {"type": "nop", **_named("src", None), **_named("dst", None), "cnt": "0"}
    source, target = step.source, step.target
    if step.message is not None:
        there, here = ends[step.message]
        source, target = (there, here)
        if step.action is Action.REDUCE:
            source = step.target  # the operand of the sum
    return {
        "type": _TYPES[step.action],
        **_named("src", source),
        **_named("dst", target),
        "cnt": str(step.blocks.count),
    }


def _named(end: str, blocks: Blocks | None) -> dict[str, str]:
    if blocks is None:
        return {f"{end}buf": "i" if end == "src" else "o", f"{end}off": "-1"}
    return {f"{end}buf": BUFFERS[blocks.buffer], f"{end}off": str(blocks.start)}
