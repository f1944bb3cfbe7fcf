"""`placement: optimize`: hosts are searched by traffic and predictor, then measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.predict.placement_search import BASELINE, placed, search, with_hosts
from analysis.results.rows import rows_in_words
from analysis.runs.run import load_run
from groundwire.forecast import predict
from groundwire.pipeline import run
from topologies.spec.errors import SpecError
from topologies.spec.spec import Spec, load_spec, parse_dict

READY = Path(__file__).parents[2] / "topologies" / "placement.yaml"


def _spec(fabric: Mapping[str, Any], workload: Mapping[str, Any], **sections: Any) -> Spec:
    return parse_dict(
        {"name": "s", "fabric": fabric, "workload": workload, "placement": "optimize"} | sections
    )


def _all_reduce(ranks: int) -> dict[str, Any]:
    operations = [{"kind": "all_reduce", "size": "1MB"}]
    return {"kind": "collectives", "ranks": ranks, "operations": operations}


def test_a_ring_on_a_mesh_turns_at_the_end_of_each_row() -> None:
    """On a mesh of 2 rows the only placements of a ring by neighbours alone go round its edge."""
    found = search(_spec({"kind": "mesh", "dims": [2, 4]}, _all_reduce(8)))
    places = {f"h{at}": divmod(at, 4) for at in range(8)}
    ring = [places[host] for host in found.best.hosts]
    steps = [
        np.abs(np.subtract(a, b)).sum() for a, b in zip(ring, ring[1:] + ring[:1], strict=True)
    ]
    assert steps == [1] * 8
    in_order, best = found.tried[0], found.best
    assert in_order.name == BASELINE and found.predictor == "packet"
    assert in_order.predicted_ns is not None and best.predicted_ns is not None
    assert best.predicted_ns < in_order.predicted_ns


def test_pairs_that_talk_go_to_one_leaf() -> None:
    """Rank 0 sends to 3, 1 to 4, 2 to 5; four leaves of two hosts, with thin links between."""
    fabric = {
        "kind": "leaf-spine",
        "leaves": 4,
        "spines": 1,
        "hosts_per_leaf": 2,
        "link": {"rate": "100Gbps"},
        "links": {"leaf-spine": {"rate": "10Gbps"}},
    }
    operations = [{"kind": "send_recv", "size": "1MB", "root": a, "peer": a + 3} for a in range(3)]
    workload = {"kind": "collectives", "ranks": 6, "operations": operations}
    found = search(_spec(fabric, workload))
    leaves = [int(host[1:]) // 2 for host in found.best.hosts]
    assert [leaves[rank] for rank in range(3)] == [leaves[rank + 3] for rank in range(3)]
    # 1 MB takes 80 us on 100 Gb/s; in order, two leave one leaf by 10 Gb/s.
    assert found.best.busiest_link_ns == 80_000
    assert found.tried[0].busiest_link_ns == 1_600_000


def test_linear_stays_where_nothing_is_better() -> None:
    spec = _spec({"kind": "flat", "hosts": 6}, _all_reduce(4))
    assert placed(spec).plan.hosts == ("h0", "h1", "h2", "h3")
    assert search(spec).best.name == BASELINE


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_no_placement_that_was_tried_is_better_by_the_predictor(data: st.DataObject) -> None:
    fabric: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"kind": "mesh", "dims": [2, 3]},
                {"kind": "leaf-spine", "leaves": 3, "spines": 1, "hosts_per_leaf": 2},
                {"kind": "flat", "hosts": 7},
            ]
        )
    )
    kinds = st.sampled_from(["all_reduce", "all_to_all", "all_gather"])
    operations = [
        {"kind": kind, "size": 6000 * data.draw(st.integers(1, 40))}
        for kind in data.draw(st.lists(kinds, min_size=1, max_size=2))
    ]
    workload = {
        "kind": "collectives",
        "ranks": data.draw(st.integers(2, 6)),
        "operations": operations,
    }
    spec = _spec(fabric, workload)
    found = search(spec)
    assert found == search(spec)
    for each in found.tried:
        assert len(set(each.hosts)) == workload["ranks"]
    predicted = [each.predicted_ns or 0 for each in found.tried]
    assert found.best.predicted_ns == min(predicted)
    # The spec with these hosts has the same prediction.
    (again,) = predict(
        with_hosts(spec, found.best.hosts), predictors=["packet"]
    ).iterations.values()
    assert not isinstance(again, str) and again.duration_ns == found.best.predicted_ns


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            {"workload": {"kind": "command", "argv": ["true"], "ranks": 2}},
            "found optimize; expected another policy: what ranks of workload.kind command send is "
            "known when it runs",
        ),
        (
            {"workload": None, "jobs": [{"name": "a", "workload": _all_reduce(2)}]},
            "found optimize; expected another policy with jobs",
        ),
        (
            {
                "workload": None,
                "placement": "linear",
                "jobs": [{"name": "a", "workload": _all_reduce(2), "placement": "optimize"}],
            },
            "expected another policy: hosts are searched for one workload alone",
        ),
    ],
)
def test_what_is_not_searched_is_refused(sections: Mapping[str, Any], told: str) -> None:
    given_sections = {key: value for key, value in sections.items() if value is not None}
    with pytest.raises(SpecError) as refused:
        parse_dict(
            {"name": "s", "fabric": {"kind": "flat", "hosts": 2}, "placement": "optimize"}
            | given_sections
        )
    assert told in str(refused.value)


def test_the_gain_is_measured(tmp_path: Path) -> None:
    made = run(load_spec(READY), kernel="virtual", out=tmp_path / "run", pages=False)
    section = made.result["placement"]
    assert made.result["valid"] and section["chosen"] == "greedy, swapped"
    assert made.spec.placement == dict(enumerate(section["hosts"]))
    in_order = load_run(tmp_path / "run" / "in-order")
    assert in_order.hosts == tuple(f"h{rank}" for rank in range(16))
    # A ring in order crosses the mesh at the end of each row, where its two directions meet others.
    assert section["gain"] > 1.2 and abs(section["gain"] / section["predicted_gain"] - 1) < 0.01
    (said,) = [words for key, words in rows_in_words(made.result) if key == "placement"]
    assert "times as fast" in said and "by linear" in said
    told = json.loads((tmp_path / "run" / "placement.json").read_text())
    assert told["tried"][0]["name"] == "linear"
