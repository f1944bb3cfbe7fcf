"""Gloo's message schedules: what they move, and the design's figures."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.call import CollectiveCall
from collectives.schedule.gloo import GLOO
from collectives.schedule.gloo_steps import Wait, all_reduce_segments, gloo_steps, reduce_segments
from collectives.schedule.operations import CompiledPrograms, Follow, Marks
from collectives.schedule.schedule import Post

_calls = st.builds(
    CollectiveCall,
    st.sampled_from(
        ["all_reduce", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter"]
    ),
    st.integers(1, 200_000).map(lambda n: n * 4),
    st.integers(2, 9).map(lambda n: tuple(range(n))),
)


def _sent(call: CollectiveCall) -> Counter[tuple[int, int]]:
    """Bytes by (source, destination)."""
    found: Counter[tuple[int, int]] = Counter()
    for step in gloo_steps(call.shape):
        if isinstance(step, Post):
            for source, destination, size in zip(
                step.source.tolist(),
                step.destination.tolist(),
                step.size_bytes.tolist(),
                strict=True,
            ):
                found[source, destination] += size
    return found


def test_a_mebibyte_over_eight_ranks_is_the_designs_figure() -> None:
    """16 segments of 65,536 bytes, 28 messages; 1,837,696 bytes to r-1 with their preambles and
    SEND_READYs, and 1,344 bytes of RECV_READYs back."""
    cut = all_reduce_segments(1 << 20, 8, 4)
    assert (cut.count, cut.size_bytes) == (16, 65536)
    call = CollectiveCall("all_reduce", 1 << 20, tuple(range(8)))
    sizes = defaultdict(list)
    for step in gloo_steps(call.shape):
        if isinstance(step, Post):
            for source, destination, size in zip(
                step.source, step.destination, step.size_bytes, strict=True
            ):
                assert destination == (source - 1) % 8
                sizes[int(source)].append(int(size))
    assert {len(of_rank) for of_rank in sizes.values()} == {28}
    assert sum(sizes[0]) + 28 * 2 * 48 == 1_837_696
    assert 28 * 48 == 1_344


@given(_calls)
def test_the_right_number_of_bytes_moves(call: CollectiveCall) -> None:
    """Each collective's traffic is the lower bound of its algorithm, whatever the remainders."""
    total, n, size = sum(_sent(call).values()), call.world, call.size_bytes
    expected = {
        "all_reduce": 2 * (n - 1) * size,
        "all_gather": n * (n - 1) * (size // n),
        "all_to_all": n * (n - 1) * (size // n),
        "broadcast": (n - 1) * size,
        "gather": (n - 1) * (size // n),
        "scatter": (n - 1) * (size // n),
    }
    if call.kind != "reduce":
        assert total == expected[call.kind]
        return
    # A ring reduce-scatter, but for a last chunk that Gloo may pass on once more, then a gather.
    cut = reduce_segments(size, n, 4)
    assert (n - 1) * size <= total <= n * size + cut.per_rank * cut.size_bytes


@given(_calls)
def test_waits_are_for_what_was_posted_and_nothing_is_sent_to_oneself(
    call: CollectiveCall,
) -> None:
    posts = 0
    for step in gloo_steps(call.shape):
        if isinstance(step, Wait):
            assert 0 <= step.post < posts
        else:
            assert all(step.source != step.destination)
            posts += 1


@given(_calls)
def test_every_rank_that_needs_data_gets_it(call: CollectiveCall) -> None:
    """Follow which members' contributions each member holds, message by message."""
    holds = [{member} for member in range(call.world)]
    for step in gloo_steps(call.shape):
        if isinstance(step, Post):
            before = [set(found) for found in holds]
            for source, destination in zip(step.source, step.destination, strict=True):
                holds[destination] |= before[source]
    everything = set(range(call.world))
    if call.kind in ("all_reduce", "all_gather", "all_to_all") and call.size_bytes >= 8 * 4 * 9:
        assert all(found == everything for found in holds)
    if call.kind in ("broadcast", "scatter"):
        assert all(0 in found for found in holds)
    if call.kind == "gather":
        assert holds[0] == everything


def test_a_group_of_one_and_an_empty_array_send_nothing() -> None:
    assert list(gloo_steps(CollectiveCall("all_reduce", 100, (3,)).shape)) == []
    assert list(gloo_steps(CollectiveCall("all_gather", 0, (3, 4)).shape)) == []


@pytest.mark.parametrize("world", [2, 3, 5, 8])
def test_a_barrier_reaches_everybody_in_log2_rounds(world: int) -> None:
    posts = [
        step
        for step in gloo_steps(CollectiveCall("barrier", 0, tuple(range(world))).shape)
        if isinstance(step, Post)
    ]
    assert len(posts) == (world - 1).bit_length()
    assert all(post.size_bytes.sum() == 0 for post in posts)


@given(_calls)
def test_steps_of_a_shape_that_is_met_again_have_the_messages_of_the_first(
    call: CollectiveCall,
) -> None:
    """Compiled twice, each program follows steps of its own over messages of its own; and they are
    the messages that members send who do not follow steps."""
    apart, twice = CompiledPrograms(), CompiledPrograms(follows_steps=True)
    ends = range(10, 10 + len(call.ranks))
    GLOO.compile(call.shape, apart, ends, Marks().number)
    for _ in range(2):
        GLOO.compile(call.shape, twice, ends, Marks().number)
    count, programs = len(apart.source), len(ends)
    assert GLOO.count(call.shape) == count
    for name in ("source", "destination", "size_bytes"):
        assert getattr(twice, name) == 2 * getattr(apart, name)
    for name in ("sender", "receiver"):
        first = getattr(apart, name).tolist()
        assert getattr(twice, name).tolist() == first + [each + programs for each in first]
    one, other = twice.steps
    assert (other.first_program, other.programs) == (programs, programs)
    assert other.kind == one.kind
    assert other.first.tolist() == [each + count for each in one.first]
    assert other.end.tolist() == [each + count for each in one.end]
    assert twice.programs == programs * [[Follow(0)]] + programs * [[Follow(1)]]
