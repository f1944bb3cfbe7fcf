"""Every algorithm's programs are right, and wrong programs are found out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from collectives.algorithms import algorithm, algorithms
from collectives.algorithms.base import Algorithm, DoesNotFit
from collectives.algorithms.trees import double_binary_tree
from collectives.kinds import Kind, Shape, least_sent_bytes, least_total_bytes
from collectives.program import PROGRAM_KINDS, Action, At, Blocks, Buffer, Program
from collectives.verify import WrongProgram, staging_blocks, verify

FLAT = ("direct", "double-binary-tree", "gloo-ring", "line", "pairwise", "ring", "tree", "bruck")


@st.composite
def flat_algorithms(draw: st.DrawFn) -> Algorithm:
    name = draw(st.sampled_from(FLAT))
    match name:
        case "ring":
            return algorithm(
                name,
                channels=draw(st.integers(1, 3)),
                both_directions=draw(st.booleans()),
                folded=draw(st.booleans()),
            )
        case "direct":
            return algorithm(name, in_flight=draw(st.integers(0, 4)))
        case "gloo-ring":
            return algorithm(name, segments_per_rank=draw(st.integers(0, 3)))
        case _:
            return algorithm(name)


@settings(max_examples=100, deadline=None)
@given(flat_algorithms(), st.integers(2, 20), st.data())
def test_flat_algorithms_do_what_their_collective_defines(
    chosen: Algorithm, ranks: int, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(sorted(chosen.kinds)))
    program = chosen.program(kind, ranks, root=data.draw(st.integers(0, ranks - 1)))
    verify(program)
    check_bytes(program)


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("ranks", [2, 3, 63, 64])
def test_the_ends_of_the_range(name: str, ranks: int) -> None:
    """One kind of each algorithm; the others are made of the same parts."""
    chosen = algorithm(name)
    verify(chosen.program(max(chosen.kinds - {Kind.BROADCAST}), ranks, root=ranks - 1))


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64])
def test_halving_doubling(ranks: int) -> None:
    chosen = algorithm("halving-doubling")
    for kind in chosen.kinds:
        program = chosen.program(kind, ranks)
        verify(program)
        check_bytes(program)
    steps = [s for p, _, s in program.steps() if p == 0 and s.action is Action.SEND]
    assert len(steps) == (ranks - 1).bit_length() * (2 if program.kind is Kind.ALL_REDUCE else 1)


INSIDE = st.sampled_from(
    ["direct", "ring", "line", {"algorithm": "ring", "channels": 2}, {"algorithm": "ring"}]
)
DIMENSIONS = st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(
    lambda sizes: 2 <= prod(sizes) <= 24
)


@settings(max_examples=40, deadline=None)
@given(DIMENSIONS, INSIDE, INSIDE, st.data())
@example([2, 3], "direct", "double-binary-tree", None)
def test_hierarchical(
    dimensions: list[int], inside: object, across: object, data: st.DataObject | None
) -> None:
    ranks = prod(dimensions)
    order = list(range(len(dimensions)))
    full_size, root = False, ranks // 2
    if data is not None:
        order = data.draw(st.permutations(order))
        full_size = data.draw(st.booleans())
    chosen = algorithm(
        "hierarchical",
        dimensions=dimensions,
        inside=inside,
        across=across,
        order=order,
        full_size=full_size,
    )
    kind = Kind.ALL_REDUCE if data is None else data.draw(st.sampled_from(sorted(chosen.kinds)))
    program = chosen.program(kind, ranks, root)
    verify(program)
    check_bytes(program)


@settings(max_examples=25, deadline=None)
@given(DIMENSIONS, st.sampled_from(["mesh", "torus"]))
def test_grids_talk_to_neighbours_only(dimensions: list[int], name: str) -> None:
    assume(len(dimensions) >= 2)
    chosen = algorithm(name, dimensions=dimensions)
    for kind in chosen.kinds:
        program = chosen.program(kind, prod(dimensions))
        verify(program)
        check_bytes(program)
        for message in program.messages():
            steps = []
            a, b = message.source, message.destination
            for size in dimensions:
                (a, at), (b, to) = divmod(a, size), divmod(b, size)
                apart = abs(at - to)
                steps.append(min(apart, size - apart) if name == "torus" else apart)
            assert sum(steps) == 1


@pytest.mark.parametrize(("ranks", "per_node"), [(6, 3), (15, 3), (16, 4), (8, 1), (8, 8)])
def test_two_step_sends_one_message_to_each_other_node(ranks: int, per_node: int) -> None:
    program = algorithm("two-step", ranks_per_node=per_node).program(Kind.ALL_TO_ALL, ranks)
    verify(program)
    across = Counter(
        (m.source, m.destination // per_node)
        for m in program.messages()
        if m.source // per_node != m.destination // per_node
    )
    nodes = ranks // per_node
    assert len(across) == ranks * (nodes - 1)
    assert set(across.values()) <= {1}


def test_hierarchy_spares_the_outer_dimension() -> None:
    """BlueConnect's point: of S, a rank sends 2S/L (M-1)/M across instead of 2S (M-1)/M."""
    ranks, local, size_bytes = 32, 4, 4 * 32 * 100

    def across_bytes(full_size: bool) -> int:
        chosen = algorithm("hierarchical", dimensions=[local, 8], full_size=full_size)
        program = chosen.program(Kind.ALL_REDUCE, ranks)
        return sum(
            program.elements_of(m.blocks, size_bytes // 4) * 4
            for m in program.messages()
            if m.source == 0 and m.destination // local != 0
        )

    assert across_bytes(full_size=True) == 2 * size_bytes * 7 // 8
    assert across_bytes(full_size=False) == 2 * size_bytes * 7 // 8 // local


@given(st.integers(2, 200))
def test_double_binary_tree_is_nccls(ranks: int) -> None:
    """Each rank has at most two children and one parent in a tree, and is a leaf in one of them
    (src/graph/trees.cc)."""
    inner = []
    for tree in double_binary_tree(ranks):
        assert len(tree) == ranks - 1
        children = Counter(parent for _, parent in tree)
        assert max(children.values()) <= 2
        assert len({child for child, _ in tree}) == ranks - 1
        inner.append(set(children))
    assert len(inner[0] & inner[1]) <= 1 if ranks % 2 else not inner[0] & inner[1]


def test_double_binary_tree_of_eight() -> None:
    first, second = double_binary_tree(8)
    assert set(first) == {(4, 0), (2, 4), (6, 4), (1, 2), (3, 2), (5, 6), (7, 6)}
    assert set(second) == {(3, 7), (5, 3), (1, 3), (6, 5), (4, 5), (2, 1), (0, 1)}


@pytest.mark.parametrize(("name", "least_times"), [("ring", 7 / 4), ("direct", 7 / 4)])
def test_bandwidth_optimal_algorithms_send_no_more_than_they_must(
    name: str, least_times: float
) -> None:
    size_bytes = 8 * 4 * 30
    program = algorithm(name).program(Kind.ALL_REDUCE, 8)
    assert program.sent_bytes(size_bytes, 4) == (int(least_times * size_bytes),) * 8


def test_bruck_sends_a_message_per_bit() -> None:
    for ranks in (5, 8, 13):
        messages = algorithm("bruck").program(Kind.ALL_TO_ALL, ranks).messages()
        assert Counter(m.source for m in messages) == dict.fromkeys(
            range(ranks), (ranks - 1).bit_length()
        )


def check_bytes(program: Program) -> None:
    """No rank sends less than every algorithm must; blocks cover the array whatever its size."""
    size_bytes = 4 * program.ranks * 53
    shape = Shape(program.kind, size_bytes, program.ranks, 4, program.root)
    sent = program.sent_bytes(size_bytes, 4)
    assert sum(sent) >= least_total_bytes(shape)
    for rank in range(program.ranks):
        assert sent[rank] >= least_sent_bytes(shape, rank)
    whole = Blocks(Buffer.OUTPUT, 0, program.output_blocks)
    shards = program.output_blocks // program.pieces
    end = program.shard_elements(size_bytes // 4) * shards
    assert program.bounds(whole, size_bytes // 4) == (0, end)
    parts = [Blocks(Buffer.OUTPUT, i) for i in range(program.output_blocks)]
    assert sum(program.elements_of(part, size_bytes // 4) for part in parts) == end
    assert all(len(m.blocks.buffer) for m in program.messages())


def test_staging_is_bounded_by_the_window() -> None:
    ring = algorithm("ring").program(Kind.ALL_REDUCE, 8)
    assert staging_blocks(ring) == 2
    assert staging_blocks(algorithm("direct").program(Kind.ALL_REDUCE, 8)) == 7
    assert staging_blocks(algorithm("direct", in_flight=3).program(Kind.ALL_REDUCE, 8)) == 3


# Refusals.


@pytest.mark.parametrize(
    ("name", "options", "kind", "ranks", "key", "allowed"),
    [
        ("halving-doubling", {}, Kind.ALL_REDUCE, 6, "ranks", "powers of two"),
        ("bruck", {}, Kind.ALL_REDUCE, 8, "", "all_to_all"),
        ("ring", {}, Kind.BROADCAST, 1, "ranks", "2 and more"),
        ("hierarchical", {"dimensions": [4, 4]}, Kind.ALL_REDUCE, 8, "dimensions", "8"),
        ("hierarchical", {}, Kind.ALL_REDUCE, 8, "dimensions", "8"),
        ("mesh", {"dimensions": [8]}, Kind.ALL_REDUCE, 8, "dimensions", "two axes"),
        ("two-step", {"ranks_per_node": 3}, Kind.ALL_TO_ALL, 8, "ranks_per_node", "divisors"),
        (
            "hierarchical",
            {"dimensions": [3, 2], "inside": "halving-doubling"},
            Kind.ALL_REDUCE,
            6,
            "ranks",
            "powers of two",
        ),
        (
            "hierarchical",
            {"dimensions": [3, 2], "inside": "tree"},
            Kind.ALL_REDUCE,
            6,
            "",
            "all_to_all",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, options: dict[str, object], kind: Kind, ranks: int, key: str, allowed: str
) -> None:
    with pytest.raises(DoesNotFit) as refused:
        algorithm(name, **options).program(kind, ranks)
    assert refused.value.key == key
    assert allowed in refused.value.allowed


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("rings", {}, "algorithm"),
        ("msccl", {}, "file"),
        ("ring", {"channels": 0}, "channels"),
        ("ring", {"channels": "two"}, "channels"),
        ("ring", {"channels": True}, "channels"),
        ("ring", {"chanels": 2}, "chanels"),
        ("direct", {"in_flight": -1}, "in_flight"),
        ("hierarchical", {"dimensions": 4}, "dimensions"),
        ("hierarchical", {"dimensions": [2, "x"]}, "dimensions.1"),
        ("hierarchical", {"dimensions": [2, 2], "order": [0, 0]}, "order"),
        ("hierarchical", {"inside": "rong"}, "inside.algorithm"),
        ("hierarchical", {"inside": {"algorithm": "ring", "channels": 0}}, "inside.channels"),
        ("hierarchical", {"inside": 3}, "inside"),
        ("hierarchical", {"dimensions": [2, 2], "by_dimension": ["ring"]}, "by_dimension"),
        ("torus", {"ring": "direct"}, "ring"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, object], key: str) -> None:
    with pytest.raises(DoesNotFit) as refused:
        algorithm(name, **options)
    assert refused.value.key == key
    assert refused.value.allowed


def test_every_kind_has_an_algorithm() -> None:
    known = {kind for name in FLAT for kind in algorithm(name).kinds}
    assert set(FLAT) < set(algorithms())
    assert known == set(PROGRAM_KINDS)


# Wrong programs.


def changed(program: Program, rank: int, at: At, **changes: object) -> Program:
    """The program with one step changed; dropped when nothing is given."""
    sequences = list(program.participants[rank])
    steps = list(sequences[at.sequence].steps)
    if changes:
        steps[at.place] = replace(steps[at.place], **changes)  # type: ignore[arg-type]
    else:
        del steps[at.place]
    sequences[at.sequence] = replace(sequences[at.sequence], steps=tuple(steps))
    participants = list(program.participants)
    participants[rank] = tuple(sequences)
    return replace(program, participants=tuple(participants))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["ring", "direct", "double-binary-tree"]),
    st.integers(2, 6),
    st.data(),
)
def test_no_step_can_be_left_out(name: str, ranks: int, data: st.DataObject) -> None:
    program = algorithm(name).program(Kind.ALL_REDUCE, ranks)
    places = [(rank, at) for rank, at, _ in program.steps()]
    rank, at = data.draw(st.sampled_from(places))
    with pytest.raises(WrongProgram):
        verify(changed(program, rank, at))


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 6), st.data())
def test_no_message_can_carry_other_blocks(ranks: int, data: st.DataObject) -> None:
    program = algorithm("ring").program(Kind.ALL_REDUCE, ranks)
    sends = [(rank, at, s) for rank, at, s in program.steps() if s.action is Action.SEND]
    rank, at, step = data.draw(st.sampled_from(sends))
    assert step.source is not None
    other = (step.source.start + data.draw(st.integers(1, ranks - 1))) % ranks
    with pytest.raises(WrongProgram, match=r"length|twice|another|lacks"):
        verify(changed(program, rank, at, source=Blocks(Buffer.INPUT, other)))


def test_a_contribution_counted_twice_is_found() -> None:
    program = algorithm("direct").program(Kind.REDUCE, 3)
    sends = [(r, at, s) for r, at, s in program.steps() if s.action is Action.SEND]
    receives = [(r, at, s) for r, at, s in program.steps() if s.action is Action.REDUCE]
    (rank, at, step), (root, place, receive) = sends[0], receives[0]
    both = [
        (rank, replace(step, message=9), program.participants[rank][at.sequence]),
        (root, replace(receive, message=9), program.participants[root][place.sequence]),
    ]
    participants = list(program.participants)
    for member, extra, sequence in both:
        participants[member] = (replace(sequence, steps=(*sequence.steps, extra)),)
    with pytest.raises(WrongProgram, match="twice"):
        verify(replace(program, participants=tuple(participants)))


def test_a_cycle_of_waits_is_a_deadlock() -> None:
    program = algorithm("ring").program(Kind.ALL_REDUCE, 3)
    first_send = next(at for r, at, s in program.steps() if r == 0 and s.action is Action.SEND)
    last = At(0, len(program.participants[0][0].steps) - 1)
    with pytest.raises(WrongProgram, match="rank 0, sequence 0, step 1: deadlock"):
        verify(changed(program, 0, first_send, after=(last,)))


def test_steps_of_two_channels_must_be_ordered() -> None:
    """A tree whose reduce and broadcast lie in two sequences that do not know of each other."""
    program = algorithm("tree").program(Kind.ALL_REDUCE, 2)
    (sequence,) = program.participants[0]
    split = tuple(replace(sequence, steps=(step,)) for step in sequence.steps)
    participants = (split, *program.participants[1:])
    with pytest.raises(WrongProgram, match="not ordered"):
        verify(replace(program, participants=participants))
    ordered = replace(split[1], steps=(replace(split[1].steps[0], after=(At(0, 0),)),))
    verify(replace(program, participants=((split[0], ordered), *program.participants[1:])))


def test_the_callers_input_is_not_written() -> None:
    program = algorithm("direct").program(Kind.ALL_TO_ALL, 2)
    rank, at, step = next(found for found in program.steps() if found[2].action is Action.RECEIVE)
    assert step.target is not None
    target = replace(step.target, buffer=Buffer.INPUT)
    with pytest.raises(WrongProgram, match="input is written"):
        verify(changed(program, rank, at, target=target))


def test_a_switch_can_reduce() -> None:
    """Participants beyond the ranks have scratch only: an aggregating switch under two ranks."""
    from collectives.builder import Builder, Move

    builder = Builder(Kind.ALL_REDUCE, 2, pieces=1, participants=3)
    whole, slot = Blocks(Buffer.INPUT, 0), Blocks(Buffer.SCRATCH, builder.scratch(1))
    builder.round([Move(0, whole, 2, slot)])
    builder.round([Move(1, whole, 2, slot, reduce=True)])
    builder.round([Move(2, slot, rank, whole) for rank in (0, 1)])
    program = builder.build()
    verify(program)
    assert program.sent_bytes(400, 4) == (400, 400, 800)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_a_folded_ring_goes_two_places_at_most(ranks: int) -> None:
    """And what it sends is what a ring sends: each member to one other."""
    program = algorithm("ring", folded=True).program(Kind.ALL_REDUCE, ranks)
    hops = {(move.source, move.destination) for move in program.messages()}
    assert len(hops) == ranks
    assert max(abs(a - b) for a, b in hops) <= 2
