"""MSCCL XML: an interpreter of our own runs it and must end with the collective's result."""

from __future__ import annotations

from collections import deque
from xml.etree import ElementTree

import pytest

from analysis.exporters.msccl import COLLECTIVES, build_program, render_program
from collectives.msccl.names import MAX_STEPS

Chunk = frozenset[tuple[int, int]]
"""The contributions in a chunk: (rank, chunk of its input), reduced together."""


def _interpret(text: str) -> list[dict[str, dict[int, Chunk]]]:
    """Run the steps; sends do not block. Returns each GPU's buffers."""
    algorithm = ElementTree.fromstring(text)
    gpus = algorithm.findall("gpu")
    assert int(algorithm.attrib["ngpus"]) == len(gpus)
    buffers: list[dict[str, dict[int, Chunk]]] = [
        {
            "i": {c: frozenset({(rank, c)}) for c in range(int(gpu.attrib["i_chunks"]))},
            "o": {},
        }
        for rank, gpu in enumerate(gpus)
    ]
    blocks = [
        (rank, block, deque(block.findall("step")))
        for rank, gpu in enumerate(gpus)
        for block in gpu.findall("tb")
    ]
    wires: dict[tuple[int, int], deque[Chunk]] = {}
    progress = True
    while progress:
        progress = False
        for rank, block, steps in blocks:
            while steps:
                step, kind = steps[0].attrib, steps[0].attrib["type"]
                source, target = int(step["srcoff"]), int(step["dstoff"])
                held = buffers[rank]
                if kind.startswith("r"):
                    wire = wires.setdefault((int(block.attrib["recv"]), rank), deque())
                    if not wire:
                        break
                    value = wire.popleft()
                else:
                    value = held[step["srcbuf"]][source]
                if kind.startswith("rr"):
                    mine = held[step["srcbuf"]][source]
                    assert not value & mine, "a contribution was reduced twice"
                    value |= mine
                if kind in ("r", "cpy", "rcs", "rrc", "rrcs"):
                    held[step["dstbuf"]][target] = value
                if kind in ("s", "rcs", "rrs", "rrcs"):
                    wires.setdefault((rank, int(block.attrib["send"])), deque()).append(value)
                steps.popleft()
                progress = True
    assert not any(steps for *_, steps in blocks), "the schedule stalls"
    assert not any(wires.values()), "a message is never received"
    return buffers


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_schedule_does_what_it_is_called(kind: str, ranks: int) -> None:
    buffers = _interpret(render_program(build_program(kind, ranks), "test"))
    for rank, held in enumerate(buffers):
        buffer, expected = _result(kind, rank, ranks)
        assert held[buffer] == expected


def _result(kind: str, rank: int, ranks: int) -> tuple[str, dict[int, Chunk]]:
    """The buffer that holds a collective's result on a rank, and what must be in it."""
    summed = {c: frozenset((r, c) for r in range(ranks)) for c in range(ranks)}
    if kind == "all_reduce":
        return "i", summed
    if kind == "reduce_scatter":
        return "o", {0: summed[rank]}
    mine = 0 if kind == "all_gather" else rank
    return "o", {c: frozenset({(c, mine)}) for c in range(ranks)}


def test_what_msccl_cannot_run_is_refused() -> None:
    with pytest.raises(ValueError, match="MSCCL has no broadcast"):
        build_program("broadcast", 4)
    with pytest.raises(ValueError, match="at least 2"):
        build_program("all_reduce", 1)
    assert len(build_program("all_reduce", MAX_STEPS // 2).gpus[0][0].steps) < MAX_STEPS
    with pytest.raises(ValueError, match="MSCCL allows 256"):
        build_program("all_reduce", 200)
    with pytest.raises(ValueError, match="thread blocks"):
        build_program("all_to_all", 300)
