"""The step of partitioned inference as data."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partition.small_networks import workload
from topologies.spec.spec import SpecError, parse_spec
from workloads.models.build import step_of
from workloads.models.partition.splitting import split_of
from workloads.models.step import ComputeKernel, StartMessage, WaitFor

NETWORKS = (
    {"kind": "block-diagonal", "blocks": 4, "width": 16},
    {"kind": "mlp", "hidden": (12,)},
)


@given(
    st.sampled_from(NETWORKS),
    st.integers(2, 8),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.booleans(),
    st.integers(1, 50),
)
@settings(max_examples=25, deadline=None)
def test_ranks_agree_on_messages_and_wait_for_each_once(
    network: dict[str, object], ranks: int, cost: float, overlap: bool, batch: int
) -> None:
    found = workload(
        ranks,
        network=network,
        partition={"crossing_cost": cost},
        overlap=overlap,
        batch_size=batch,
    )
    ends: Counter[StartMessage] = Counter()
    for rank in range(ranks):
        under_way: set[str] = set()
        for action in step_of(found, rank):
            if isinstance(action, StartMessage):
                assert rank in (action.source, action.destination)
                assert action.name not in under_way
                under_way.add(action.name)
                ends[action] += 1
            elif isinstance(action, WaitFor):
                under_way.remove(action.name)
        assert not under_way
    assert set(ends.values()) <= {2}
    assert sum(message.elements for message in ends) == split_of(found).crossing_elements * batch


def test_all_ranks_together_compute_what_stays_and_no_more() -> None:
    """Block-diagonal: a quarter of each product, on four ranks."""
    found = workload(4, partition={"crossing_cost": 0.1})
    flops = [
        sum(a.flops for a in step_of(found, rank) if isinstance(a, ComputeKernel))
        for rank in range(4)
    ]
    assert flops == [3 * 2 * found.batch_size * 8 * 8] * 4


@pytest.mark.parametrize(
    ("workload_yaml", "expected"),
    [
        (
            "network: {kind: mlpp}",
            "line 6: workload.network.kind: found mlpp; did you mean mlp? allowed: "
            "mlp, cnn, block-diagonal",
        ),
        ("ranks: 4", "workload.network: found nothing; this key is required"),
        (
            "network: {kind: mlp, hidden: [2]}",
            "workload.network: found a layer of 2 units; expected at least one for each rank, 4",
        ),
        (
            "network: {kind: block-diagonal, blocks: 3}",
            "expected width to be a multiple of blocks = 3",
        ),
        (
            "network: {kind: mlp}\n  partition: {crossing_cost: -1}",
            "workload.partition.crossing_cost: found -1; expected at least 0",
        ),
        (
            "network: {kind: mlp}\n  partition: {assignment: hungarian}",
            "workload.partition.assignment: found hungarian; allowed: munkres, contiguous",
        ),
        (
            "network: {kind: cnn, channels: [4, 4, 4]}",
            "workload.network.channels: found [4, 4, 4]; expected a number of entries of at most 2",
        ),
    ],
)
def test_mistakes_are_told_with_what_is_allowed(workload_yaml: str, expected: str) -> None:
    text = (
        "name: wrong\nfabric: {kind: flat, hosts: 4}\nworkload:\n  kind: partitioned_inference\n"
        + ("" if workload_yaml.startswith("ranks") else "  ranks: 4\n")
        + f"  {workload_yaml}\n"
    )
    with pytest.raises(SpecError) as found:
        parse_spec(text, "wrong.yaml")
    assert expected in str(found.value)
    assert str(found.value).startswith("wrong.yaml: ")
