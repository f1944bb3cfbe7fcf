"""Background traffic: what is drawn from published distributions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.spec.jobs.flows import SIZE_DISTRIBUTIONS, FlowsWorkload
from topologies.spec.spec import SpecError, parse_spec
from workloads.models.build import step_of
from workloads.models.flow_sizes import CDFS, flows_of, mean_bytes, size_at
from workloads.models.step import Pause, StartMessage, WaitFor


def _flows(**keys: object) -> FlowsWorkload:
    return FlowsWorkload.model_validate({"kind": "flows", "ranks": 4} | keys)


def test_every_distribution_that_a_spec_names_is_there() -> None:
    assert set(CDFS) == set(SIZE_DISTRIBUTIONS)
    for cdf in CDFS.values():
        assert cdf[0] == (0, 0.0) and cdf[-1][1] == 100.0
        assert all(a < b and x < y for (a, x), (b, y) in pairwise(cdf))


@given(st.sampled_from(SIZE_DISTRIBUTIONS), st.floats(0, 100))
def test_a_size_is_where_its_share_is(name: str, percent: float) -> None:
    cdf = CDFS[name]
    size = size_at(cdf, percent)
    assert 0 <= size <= cdf[-1][0]
    for bound, share in cdf:
        assert (size <= bound) == (percent <= share) or size == pytest.approx(bound)


def test_the_mean_size_of_web_search_is_that_of_its_pieces() -> None:
    """1.7 MB, of which flows beyond 1 MB have the most."""
    assert mean_bytes("websearch") == pytest.approx(1.71e6, rel=0.01)
    assert mean_bytes(5_000) == 5_000


def test_what_is_offered_is_the_rate_and_the_distribution() -> None:
    """20,000 flows and more: their number, mean size and shares are as asked for."""
    workload = _flows(sizes="storage", rate="10Gbps", duration="700ms", pattern="random", ranks=2)
    flows = flows_of(workload)
    gap_ns = mean_bytes("storage") * 8 / 10
    assert len(flows) == pytest.approx(2 * 700e6 / gap_ns, rel=0.03)
    assert sum(f.size_bytes for f in flows) == pytest.approx(2 * 700e6 * 10 / 8, rel=0.05)
    at_most_8k = sum(f.size_bytes <= 8_000 for f in flows) / len(flows)
    assert at_most_8k == pytest.approx(0.6921, abs=0.02)
    assert [f.at_ns for f in flows] == sorted(f.at_ns for f in flows)


def test_pairs_send_one_way_and_random_ones_to_anybody() -> None:
    ends = {(f.source, f.destination) for f in flows_of(_flows(sizes="10MB"))}
    assert ends == {(0, 1), (2, 3)}
    anybody = _flows(sizes="hadoop", rate="10Gbps", duration="100ms", pattern="random")
    ends = {(f.source, f.destination) for f in flows_of(anybody)}
    assert ends == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_both_ends_post_a_flow_when_it_begins() -> None:
    workload = _flows(sizes="storage", rate="10Gbps", duration="1ms", pattern="random")
    flows = {f"flow.{f.number}": f for f in flows_of(workload)}
    for rank in range(4):
        now_ns, posted, awaited = 0, [], []
        for action in step_of(workload, rank):
            match action:
                case Pause():
                    now_ns += action.duration_ns
                case StartMessage():
                    flow = flows[action.name]
                    assert now_ns == flow.at_ns and 4 * action.elements == flow.size_bytes
                    posted.append(action.name)
                case WaitFor():
                    awaited.append(action.name)
        assert (
            posted == awaited == [n for n, f in flows.items() if rank in (f.source, f.destination)]
        )


def test_the_seed_decides() -> None:
    keys = {"sizes": "hadoop", "rate": "1Gbps", "duration": "10ms"}
    assert flows_of(_flows(**keys)) == flows_of(_flows(**keys))
    assert flows_of(_flows(**keys)) != flows_of(_flows(**keys, seed=2))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("sizes: webserch", "workload.sizes: found webserch; expected websearch, storage, hadoop"),
        ("rate: 1Gbps", "expected rate and duration, or neither"),
        ("ranks: 3", "expected an even number of ranks with pattern: pairs"),
        ("pattern: ring", "allowed: pairs, random"),
    ],
)
def test_mistakes_are_named(keys: str, said: str) -> None:
    ranks = "" if "ranks" in keys else "ranks: 4, "
    text = f"name: x\nfabric: {{kind: flat, hosts: 4}}\nworkload: {{kind: flows, {ranks}{keys}}}"
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert said in str(caught.value)
