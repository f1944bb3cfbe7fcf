"""MSCCL's algorithm files: round trips, files as msccl-tools writes them, and wrong ones."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collectives.algorithms import algorithm
from collectives.algorithms.base import DoesNotFit
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from collectives.msccl.elements import MscclError
from collectives.msccl.read import read, read_file
from collectives.msccl.write import NotWritable, write
from collectives.program import Program

PROGRAMS = [
    pytest.param(chosen.program(kind, 8), id=f"{chosen.name}-{kind}")
    for chosen in (
        algorithm("ring"),
        algorithm("ring", channels=2, both_directions=True),
        algorithm("direct", in_flight=2),
        algorithm("double-binary-tree"),
        algorithm("tree"),
        algorithm("halving-doubling"),
        algorithm("bruck"),
        algorithm("pairwise"),
        algorithm("gloo-ring"),
        algorithm("two-step", ranks_per_node=4),
        algorithm("hierarchical", dimensions=[2, 4], across="ring", order=[1, 0]),
        algorithm("torus", dimensions=[2, 4]),
        algorithm("mesh", dimensions=[4, 2]),
    )
    for kind in sorted(chosen.kinds)
]


def as_others_write(text: str) -> str:
    """A file without what MSCCL's format has no place for."""
    text = re.sub(r' (at|after|phase|division|window|root)="[^"]*"', "", text)
    return re.sub(r"\s*<phase [^>]*/>", "", text)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_comes_back_as_it_was(program: Program) -> None:
    assert read(write(program)) == program


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_file_alone_says_enough_for_a_right_program(program: Program) -> None:
    """Reading verifies, so that lost order would be found; and writing that again says the same."""
    once = read(as_others_write(write(program)))
    assert (once.kind, once.ranks, once.pieces) == (program.kind, 8, program.pieces)
    assert len(once.messages()) == len(program.messages())
    assert read(write(once)) == once


@pytest.mark.parametrize("program", PROGRAMS)
def test_mscclss_interpreter_would_get_the_result(program: Program) -> None:
    """Thread blocks strictly in order, their dependencies, and sends that buffer 8 chunks."""
    buffers = interpret(write(program))
    kind, ranks, pieces = program.kind, program.ranks, program.pieces
    everybody = frozenset(range(ranks))
    for rank, held in enumerate(buffers):
        found = held["i" if program.in_place else "o"]
        for block in range(program.output_blocks):
            match kind:
                case Kind.ALL_REDUCE:
                    expected = (block, everybody)
                case Kind.REDUCE:
                    if rank:
                        continue
                    expected = (block, everybody)
                case Kind.REDUCE_SCATTER:
                    expected = (rank * pieces + block, everybody)
                case Kind.ALL_GATHER:
                    expected = (block % pieces, frozenset({block // pieces}))
                case Kind.ALL_TO_ALL:
                    expected = (rank * pieces + block % pieces, frozenset({block // pieces}))
                case _:
                    expected = (block, frozenset({0}))
            assert found[block] == expected


def interpret(text: str) -> list[dict[str, dict[int, tuple[int, frozenset[int]]]]]:
    """Each GPU's buffers in the end: which chunk of the input, of which ranks."""
    root = ElementTree.fromstring(text)
    gpus = root.findall("gpu")
    buffers = [
        {
            "i": {c: (c, frozenset({rank})) for c in range(int(gpu.attrib["i_chunks"]))},
            "o": {},
            "s": {},
        }
        for rank, gpu in enumerate(gpus)
    ]
    if root.attrib["coll"] == "broadcast":
        for held in buffers[1:]:
            held["i"].clear()
    wires: dict[tuple[int, int, str], deque[list[tuple[int, frozenset[int]]]]] = {}
    blocks = {
        (rank, int(tb.attrib["id"])): (tb, deque(tb.findall("step")))
        for rank, gpu in enumerate(gpus)
        for tb in gpu.findall("tb")
    }
    done = dict.fromkeys(blocks, 0)
    again = True
    while again:
        again = False
        for (rank, number), (tb, steps) in blocks.items():
            while steps:
                step = steps[0].attrib
                if int(step["depid"]) >= 0 and done[rank, int(step["depid"])] <= int(step["deps"]):
                    break
                kind, count = step["type"], int(step["cnt"])
                held, channel = buffers[rank], tb.attrib["chan"]
                source = [(step["srcbuf"], int(step["srcoff"]) + i) for i in range(count)]
                target = [(step["dstbuf"], int(step["dstoff"]) + i) for i in range(count)]
                if kind == "s":
                    wire = wires.setdefault((rank, int(tb.attrib["send"]), channel), deque())
                    if len(wire) == 8:
                        break
                    wire.append([held[b][o] for b, o in source])
                elif kind in ("r", "rrc"):
                    wire = wires.setdefault((int(tb.attrib["recv"]), rank, channel), deque())
                    if not wire:
                        break
                    values = wire.popleft()
                    for (b, o), (sb, so), value in zip(target, source, values, strict=True):
                        if kind == "rrc":
                            mine = held[sb][so]
                            assert mine[0] == value[0]
                            assert not mine[1] & value[1]
                            value = (value[0], mine[1] | value[1])
                        held[b][o] = value
                elif kind == "cpy":
                    for (b, o), (sb, so) in zip(target, source, strict=True):
                        held[b][o] = held[sb][so]
                else:
                    assert kind == "nop"
                steps.popleft()
                done[rank, number] += 1
                again = True
    assert not any(steps for _, steps in blocks.values()), "the schedule stalls"
    return buffers


# Files as msccl-tools' generators write them.


def step(place: int, kind: str, source: str, target: str, **more: object) -> str:
    values = {"cnt": 1, "depid": -1, "deps": -1, "hasdep": 0} | more
    extra = " ".join(f'{key}="{value}"' for key, value in values.items())
    return (
        f'<step s="{place}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" '
        f'dstbuf="{target[0]}" dstoff="{target[1:]}" {extra}/>'
    )


def algo(coll: str, gpus: list[list[str]], chunks: int, inplace: int, scratch: int = 0) -> str:
    lines = [
        f'<algo name="made" proto="LL" nchannels="1" nchunksperloop="{chunks}" '
        f'ngpus="{len(gpus)}" coll="{coll}" inplace="{inplace}">'
    ]
    for rank, blocks in enumerate(gpus):
        head = f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">'
        lines += [head, *blocks, "</gpu>"]
    return "\n".join([*lines, "</algo>"])


def block(number: int, send: int, receive: int, steps: list[str]) -> str:
    head = f'<tb id="{number}" send="{send}" recv="{receive}" chan="0">'
    return "\n".join([head, *steps, "</tb>"])


def all_pairs(ranks: int) -> str:
    """Everybody's input into everybody's scratch; the first thread block waits and sums up."""
    gpus = []
    for me in range(ranks):
        others = [peer for peer in range(ranks) if peer != me]
        blocks = []
        for number, peer in enumerate(others):
            steps = [
                step(0, "s", "i0", f"s{me}"),
                step(1, "r", "i0", f"s{peer}", hasdep=int(number > 0)),
            ]
            if number == 0:
                for k in range(1, len(others)):
                    steps.append(step(len(steps), "nop", "i-1", "o-1", depid=k, deps=1))
                for other in others:
                    steps.append(step(len(steps), "re", f"s{other}", "i0"))
            blocks.append(block(number, peer, peer, steps))
        gpus.append(blocks)
    return algo("allreduce", gpus, 1, inplace=1, scratch=ranks)


def fused_ring(ranks: int, coll: str, inplace: int) -> str:
    """One thread block per GPU with fused instructions."""
    gpus = []
    buffer = "i" if coll != "allgather" and inplace else "o"
    for me in range(ranks):
        send, receive = (me - 1) % ranks, (me + 1) % ranks
        steps: list[str] = []

        def add(kind: str, source: str, target: str, steps: list[str] = steps) -> None:
            steps.append(step(len(steps), kind, source, target))

        if coll == "allreduce":
            for k in range(2 * ranks - 1):
                chunk = (me + 1 + k) % ranks
                kind = "s" if k == 0 else "rrs" if k < ranks - 1 else "rrcs"
                kind = "rcs" if k >= ranks else kind
                kind = "r" if k == 2 * ranks - 2 else kind
                add(kind, f"i{chunk}", f"{buffer}{chunk}")
        elif coll == "reduce_scatter":
            for k in range(ranks - 1):
                chunk = (me + 1 + k) % ranks
                add("rrs" if k else "s", f"i{chunk}", f"i{chunk}")
            add("rrc", f"i{me}", f"i{me}" if inplace else "o0")
        else:
            if not inplace:
                add("cpy", "i0", f"o{me}")
            add("s", f"o{me}", f"o{me}")
            for k in range(1, ranks):
                chunk = (me + k) % ranks
                add("rcs" if k < ranks - 1 else "r", f"o{chunk}", f"o{chunk}")
        gpus.append([block(0, send, receive, steps)])
    return algo(coll, gpus, ranks, inplace)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_all_pairs_with_scratch_and_dependencies(ranks: int) -> None:
    program = read(all_pairs(ranks))
    assert len(program.messages()) == ranks * (ranks - 1)
    assert read(write(program)) == program


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("inplace", [0, 1])
@pytest.mark.parametrize("coll", ["allreduce", "reduce_scatter", "allgather"])
def test_fused_rings_in_and_out_of_place(coll: str, inplace: int, ranks: int) -> None:
    program = read(fused_ring(ranks, coll, inplace))
    steps = 2 * (ranks - 1) if coll == "allreduce" else ranks - 1
    assert len(program.messages()) == ranks * steps


def test_a_file_is_an_algorithm(tmp_path: Path) -> None:
    path = tmp_path / "pairs.xml"
    path.write_text(all_pairs(4))
    chosen = algorithm("msccl", file=str(path))
    assert chosen.program(Kind.ALL_REDUCE, 4) == read(all_pairs(4))
    path.write_text(fused_ring(4, "allreduce", 1))
    chosen = algorithm("msccl", file=str(path))
    for kind, ranks, key in ((Kind.ALL_GATHER, 4, ""), (Kind.ALL_REDUCE, 8, "ranks")):
        with pytest.raises(DoesNotFit) as refused:
            chosen.program(kind, ranks)
        assert refused.value.key == key
    with pytest.raises(DoesNotFit, match="multiples of 16"):
        cut(Shape(Kind.ALL_REDUCE, 24, 4, 4), chosen)
    found = cut(Shape(Kind.ALL_REDUCE, 32, 4, 4), chosen, Chunking(chunks=5)).chunks
    assert [(chunk.first, chunk.count) for chunk in found] == [(0, 4), (4, 4)]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match=r"missing\.xml"):
        algorithm("msccl", file=str(tmp_path / "missing.xml"))


# Wrong files: element and line.


def located(text: str, tmp_path: Path) -> MscclError:
    path = tmp_path / "wrong.xml"
    path.write_text(text)
    with pytest.raises(MscclError) as refused:
        read_file(path)
    assert str(refused.value).startswith(f"{path}:{refused.value.line}: ")
    return refused.value


@pytest.mark.parametrize(
    ("old", "new", "element", "message"),
    [
        ('coll="allreduce"', 'coll="allproduce"', "algo", 'coll="allproduce", allowed allreduce'),
        ('ngpus="3"', 'ngpus="4"', "algo", "no gpu 3"),
        ('ngpus="3"', "", "algo", "no attribute ngpus"),
        ('id="1" i_chunks', 'id="0" i_chunks', "gpu 0", "a second gpu 0"),
        ('send="2" recv="1"', 'send="0" recv="1"', "gpu 0, tb 0", 'send="0", allowed another gpu'),
        ('send="2" recv="1"', 'send="9" recv="1"', "gpu 0, tb 0", "allowed -1 to 2"),
        ('type="rrs"', 'type="rsr"', "gpu 0, tb 0, step 1", 'type="rsr", allowed s, r'),
        ('srcoff="1"', 'srcoff="x"', "gpu 0, tb 0, step 0", 'srcoff="x", allowed 0 and more'),
        ('srcoff="1"', 'srcoff="3"', "gpu 0, tb 0, step 0", "allowed chunks 0 to 2"),
        ('s="1" type', 's="2" type', "gpu 0, tb 0, step 1", "steps in order"),
        ('type="s" srcbuf="i"', 'type="s" srcbuf="s"', "gpu 0, tb 0, step 0", "another buffer"),
        ('type="rrcs"', 'type="rrc"', "gpu 0, tb 0, step 4", ""),
        ('type="rrcs"', 'type="rcs"', "gpu 0", "lacks the contributions"),
        ("</algo>", "", "", "no element found"),
    ],
)
def test_wrong_files_are_refused(
    old: str, new: str, element: str, message: str, tmp_path: Path
) -> None:
    text = fused_ring(3, "allreduce", 1)
    assert old in text
    error = located(text.replace(old, new, 1), tmp_path)
    assert message in str(error)
    if message:
        assert error.element == element
        assert error.line >= 1


def test_the_line_is_that_of_the_element(tmp_path: Path) -> None:
    text = fused_ring(3, "allreduce", 1).replace('type="rrs"', 'type="rsr"', 1)
    error = located(text, tmp_path)
    assert 'type="rsr"' in text.splitlines()[error.line - 1]


def test_a_cycle_is_refused_where_it_waits(tmp_path: Path) -> None:
    """Two thread blocks that wait for each other."""
    wait = {"depid": 1, "deps": 0}
    first = [
        block(0, 1, -1, [step(0, "s", "i0", "i0", **wait)]),
        block(1, -1, 1, [step(0, "rrc", "i0", "i0", depid=0, deps=0)]),
    ]
    second = [
        block(0, 0, -1, [step(0, "s", "i0", "i0", hasdep=1)]),
        block(1, -1, 0, [step(0, "rrc", "i0", "i0", depid=0, deps=0)]),
    ]
    error = located(algo("allreduce", [first, second], 1, 1), tmp_path)
    assert "deadlock" in str(error)
    assert error.element in ("gpu 0, tb 0, step 0", "gpu 0, tb 1, step 0")


def test_what_the_interpreter_cannot_hold_is_not_written() -> None:
    with pytest.raises(NotWritable, match=r"254 steps|thread blocks|steps in a thread block"):
        write(algorithm("ring", channels=1).program(Kind.ALL_REDUCE, 160))
