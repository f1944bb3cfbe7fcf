"""Jobs predicted together, where theory says what they must take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import groundwire
from analysis.predict.interface import PredictorError, load_predictor
from analysis.predict.planned_run import PredictedJob, jobs_of, predict_run
from analysis.predict.setting import setting_of_spec
from groundwire.commands.predict import predict_command
from topologies.spec.spec import parse_spec

_SPEC = """
name: shared
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 1
  hosts_per_leaf: 2
  link: {{rate: 10Gbps, delay: 1us, mtu: 9000}}
jobs:
  - {{name: a, placement: {{0: {a[0]}, 1: {a[1]}}}, workload: {workload}}}
  - {{name: b, placement: {{0: {b[0]}, 1: {b[1]}}}, start: {start}, workload: {workload}}}
"""
_SENDS = "{kind: collectives, ranks: 2, iterations: 2, operations: [{kind: send_recv, size: 10MB}]}"
_ACROSS, _BESIDE = ("h0", "h2"), ("h1", "h3")


def _predicted(
    a: tuple[str, str] = _ACROSS,
    b: tuple[str, str] = _BESIDE,
    start: str = "0ns",
    only: str | None = None,
    workload: str = _SENDS,
) -> dict[str, PredictedJob]:
    spec = parse_spec(_SPEC.format(a=a, b=b, start=start, workload=workload))
    jobs = [job for job in jobs_of(spec) if only in (None, job.name)]
    return predict_run(jobs, setting_of_spec(spec), load_predictor("flow"))


def test_two_streams_on_one_link_take_twice_as_long() -> None:
    alone, both = _predicted(only="a")["a"], _predicted()
    for job in both.values():
        assert job.duration_ns == pytest.approx(2 * alone.duration_ns, rel=0.02)


def test_jobs_on_links_of_their_own_take_no_longer() -> None:
    apart = {"a": ("h0", "h1"), "b": ("h2", "h3")}
    both = _predicted(apart["a"], apart["b"])
    for name in both:
        assert both[name] == _predicted(apart["a"], apart["b"], only=name)[name]


def test_a_job_that_starts_when_the_other_is_over_takes_no_longer() -> None:
    alone = _predicted(only="a")["a"]
    both = _predicted(start=f"{2 * alone.duration_ns}ns")
    assert both["a"] == alone
    assert both["b"].duration_ns == pytest.approx(alone.duration_ns, abs=10)


def test_a_start_in_the_middle_shares_what_is_left() -> None:
    """With T alone: a sends half by itself, and both share until a is over, T/2 of work in T; b has
    half of its work left then, T/2: each takes 1.5 T."""
    alone = _predicted(only="a")["a"].duration_ns
    both = _predicted(start=f"{alone // 2}ns")
    for job in both.values():
        assert job.duration_ns == pytest.approx(1.5 * alone, rel=0.02)


def test_an_iteration_follows_the_one_before() -> None:
    job = _predicted(only="a")["a"]
    assert len(job.iterations) == 2
    assert sum(each.duration_ns for each in job.iterations) >= job.duration_ns - 2


def test_computing_is_not_slowed_down_by_neighbours() -> None:
    layers = (
        "{kind: layers, ranks: 2, passes: 1, parallelism: model, layers: [{name: x, forward: "
        "{compute: 20ms, collective: all_reduce, size: 1MB}}]}"
    )
    alone, both = (_predicted(only=only, workload=layers)["a"] for only in ("a", None))
    assert both.iterations[0].compute_ns == alone.iterations[0].compute_ns == 20_000_000
    assert both.iterations[0].exposed_comm_ns > 1.3 * alone.iterations[0].exposed_comm_ns


def test_programs_of_users_are_not_predicted_ahead() -> None:
    with pytest.raises(PredictorError, match=r"job a: .* command is not predicted"):
        _predicted(workload="{kind: command, argv: [x], ranks: 2}")


def test_who_knows_collectives_alone_says_so() -> None:
    spec = parse_spec(_SPEC.format(a=_ACROSS, b=_BESIDE, start="0ns", workload=_SENDS))
    with pytest.raises(PredictorError, match="message by message"):
        predict_run(jobs_of(spec), setting_of_spec(spec), load_predictor("alpha-beta"))


def test_the_command_predicts_jobs_before_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(_SPEC.format(a=_ACROSS, b=_BESIDE, start="0ns", workload=_SENDS))
    assert predict_command(path, predictor=["flow", "alpha-beta"], as_json=True) == 0
    rows = {(r["job"], r["predictor"]): r for r in json.loads(capsys.readouterr().out)["jobs"]}
    for job in ("a", "b"):
        assert rows[job, "flow"]["slowdown"] == pytest.approx(2, rel=0.02)
        assert "message by message" in rows[job, "alpha-beta"]["reason"]
    assert predict_command(path, predictor=["flow"], set_=["jobs.1.start=1s"]) == 0
    assert "1.000" in capsys.readouterr().out


def test_the_api_predicts_jobs_as_the_command_does() -> None:
    spec = parse_spec(_SPEC.format(a=_ACROSS, b=_BESIDE, start="0ns", workload=_SENDS))
    found = groundwire.predict(spec, predictors=["flow"])
    assert [(each.job, each.predictor) for each in found.jobs] == [("a", "flow"), ("b", "flow")]
    assert [each.slowdown for each in found.jobs] == pytest.approx([2, 2], rel=0.02)
    assert found.collectives == ()


def _sharing(classes: str, left: str, right: str) -> dict[str, PredictedJob]:
    text = f"""
name: classes
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 1
  hosts_per_leaf: 2
  link: {{rate: 10Gbps, delay: 1us, mtu: 9000}}
  queue: {{kind: classes, classes: {classes}}}
jobs:
  - {{name: a, class: {left}, placement: {{0: h0, 1: h2}}, workload: {_SENDS}}}
  - {{name: b, class: {right}, placement: {{0: h1, 1: h3}}, workload: {_SENDS}}}
"""
    spec = parse_spec(text)
    return predict_run(jobs_of(spec), setting_of_spec(spec), load_predictor("flow"))


def test_a_job_of_a_higher_class_is_not_slowed_down() -> None:
    alone = _predicted(only="a")["a"].duration_ns
    both = _sharing("{low: {priority: 1}, high: {priority: 4}}", "low", "high")
    assert both["b"].duration_ns == pytest.approx(alone, rel=0.01)
    assert both["a"].duration_ns == pytest.approx(2 * alone, rel=0.02)


def test_jobs_share_by_weight() -> None:
    """With 3 to 1, b sends 3/4 of the time until it is over, 4/3 T; a then has 2/3 T left."""
    alone = _predicted(only="a")["a"].duration_ns
    both = _sharing("{low: {priority: 1, weight: 1}, high: {priority: 4, weight: 3}}", "1", "high")
    assert both["b"].duration_ns == pytest.approx(alone * 4 / 3, rel=0.02)
    assert both["a"].duration_ns == pytest.approx(2 * alone, rel=0.02)
