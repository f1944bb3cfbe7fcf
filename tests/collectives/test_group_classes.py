"""Priorities between concurrent collectives: of model-parallel groups, pipelines, data-parallel
groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.setting import setting_of_spec
from collectives.groups import selectors_of_groups
from emulator.native.kernel import missing_for
from tests.session.command import run_spec, valid_rows
from topologies.spec.spec import Spec, SpecError, parse_dict, parse_spec

MODEL, STAGE, DATA = 100_000, 150_000, 1_000_000
SPEC = f"""
name: classes
fabric:
  kind: hierarchical
  groups: 2
  hosts_per_group: 4
  link: {{rate: 10Gbps, delay: 500ns, mtu: 9000}}
workload:
  kind: layers
  ranks: 8
  passes: 1
  iterations: 1
  parallelism: hybrid-data-model
  innermost: 2
  stages: 2
  activation: {STAGE}
  layers:
    - {{name: a, input_gradient: {{collective: all_reduce, size: {MODEL}}}}}
    - {{name: b, input_gradient: {{collective: all_reduce, size: {MODEL}}}}}
    - {{name: c, weight_gradient: {{collective: all_reduce, size: {DATA}}}}}
aggregation: {{mode: streaming, streams: any, middles: 3}}
collectives:
  backend: programs
  all_reduce: {{algorithm: aggregation}}
  classes: {{model: 3, pipeline: 2, data: 1}}
capture: {{points: []}}
predict: [flow]
"""


def spec_of(classes: dict[str, Any] | None = None, **workload: object) -> Spec:
    raw: dict[str, Any] = parse_spec(SPEC).to_dict()
    raw["workload"] |= workload
    if classes is not None:
        raw["collectives"]["classes"] = classes
    return parse_dict(raw, "classes.yaml")


def test_each_sort_of_group_has_its_class() -> None:
    found = selectors_of_groups(spec_of())
    assert found[tuple(range(8))] == 2
    assert [found[pair] for pair in ((0, 1), (6, 7))] == [3, 3]
    assert [found[pair] for pair in ((0, 2), (5, 7))] == [1, 1]
    assert selectors_of_groups(spec_of({"data": 5})).keys() == {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert selectors_of_groups(spec_of({})) == {}


def test_all_ranks_are_the_group_of_what_is_not_divided() -> None:
    plain = {"parallelism": "data", "innermost": None, "stages": 1, "activation": "0B"}
    assert selectors_of_groups(spec_of({"data": 4}, **plain)) == {tuple(range(8)): 4}


@pytest.mark.parametrize(
    ("classes", "workload", "said"),
    [
        (
            {"pipeline": 2},
            {"stages": 1, "activation": "0B"},
            "workload: data, model",
        ),
        ({"model": "express"}, {}, "expected a DSCP class selector, 0 to 7"),
        ({"model": 8}, {}, "0 to 7"),
        ({"expert": 1}, {}, "collectives.classes.expert"),
    ],
)
def test_classes_that_there_are_not_are_refused(
    classes: dict[str, Any], workload: dict[str, object], said: str
) -> None:
    with pytest.raises(SpecError) as failure:
        spec_of(classes, **workload)
    assert said in str(failure.value)


def test_queue_pairs_have_no_classes_by_group() -> None:
    raw: dict[str, Any] = spec_of().to_dict() | {"transport": {"kind": "roce"}}
    raw["fabric"]["queue"] = {"kind": "lossless"}
    with pytest.raises(SpecError, match=r"collectives.classes.*transport.kind: tcp"):
        parse_dict(raw, "classes.yaml")


def test_stock_kernels_have_no_classes() -> None:
    assert any(text.startswith("collectives.classes") for text in missing_for(spec_of()))


def test_flow_follows_classes_of_groups() -> None:
    spec = spec_of()
    priorities = setting_of_spec(spec).group_priorities
    assert priorities["default"] == 2
    assert priorities["model.3"] == priorities["(6, 7)"] == 3
    assert priorities["data.2"] == priorities["(4, 6)"] == 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_spec(tmp_path_factory.mktemp("classes"), SPEC)


def test_ports_serve_the_groups_in_their_classes(run: Path) -> None:
    """Each host of the last stage sends a layer's model-parallel gradient, the stage's, and the
    data-parallel gradient of a layer."""
    links = [json.loads(line) for line in (run / "links.jsonl").read_text().splitlines()]
    for host in ("h4", "h7"):
        (port,) = [row for row in links if row["node"] == host]
        sent = {row["priority"]: row["bytes"] for row in port["classes"]}
        # Headers, and what says that somebody is ready.
        for selector, size in ((3, MODEL), (2, STAGE), (1, DATA)):
            assert size < sent[selector] < 1.08 * size


def rows_of(run: Path, phase: str) -> list[dict[str, Any]]:
    """The rows of the last stage, which goes back first."""
    rows = [row for row in valid_rows(run, 0) if row["id"].split(".")[1] == phase]
    return sorted(rows, key=lambda row: row["start_ns"])[:2]


def slowed(run: Path) -> list[float]:
    """How much longer than alone model-parallel collectives take, which data-parallel ones of the
    same hosts are beside from their start to their end."""
    beside = rows_of(run, "weight_gradient")
    found = rows_of(run, "input_gradient")
    assert max(row["start_ns"] for row in beside) <= max(row["start_ns"] for row in found)
    assert min(row["end_ns"] for row in beside) > max(row["end_ns"] for row in found)
    return [row["duration_ns"] / row["predicted"]["flow"]["alone_ns"] for row in found]


def test_model_parallel_collectives_take_as_long_as_alone_beside_data_parallel_ones(
    run: Path,
) -> None:
    assert max(slowed(run)) < 1.15
    for row in rows_of(run, "input_gradient"):
        assert abs(row["predicted"]["flow"]["error"]) < 0.08


def test_the_pipeline_goes_before_data_parallel_collectives(run: Path) -> None:
    """Four messages share the link between the groups of four. They are there before the gradients
    that were posted earlier are reduced."""
    sent = [row for row in valid_rows(run, 0) if row["id"].split(".")[1] == "pipeline_backward"]
    first_stage = [
        row["start_ns"]
        for row in valid_rows(run, 0)
        if row["id"].split(".")[1] == "input_gradient" and row not in rows_of(run, "input_gradient")
    ]
    last_sent = max(row["start_ns"] for row in sent)
    assert max(first_stage) - last_sent < 1.15 * len(sent) * STAGE * 8 / 10
    assert max(first_stage) < min(row["end_ns"] for row in rows_of(run, "weight_gradient"))


@pytest.mark.long
def test_without_classes_they_share_and_the_other_way_round_they_wait(tmp_path: Path) -> None:
    given = "  classes: {model: 3, pipeline: 2, data: 1}\n"
    for name in ("shared", "reversed"):
        (tmp_path / name).mkdir()
    shared = run_spec(tmp_path / "shared", SPEC.replace(given, ""))
    assert max(slowed(shared)) > 2
    reversed_ = run_spec(tmp_path / "reversed", SPEC.replace("data: 1", "data: 4"))
    found = rows_of(reversed_, "input_gradient")
    reduced = rows_of(reversed_, "weight_gradient")
    assert min(row["end_ns"] for row in found) > min(row["end_ns"] for row in reduced)
