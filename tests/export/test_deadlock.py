"""Graphs whose ranks wait for each other are refused, with who waits for whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.summary import problems
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from groundwire.pipeline import run


def _ring(ranks: int, after: bool) -> list[Graph]:
    """Every rank sends to the next one, and receives from the one before; `after` its send is over,
    or at the same time."""
    return [
        (
            SendNode(id=0, name="send", peer=(rank + 1) % ranks, size_bytes=8),
            ReceiveNode(
                id=1,
                name="receive",
                after=(0,) if after else (),
                peer=(rank - 1) % ranks,
                size_bytes=8,
            ),
        )
        for rank in range(ranks)
    ]


@given(st.integers(2, 9))
def test_a_ring_in_which_everybody_sends_first_is_stuck(ranks: int) -> None:
    (said,) = problems(_ring(ranks, after=True))
    assert (
        "node 0 (send) of rank 0 waits for the receive of rank 1, node 1, "
        "which waits for node 0 there"
    ) in said
    assert ("more" in said) == (ranks > 4)


@given(st.integers(2, 9))
def test_a_ring_that_sends_and_receives_at_once_is_not(ranks: int) -> None:
    assert problems(_ring(ranks, after=False)) == []


def test_a_chain_of_messages_and_computation_comes_to_its_end() -> None:
    forward = SendNode(id=1, name="forward", after=(0,), peer=1, size_bytes=4)
    back = ReceiveNode(id=2, name="back", after=(1,), peer=1, size_bytes=4)
    there = ReceiveNode(id=0, name="there", peer=0, size_bytes=4)
    answer = SendNode(id=5, name="answer", after=(0,), peer=0, size_bytes=4)
    assert problems([(ComputeNode(id=0, name="x"), forward, back), (there, answer)]) == []


def test_a_message_within_a_collective_that_waits_for_it_is_stuck() -> None:
    """Rank 0 enters the collective after its send; rank 1 receives after the collective."""
    call = CollectiveCall(Kind.ALL_REDUCE, 8, (0, 1))
    first: Graph = (
        SendNode(id=0, name="send", peer=1, size_bytes=8),
        CollectiveNode(id=1, name="sum", after=(0,), call=call),
    )
    second: Graph = (
        CollectiveNode(id=0, name="sum", call=call),
        ReceiveNode(id=1, name="receive", after=(0,), peer=0, size_bytes=8),
    )
    (said,) = problems([first, second])
    assert "node 0 (send) of rank 0 waits for the receive of rank 1" in said
    assert "node 0 (sum) of rank 1 waits for other members" in said


def test_collectives_of_a_group_begin_as_they_become_ready() -> None:
    call = CollectiveCall(Kind.ALL_REDUCE, 8, (0, 1))
    early = CollectiveNode(id=0, name="early", after=(2,), call=call)
    late = CollectiveNode(id=1, name="late", call=call)
    assert problems([(early, late, ComputeNode(id=2, name="x"))] * 2) == []
    # The message that the early one waits for comes after the late one, which so begins first.
    before = ComputeNode(id=2, name="x", after=(1,))
    assert problems([(early, late, before)] * 2) == []


def test_a_run_of_such_traces_is_refused_before_it_begins(tmp_path: Path) -> None:
    write_graphs(tmp_path / "ring", _ring(3, after=True))
    (tmp_path / "spec.yaml").write_text(
        "fabric: {kind: flat, hosts: 3}\nworkload: {kind: chakra, path: ring}\n"
    )
    with pytest.raises(ChakraError, match="ranks wait for each other"):
        run(tmp_path / "spec.yaml", kernel="virtual", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
