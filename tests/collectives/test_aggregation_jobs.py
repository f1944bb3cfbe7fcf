"""Several jobs on the same switches: their trees, their slots, and streams that wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.interface import load_predictor
from analysis.predict.planned_run import jobs_of, predict_run
from analysis.predict.setting import setting_of_spec
from analysis.runs.run import load_run
from collectives.settings import settings_of
from tests.session.command import run_spec
from topologies.spec.collectives_section import TreeOfGroup
from topologies.spec.spec import Spec, SpecError, parse_dict, parse_spec

STREAM = 400_000
LEAF_SPINE = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 4}
HALVES = (("h0", "h1", "h4", "h5"), ("h2", "h3", "h6", "h7"))


def spec_of(slots: tuple[int | None, int | None] = (None, None), **aggregation: object) -> Spec:
    """Two jobs, on half of each leaf's hosts; the second one starts later."""
    jobs: list[dict[str, Any]] = [
        {
            "name": name,
            "placement": dict(enumerate(hosts)),
            "workload": {
                "kind": "collectives",
                "ranks": 4,
                "operations": [{"kind": "all_reduce", "size": STREAM}],
            },
            "start": f"{20 * number}us",
            "slots": own,
        }
        for number, (name, hosts, own) in enumerate(
            zip(("left", "right"), HALVES, slots, strict=True)
        )
    ]
    raw = {
        "name": "two-jobs",
        "fabric": LEAF_SPINE,
        "jobs": jobs,
        "aggregation": {"mode": "streaming"} | aggregation,
        "collectives": {"backend": "programs", "all_reduce": {"algorithm": "aggregation"}},
    }
    return parse_dict(raw, "jobs.yaml")


def tree_of(spec: Spec, job: str) -> TreeOfGroup:
    found = settings_of(spec.parts[job]).aggregation
    assert found is not None
    (tree,) = found.trees
    return tree


# -- trees and slots -------------------------------------------------------------------------------


def test_jobs_have_trees_with_different_roots_and_share_the_slots() -> None:
    left, right = (tree_of(spec_of(), job) for job in ("left", "right"))
    assert left.switches == ("leaf0", "leaf1", "spine0")
    assert right.switches == ("leaf0", "leaf1", "spine1")
    # A leaf is in both trees.
    assert (left.slots, right.slots) == (32, 32)
    # The job's own spec tells the same when it is read again.
    part = spec_of().parts["right"]
    assert settings_of(parse_spec(part.to_yaml())) == settings_of(part)


def test_a_job_has_its_quota_and_the_others_what_is_left() -> None:
    spec = spec_of((48, None))
    assert [tree_of(spec, job).slots for job in ("left", "right")] == [48, 16]


def test_a_job_for_which_no_slots_are_left_is_refused_with_who_has_them() -> None:
    with pytest.raises(SpecError) as failure:
        spec_of((48, 32))
    said = "leaf0 has 16 of its 64 slots left (job left has 48), and the quota of a group is 32"
    assert said in str(failure.value)
    fallen = spec_of((48, 32), when_full="fall-back")
    assert not tree_of(fallen, "left").reason and tree_of(fallen, "right").reason


def test_what_makes_no_sense_with_jobs_is_refused() -> None:
    with pytest.raises(SpecError, match="expected none with jobs: the groups of one workload"):
        spec_of(middles=3)
    raw = spec_of((8, 8)).to_dict()
    with pytest.raises(SpecError, match="expected none without aggregation: nobody has slots"):
        parse_dict(raw | {"aggregation": None, "collectives": {}}, "jobs.yaml")


# -- streams ---------------------------------------------------------------------------------------


def predicted_us(streams: str) -> tuple[float, float]:
    """The time of each job, from its start."""
    spec = spec_of(streams=streams)
    found = predict_run(jobs_of(spec), setting_of_spec(spec), load_predictor("flow"))
    left, right = (found[job.name].duration_ns / 1000 for job in spec.jobs)
    return left, right


def test_a_second_job_waits_by_the_rule_of_one_a_switch_and_not_of_one_a_port() -> None:
    """They share the leaves, and no port."""
    alone, waits = predicted_us(streams="one-a-switch")
    for rule in ("one-a-port", "any"):
        assert predicted_us(streams=rule) == pytest.approx((alone, alone), rel=0.01)
    # The second one comes 20 us later. Its first piece is on its way up while it waits.
    assert 1.4 * alone < waits < 2 * alone - 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On a mesh, whose tree is given; both jobs are all over it."""
    raw = spec_of().to_dict()
    for job, hosts in zip(
        raw["jobs"], (("h0", "h2", "h5", "h7"), ("h1", "h3", "h4", "h6")), strict=True
    ):
        job["placement"] = dict(enumerate(hosts))
    raw["fabric"] = {"kind": "mesh", "dims": [2, 4]}
    raw["aggregation"]["parents"] = {
        "h0": "h1", "h1": "h2", "h3": "h2", "h4": "h0", "h5": "h1", "h6": "h2", "h7": "h3",
    }  # fmt: skip
    raw["predict"] = ["flow"]
    text = parse_dict(raw, "jobs.yaml").to_yaml()
    return run_spec(tmp_path_factory.mktemp("jobs"), text)


def test_a_second_job_waits_on_the_wire(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert result["valid"] is True
    left, right = result["jobs"]
    assert right["duration_ns"] > 1.5 * left["duration_ns"]
    for job in (left, right):
        # Streams of a first iteration have small windows in the beginning.
        assert abs(job["predicted"]["flow"]["error"]) < 0.15
    assert [log.checks for log in load_run(run).ranks] == [1] * 8


def test_each_job_tells_how_it_used_the_switches(run: Path) -> None:
    for job in ("left", "right"):
        directory = run / "jobs" / job
        assert (directory / "switches" / "h2.jsonl").read_text().count("start_ns") == 1
        assert "The aggregation tree on the fabric" in (directory / "report.html").read_text()
