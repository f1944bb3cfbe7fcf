"""A study from its file to its table, with an engine that runs nothing."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import groundwire
from emulator.output_directory import DirectoryBusy
from groundwire.studies.axes import AXES, LevelUnfit
from groundwire.studies.engine import EngineError
from groundwire.studies.planning import StudyPlan, plan_study
from groundwire.studies.study import Study, study
from groundwire.studies.watch import StudyProgress
from tests.session.command import ROOT
from tests.session.command import groundwire as command
from tests.studies.fake_engine import FakeEngine
from topologies.extras import install_line
from topologies.spec.routing_section import Ecmp, Resilient
from topologies.spec.spec import SpecError, load_spec, parse_spec

_BASE = """
spec:
  fabric: {kind: fat-tree, k: 4}
  workload: {kind: dlrm, ranks: 8, iterations: 2}
"""
_FACTORS = """
factors:
  hardware: [25G, 100G]
  placement: [linear, random]
seeds: [1, 2]
"""


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    return path


def _done(tmp_path: Path, text: str, engine: FakeEngine) -> Study:
    return study(_file(tmp_path, text), out=tmp_path / "out", engine=engine)


def _rows(found: Study) -> list[dict[str, str]]:
    text = (found.directory / "table.csv").read_text()
    return list(csv.DictReader(io.StringIO(text)))


def _levels(plan: StudyPlan) -> list[tuple[str | float, ...]]:
    return [tuple(case.levels.values()) for case in plan.cases]


def test_a_grid_has_every_combination_for_every_seed(tmp_path: Path) -> None:
    plan = plan_study(_file(tmp_path, _BASE + _FACTORS))
    assert len(plan.cases) == 8
    assert len(plan.jobs) == len({job.key for job in plan.jobs}) == 16
    assert _levels(plan)[::2] == [
        ("25G", "linear"),
        ("25G", "random"),
        ("100G", "linear"),
        ("100G", "random"),
    ]
    assert [case.seed for case in plan.cases[:2]] == [1, 2]
    run = plan.cases[0].emulated
    assert run is not None
    spec = parse_spec(run.spec)
    assert (spec.fabric.link.rate_bps, spec.placement, spec.seed) == (25 * 10**9, "linear", 1)


def test_zipped_factors_change_together(tmp_path: Path) -> None:
    text = _BASE + _FACTORS + "zip: [[hardware, placement]]\n"
    assert _levels(plan_study(_file(tmp_path, text)))[::2] == [
        ("25G", "linear"),
        ("100G", "random"),
    ]


_RANGES = """
factors:
  fabric.link.rate: {range: [10Gbps, 400Gbps], scale: log}
  workload.batch_size: {range: [16, 128]}
  placement: [linear, random]
"""


def test_a_latin_hypercube_has_each_part_of_each_range_once(tmp_path: Path) -> None:
    cases = 8
    text = _BASE + _RANGES + f"design: {{kind: latin-hypercube, cases: {cases}, seed: 3}}\n"
    plan = plan_study(_file(tmp_path, text))
    levels = _levels(plan)
    batches = sorted(float(level[1]) for level in levels)
    for part, batch in enumerate(batches):
        low = 16 + 112 * part / cases
        assert low - 1 <= batch <= low + 112 / cases + 1
    rates = sorted(float(level[0]) for level in levels)
    for part, rate in enumerate(rates):
        assert 10e9 * 40 ** (part / cases) <= rate + 1
        assert rate - 1 <= 10e9 * 40 ** ((part + 1) / cases)
    assert sum(level[2] == "random" for level in levels) == cases / 2
    assert levels == _levels(plan_study(_file(tmp_path, text)))
    assert levels != _levels(plan_study(_file(tmp_path, text.replace("seed: 3", "seed: 4"))))


def test_a_range_in_a_grid_has_steps(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"factors.workload.batch_size: found a range without"):
        plan_study(_file(tmp_path, _BASE + _RANGES))
    text = _BASE + "factors: {workload.batch_size: {range: [10, 1000], scale: log, steps: 3}}\n"
    assert _levels(plan_study(_file(tmp_path, text))) == [(10.0,), (100.0,), (1000.0,)]


def test_beyond_the_size_cases_are_predicted(tmp_path: Path) -> None:
    text = (
        _BASE.replace("kind: fat-tree, k: 4", "kind: flat, hosts: 64")
        + "factors: {workload.ranks: [8, 16, 64]}\nemulate_up_to_ranks: 16\n"
    )
    found = _done(tmp_path, text, FakeEngine())
    assert [row["how"] for row in _rows(found)] == ["emulated", "emulated", "predicted"]
    assert [row["prediction_error"] for row in _rows(found)] == ["-0.5", "-0.5", ""]
    assert any("packet beside 2 emulated cases" in text for text in found.findings)


def test_a_factor_that_the_predictor_does_not_see_is_named(tmp_path: Path) -> None:
    blind = FakeEngine(predicts=lambda spec: 1_000_000)
    said = " ".join(_done(tmp_path, _BASE + _FACTORS, blind).findings)
    assert "packet does not see hardware: its levels are 400\u202fµs apart as measured, 0" in said
    assert "see placement" not in said  # 2% of the mean


def test_a_factor_that_the_predictor_sees_is_not_named(tmp_path: Path) -> None:
    assert "not see" not in " ".join(_done(tmp_path, _BASE + _FACTORS, FakeEngine()).findings)


def test_packet_predicts_whatever_the_transport(tmp_path: Path) -> None:
    base = _BASE + "factors: {transport.congestion_control: [cubic, dctcp]}\n"
    assert plan_study(_file(tmp_path, base)).file.predictor == "packet"
    assert plan_study(_file(tmp_path, base + "predictor: flow\n")).file.predictor == "flow"


@given(ranks=st.integers(2, 300))
@settings(deadline=None, max_examples=25)
def test_a_fabric_of_the_ready_axis_has_room_for_the_ranks(ranks: int) -> None:
    base = load_spec(ROOT / "topologies" / "two-hosts.yaml")
    for name, level in AXES["topology"].items():
        try:
            overrides = level(ranks)
        except LevelUnfit:
            continue
        texts = {key: json.dumps(value) for key, value in overrides.items()}
        try:
            spec = base.with_overrides(texts)
        except SpecError as error:
            # A prime number of ranks makes more leaves, or a longer axis, than a fabric has.
            assert "at most" in str(error) or "2 to 64 long" in str(error), (name, error)
            continue
        assert len(spec.plan.fabric.hosts) >= ranks, name


def test_every_ready_level_is_a_valid_spec(tmp_path: Path) -> None:
    """Each axis by itself, on the workload that it is for."""
    for axis, levels in AXES.items():
        training = [level for level in levels if level.endswith("-parallel")]
        for names, workload in (
            ([n for n in levels if n not in training], "{kind: dlrm, ranks: 8}"),
            (training, "{kind: training, parallelism: {data: 8}, hidden: 512, layers: 8}"),
        ):
            if not names:
                continue
            programs = "{backend: programs, all_to_all: {algorithm: direct}}"
            text = (
                f"spec: {{fabric: {{kind: fat-tree, k: 4}}, workload: {workload}, "
                f"collectives: {programs}}}\n"
                f"factors: {{{axis}: {json.dumps(names)}}}\n"
            )
            assert len(plan_study(_file(tmp_path, text)).cases) == len(names)


def test_every_bad_case_is_told_before_any_runs(tmp_path: Path) -> None:
    text = _BASE + "factors: {workload.ranks: [8, 32, 64], hardware: [25G, 100G]}\n"
    engine = FakeEngine()
    with pytest.raises(SpecError) as caught:
        _done(tmp_path, text, engine)
    said = str(caught.value)
    assert engine.asked == []
    assert not (tmp_path / "out").exists()
    assert said.startswith(f"{tmp_path / 'some.yaml'}: 4 mistakes")
    for case in (
        "case 3 (workload.ranks=32, hardware=25G): workload.ranks: found 32; expected at most 16",
        "case 6 (workload.ranks=64, hardware=100G): workload.ranks: found 64; expected at most 16",
    ):
        assert case in said


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        ("factors: {topologie: [flat]}", 5, "found topologie; did you mean topology?"),
        ("factors: {topology: [flat, torus]}", 5, "factors.topology[1]: found torus; "),
        ("factors: {topology: []}", 5, "factors.topology: found []; expected at least one level"),
        ("factors: {hardware: {fast: 3}}", 5, "factors.hardware.fast: found 3; expected keys"),
        ("factors: {placement: [linear, linear]}", 5, "expected each level once"),
        ("factors: {x: {key: seed, range: [3, 1]}}", 5, "factors.x.range: found [3, 1]; "),
        ("factors: {placement: [linear]}\nseed: 3", 6, "seed: found 3; unknown key"),
        ("factors: {placement: [linear]}\nresponses: [drop]", 6, "did you mean drops?"),
        ("factors: {placement: [linear]}\nlimits: {drops: -1}", 6, "limits.drops: found -1"),
        ("factors: {placement: [linear]}\nlimits: {iteration_ns: 3}", 6, "a time with a unit"),
        ("factors: {placement: [linear]}\npredictor: flowy", 6, "did you mean flow?"),
        ("factors: {placement: [linear]}\nzip: [[placement, b]]", 6, "zip[0][1]: found b"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(
    tmp_path: Path, change: str, line: int, said: str
) -> None:
    path = _file(tmp_path, _BASE + change + "\n")
    with pytest.raises(SpecError) as caught:
        plan_study(path)
    assert str(caught.value).startswith(f"{path}: line {line}: ")
    assert said in str(caught.value)


def test_mistakes_in_levels_are_told_beside_those_of_other_keys(tmp_path: Path) -> None:
    path = _file(tmp_path, _BASE + "factors: {topology: [flatt]}\nresponses: [marks]\n")
    with pytest.raises(SpecError) as caught:
        plan_study(path)
    assert {problem.found for problem in caught.value.problems} == {"flatt", "marks"}


def test_factors_that_set_the_same_key_contradict_each_other(tmp_path: Path) -> None:
    text = _BASE + "factors: {hardware: [25G], fabric.link.rate: [10Gbps]}\n"
    with pytest.raises(SpecError, match=r"expected one factor to set fabric\.link\.rate; hardware"):
        plan_study(_file(tmp_path, text))


def test_too_many_cases_are_refused(tmp_path: Path) -> None:
    text = _BASE + _FACTORS + "limits: {cases: 7}\n"
    with pytest.raises(SpecError, match=r"limits.cases: found 8 cases; expected at most 7"):
        plan_study(_file(tmp_path, text))


def test_a_bad_study_is_exit_code_2(tmp_path: Path) -> None:
    done = command("study", _file(tmp_path, _BASE + "factors: {workload.ranks: [17]}\n"))
    assert done.returncode == 2
    assert "workload.ranks: found 17" in done.stderr


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    first, second = FakeEngine(), FakeEngine()
    before = _done(tmp_path, _BASE + _FACTORS, first)
    text = (before.directory / "table.csv").read_bytes()
    _done(tmp_path, _BASE + _FACTORS, second)
    assert len(first.asked) == 16
    assert second.asked == []
    assert (before.directory / "table.csv").read_bytes() == text
    # A further level is all that is done of a study that has grown.
    third = FakeEngine()
    _done(tmp_path, _BASE + _FACTORS.replace("random]", "random, strided]"), third)
    assert len(third.asked) == 8


def test_what_differs_in_nothing_is_done_once(tmp_path: Path) -> None:
    """Two levels that set what the base has anyway."""
    engine = FakeEngine()
    text = _BASE + "factors: {hardware: {as-it-is: null, same: {fabric.k: 4}}}\n"
    found = _done(tmp_path, text, engine)
    assert len(engine.asked) == 2
    rows = _rows(found)
    assert len(rows) == 2
    assert rows[0]["directory"] == rows[1]["directory"]


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _done(tmp_path, _BASE + _FACTORS, FakeEngine(interrupt_after=5))
    rest = FakeEngine()
    found = _done(tmp_path, _BASE + _FACTORS, rest)
    assert len(rest.asked) == 11
    whole = study(_file(tmp_path, _BASE + _FACTORS), out=tmp_path / "b", engine=FakeEngine())
    for name in ("table.csv", "table.parquet", "study.html", "study.json"):
        assert (found.directory / name).read_bytes() == (whole.directory / name).read_bytes()


def test_a_failed_case_ends_no_other_and_is_done_again(tmp_path: Path) -> None:
    engine = FakeEngine(fails=lambda job: "25G, placement=random" in job.label)
    found = _done(tmp_path, _BASE + _FACTORS, engine)
    assert found.failed == 2
    failures = [row["failure"] for row in _rows(found)]
    assert failures.count("the fake failed") == 2
    assert failures.count("") == 6
    again = FakeEngine()
    assert _done(tmp_path, _BASE + _FACTORS, again).failed == 0
    assert len(again.asked) == 4


def test_another_seed_of_the_spec_is_another_directory(tmp_path: Path) -> None:
    one = plan_study(_file(tmp_path, _BASE + "factors: {placement: [linear]}\nseeds: [1]\n"))
    other = plan_study(_file(tmp_path, _BASE + "factors: {placement: [linear]}\nseeds: [2]\n"))
    assert {job.key for job in one.jobs}.isdisjoint(job.key for job in other.jobs)


def test_two_studies_do_not_share_a_directory_at_a_time(tmp_path: Path) -> None:
    path = _file(tmp_path, _BASE + _FACTORS)

    def within(progress: StudyProgress) -> None:
        with pytest.raises(DirectoryBusy, match="another study is at work"):
            study(path, out=tmp_path / "out", engine=FakeEngine())

    study(path, out=tmp_path / "out", engine=FakeEngine(), progress=within)


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    seen: list[StudyProgress] = []
    engine = FakeEngine(fails=lambda job: job.kind == "predict")
    study(
        _file(tmp_path, _BASE + _FACTORS), out=tmp_path / "o", engine=engine, progress=seen.append
    )
    assert (seen[0].total, seen[0].done, seen[0].left_s) == (16, 0, None)
    assert (seen[-1].done, seen[-1].failed, seen[-1].running, seen[-1].left_s) == (8, 8, 0, 0)
    assert max(progress.running for progress in seen) == 1


def test_the_page_names_what_decides(tmp_path: Path) -> None:
    text = _BASE + _FACTORS + "prices: {host: 10, gbps: 1}\nlimits: {iteration_ns: 1.42ms}\n"
    found = _done(tmp_path, text, FakeEngine())
    assert found.findings[0].startswith("hardware decides the iteration time: 99.4%")
    page = (found.directory / "study.html").read_text()
    assert "hardware decides" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    figures = {path.stem for path in (found.directory / "figures").glob("*.svg")}
    assert figures == {
        "shares-iteration_ns",
        "effects-iteration_ns",
        "interactions-iteration_ns",
        "cost",
        "agreement",
    }
    assert "Pareto front" in page
    beyond = [row["beyond_limits"] for row in _rows(found)]
    assert beyond == ["", "", "iteration_ns", "iteration_ns", "", "", "", ""]


def test_parquet_and_csv_have_the_same_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (the extra `studies`)")
    found = _done(tmp_path, _BASE + _FACTORS, FakeEngine())
    table = parquet.read_table(found.directory / "table.parquet").to_pylist()
    rows = _rows(found)
    assert [row["iteration_ns"] for row in table] == [int(row["iteration_ns"]) for row in rows]
    assert list(table[0]) == list(rows[0])


def test_without_pyarrow_the_rest_is_there_and_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = _done(tmp_path, _BASE + _FACTORS, FakeEngine())
    assert found.no_parquet == (
        f"Parquet needs pyarrow, which is not installed: {install_line('studies')}"
    )
    assert (found.directory / "study.html").exists()
    assert not (found.directory / "table.parquet").exists()


def test_without_dask_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EngineError, match=r"install 'groundwire\[studies\]'"):
        study(_file(tmp_path, _BASE + _FACTORS), out=tmp_path / "out")


def test_the_api_has_it() -> None:
    assert groundwire.study is study


@pytest.mark.parametrize("name", ["six-factors", "thousands"])
def test_a_study_that_ships_is_valid(name: str) -> None:
    plan = plan_study(ROOT / "studies" / f"{name}.yaml")
    ranks = {case.ranks for case in plan.cases}
    if name == "six-factors":
        assert len(plan.cases) >= 60
        assert len(plan.file.factors) == 6
        assert all(8 <= number <= 16 for number in ranks)
        assert all(case.how == "emulated" for case in plan.cases)
    else:
        assert {1024, 4096} <= ranks


def test_the_ready_axis_of_resilient_hashing_is_by_buckets(tmp_path: Path) -> None:
    text = (
        "spec: {fabric: {kind: fat-tree, k: 4, routing: spray}, "
        "workload: {kind: dlrm, ranks: 8}}\n"
        "factors: {resilient: [thresholds, 64]}\n"
    )
    plan = plan_study(_file(tmp_path, text))
    choices = [parse_spec(case.predicted.spec).plan.fabric.choice for case in plan.cases]
    assert choices == [Ecmp(), Ecmp(resilient=Resilient(buckets=64))]
