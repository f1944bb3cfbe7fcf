"""MSCCL algorithm files: a collective's schedule as XML for MSCCL's interpreter on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from xml.etree import ElementTree

from collectives.kinds import Kind
from collectives.msccl import names
from collectives.msccl.names import MAX_STEPS, MAX_THREAD_BLOCKS

COLLECTIVES = {
    kind: names.COLLECTIVES[kind]
    for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
}
"""Those whose schedule in Gloo has a form in MSCCL."""


@dataclass(frozen=True, slots=True)
class MscclStep:
    """One instruction: chunk `source` of buffer `source_buffer` to `target` of `target_buffer`.

    Instructions: s send, r receive, cpy copy, rcs receive, copy and send on, rrs receive, reduce
    and send on, rrc receive, reduce and keep, rrcs all of these. Buffers: i input, o output.
    """

    instruction: str
    source_buffer: str
    source: int
    target_buffer: str
    target: int


@dataclass(slots=True)
class ThreadBlock:
    """A thread block: the peers it sends to and receives from (-1 for none), and its steps."""

    send: int
    receive: int
    steps: list[MscclStep] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MscclProgram:
    """A collective's schedule. `gpus[rank]` are its thread blocks; chunks count per buffer."""

    collective: str
    in_place: bool
    input_chunks: int
    output_chunks: int
    gpus: tuple[tuple[ThreadBlock, ...], ...]


def build_program(kind: str, ranks: int) -> MscclProgram:
    """The schedule that Gloo uses, one chunk per shard: rings for all-reduce and reduce-scatter
    (data flows to the rank before), a ring for all-gather (to the rank after), every peer at once
    for all-to-all. `kind` is torch's name for the collective.

    Raises ValueError for other collectives, fewer than two ranks, and schedules beyond the
    interpreter's limits.
    """
    if kind not in COLLECTIVES:
        raise ValueError(f"MSCCL has no {kind}: allowed are {', '.join(COLLECTIVES)}")
    if ranks < 2:
        raise ValueError(f"found {ranks} ranks, a schedule needs at least 2")
    builders: dict[str, Callable[[int, int], tuple[ThreadBlock, ...]]] = {
        Kind.ALL_REDUCE: _all_reduce,
        Kind.ALL_GATHER: _all_gather,
        Kind.REDUCE_SCATTER: _summed_shards,
        Kind.ALL_TO_ALL: _all_to_all,
    }
    builder = builders[kind]
    gpus = tuple(builder(rank, ranks) for rank in range(ranks))
    steps = max(len(block.steps) for blocks in gpus for block in blocks)
    if steps > MAX_STEPS or max(len(blocks) for blocks in gpus) > MAX_THREAD_BLOCKS:
        raise ValueError(
            f"{kind} over {ranks} ranks takes {steps} steps in {len(gpus[0])} thread blocks; "
            f"MSCCL allows {MAX_STEPS} and {MAX_THREAD_BLOCKS}"
        )
    return MscclProgram(
        COLLECTIVES[Kind(kind)],
        in_place=kind == Kind.ALL_REDUCE,
        input_chunks=1 if kind == Kind.ALL_GATHER else ranks,
        output_chunks=1 if kind == Kind.REDUCE_SCATTER else ranks,
        gpus=gpus,
    )


def render_program(program: MscclProgram, name: str) -> str:
    """The XML, in the form that MSCCL's parser reads (`step` elements).

    In place, input and output are one buffer, and only the input's chunks are counted.
    """
    root = ElementTree.Element(
        "algo",
        name=name,
        proto="Simple",
        nchannels="1",
        nchunksperloop=str(max(program.input_chunks, program.output_chunks)),
        ngpus=str(len(program.gpus)),
        coll=program.collective,
        inplace=str(int(program.in_place)),
        outofplace=str(int(not program.in_place)),
        minBytes="0",
        maxBytes="0",
    )
    for rank, blocks in enumerate(program.gpus):
        gpu = ElementTree.SubElement(
            root,
            "gpu",
            id=str(rank),
            i_chunks=str(program.input_chunks),
            o_chunks=str(0 if program.in_place else program.output_chunks),
            s_chunks="0",
        )
        for number, block in enumerate(blocks):
            element = ElementTree.SubElement(
                gpu, "tb", id=str(number), send=str(block.send), recv=str(block.receive), chan="0"
            )
            for position, step in enumerate(block.steps):
                ElementTree.SubElement(
                    element,
                    "step",
                    s=str(position),
                    type=step.instruction,
                    srcbuf=step.source_buffer,
                    srcoff=str(step.source),
                    dstbuf=step.target_buffer,
                    dstoff=str(step.target),
                    cnt="1",
                    depid="-1",
                    deps="-1",
                    hasdep="0",
                )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _all_reduce(rank: int, ranks: int) -> tuple[ThreadBlock, ...]:
    """Reduce-scatter, then all-gather, round one ring in place."""
    block = ThreadBlock((rank - 1) % ranks, (rank + 1) % ranks)
    for position in range(2 * ranks - 1):
        chunk = (rank + 1 + position) % ranks
        if position == 0:
            instruction = "s"
        elif position < ranks - 1:
            instruction = "rrs"
        elif position == ranks - 1:
            instruction = "rrcs"
        elif position < 2 * ranks - 2:
            instruction = "rcs"
        else:
            instruction = "r"
        block.steps.append(MscclStep(instruction, "i", chunk, "i", chunk))
    return (block,)


def _summed_shards(rank: int, ranks: int) -> tuple[ThreadBlock, ...]:
    block = ThreadBlock((rank - 1) % ranks, (rank + 1) % ranks)
    for position in range(ranks - 1):
        chunk = (rank + 1 + position) % ranks
        block.steps.append(MscclStep("rrs" if position else "s", "i", chunk, "i", chunk))
    block.steps.append(MscclStep("rrc", "i", rank, "o", 0))
    return (block,)


def _all_gather(rank: int, ranks: int) -> tuple[ThreadBlock, ...]:
    block = ThreadBlock((rank + 1) % ranks, (rank - 1) % ranks)
    block.steps.append(MscclStep("cpy", "i", 0, "o", rank))
    block.steps.append(MscclStep("s", "o", rank, "o", rank))
    for position in range(1, ranks):
        chunk = (rank - position) % ranks
        instruction = "rcs" if position < ranks - 1 else "r"
        block.steps.append(MscclStep(instruction, "o", chunk, "o", chunk))
    return (block,)


def _all_to_all(rank: int, ranks: int) -> tuple[ThreadBlock, ...]:
    """A thread block per pair of peers, and one for the chunk that stays."""
    blocks = [ThreadBlock(-1, -1, [MscclStep("cpy", "i", rank, "o", rank)])]
    for shift in range(1, ranks):
        there, here = (rank + shift) % ranks, (rank - shift) % ranks
        block = ThreadBlock(there, here)
        block.steps.append(MscclStep("s", "i", there, "o", rank))
        block.steps.append(MscclStep("r", "i", rank, "o", here))
        blocks.append(block)
    return tuple(blocks)
