"""The Python API as an editor and a notebook see it, and what it takes."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import groundwire
from analysis.exporters.nccl_style import render_nccl_style
from analysis.runs.run import load_run
from groundwire.rooms import ROOMS
from tests.report.synthetic_run import make_run
from tests.session.command import ROOT

_SPEC: dict[str, Any] = {
    "fabric": {"kind": "flat", "hosts": 2},
    "workload": {"kind": "dlrm", "ranks": 2},
}


def test_an_unknown_kernel_is_named_with_what_is_allowed(tmp_path: Path) -> None:
    for wrong in ("natve", "Virtual", ""):
        with pytest.raises(groundwire.UnknownKernel, match=f"kernel: found {wrong!r}; .*expected"):
            groundwire.run(_SPEC, kernel=wrong, out=tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(groundwire.UnknownKernel, match="did you mean native"):
        list(groundwire.sweep(_SPEC, {"seed": [1]}, kernel="natve"))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_spec_is_a_dict_a_path_or_a_text_of_one(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(groundwire.resolve(_SPEC).to_yaml())
    specs = [groundwire.resolve(each) for each in (_SPEC, file, str(file))]
    assert specs[0] == specs[1] == specs[2] == groundwire.resolve(specs[0])
    assert groundwire.resolve(_SPEC, {"fabric.hosts": 4}).to_dict()["fabric"]["hosts"] == 4
    assert _SPEC["fabric"] == {"kind": "flat", "hosts": 2}
    assert groundwire.predict(_SPEC, predictors=["alpha-beta"]).collectives
    with pytest.raises(groundwire.SpecError, match="spec: fabric: found nothing"):
        groundwire.resolve({"workload": _SPEC["workload"]})
    with pytest.raises(TypeError, match="spec: found int; expected a Spec, a dict or a path"):
        groundwire.resolve(5)  # type: ignore[arg-type]


def test_every_name_is_listed_and_there() -> None:
    assert set(groundwire.__all__) <= set(dir(groundwire))
    assert groundwire.__version__
    for name in groundwire.__all__:
        assert getattr(groundwire, name) is not None
    for name in ("SpecError", "RunError", "SessionFailed", "RankFailed", "PredictorError"):
        assert issubclass(getattr(groundwire, name), Exception)


def test_type_checkers_see_types() -> None:
    for room in ROOMS:
        assert (ROOT / room / "py.typed").is_file()


def test_numbers_that_were_checked_are_not_wrong(tmp_path: Path) -> None:
    """nccl-tests' column #wrong: 0 where ranks compare all that they receive."""
    run = load_run(make_run(tmp_path / "run", "kind: flat, hosts: 4", ranks=4))
    rows = [line for line in render_nccl_style(run).splitlines() if not line.startswith("#")]
    assert rows and all(line.split()[-1] == "0" for line in rows if line.strip())


def test_a_predictor_that_is_missing_says_why(tmp_path: Path) -> None:
    """Beside the `-` in the table of a run."""
    run = make_run(tmp_path / "run", "kind: flat, hosts: 4", ranks=4)
    text = (run / "spec.yaml").read_text().replace("predict: [alpha-beta]", "predict: [ns3]")
    (run / "spec.yaml").write_text(text)
    program = f"""
import sys
from analysis.results.result import write_result
from analysis.runs.run import load_run
sys.modules["ns"] = None
from importlib import util
find = util.find_spec
util.find_spec = lambda name, *rest: None if name == "ns" else find(name, *rest)
from groundwire.commands.console.figures import output_console
from groundwire.commands.console.result_table import print_result
from pathlib import Path
run = Path({str(run)!r})
print_result(write_result(load_run(run)), run, output_console())
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ns3 has no answer for 4 collectives: ns3 needs the package of that name" in done.stdout


def test_whatever_a_function_raises_can_be_caught_by_its_name() -> None:
    functions = [getattr(groundwire, name) for name in groundwire.__all__ if name.islower()]
    said = " ".join(inspect.getdoc(each) or "" for each in functions if callable(each))
    names = {
        name
        for sentence in re.findall(r"[Rr]aises?[^.]*\.", said)
        for name in re.findall(
            r"\b[A-Z]\w+(?:Error|Failed|Refused|NotFound|Missing|Full|Busy)\b", sentence
        )
    }
    assert len(names) > 8
    assert {name for name in names if not hasattr(builtins, name)} <= set(groundwire.__all__)


def test_a_prediction_is_a_line(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "name": "two",
        "fabric": {"kind": "flat", "hosts": 2},
        "workload": {
            "kind": "collectives",
            "ranks": 2,
            "operations": [{"kind": "all_reduce", "size": "1MB"}],
        },
    }
    shown = repr(groundwire.predict(spec, predictors=["alpha-beta", "textbook"]))
    assert shown.startswith("<Forecast two: 1 collectives, an iteration: alpha-beta ")
    assert "textbook " in shown and len(shown) < 120
    job = {key: each for key, each in spec.items() if key != "workload"}
    job["jobs"] = [{"name": name, "workload": spec["workload"]} for name in ("a", "b")]
    job["fabric"] = {"kind": "flat", "hosts": 4}
    shown = repr(groundwire.predict(job, predictors=["flow"]))
    assert shown.startswith("<Forecast two: 2 jobs: a by flow ") and len(shown) < 120


def test_the_measurements_of_a_run_are_data_frames(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    run = load_run(make_run(tmp_path / "run", queues=True))
    frames = groundwire.frames(run)
    assert {"collectives", "iterations", "ports", "ports_over_time"} <= set(frames)
    assert len(frames) == len(list(frames)) and set(frames) <= set(dir(frames))
    slowest = frames.collectives.sort_values("duration_ns", ascending=False).iloc[0]
    assert slowest["phase"] == "MLP AllReduce"
    over_time = frames["ports_over_time"]
    assert over_time.groupby("port")["peak_bytes"].max().min() == 99 * 2_000
    assert list(over_time.columns[:4]) == ["port", "node", "peer", "time_ns"]
    with pytest.raises(AttributeError, match="no table 'colectives': collectives, iterations"):
        _ = frames.colectives


def test_a_run_has_its_measurements_as_attributes(tmp_path: Path) -> None:
    """pandas is imported when one is asked for, and not by reading a run."""
    pytest.importorskip("pandas")
    directory = make_run(tmp_path / "run", queues=True)
    program = f"""
import sys
import groundwire
run = groundwire.load_run({str(directory)!r})
assert "pandas" not in sys.modules
names = {{"collectives", "iterations", "links", "flows"}}
print(len(run.collectives), len(run.iterations), len(run.links), names <= set(dir(run)))
assert "pandas" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    run = load_run(directory)
    frames = groundwire.frames(run)
    counts = [len(frames.collectives), len(frames.iterations), len(run.port_counters)]
    assert done.stdout.split() == [*map(str, counts), "True"], done.stderr
    assert run.collectives.equals(frames.collectives) and set(run.frames) == set(frames)
    with pytest.raises(KeyError, match="no table 'flows'"):
        _ = run.flows


def test_data_frames_go_on_by_arrow(tmp_path: Path) -> None:
    """As polars takes them: by the stream that pandas offers, with no table of mixed types."""
    pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    frames = groundwire.frames(load_run(make_run(tmp_path / "run", queues=True)))
    for name, frame in frames.items():
        read = arrow.RecordBatchReader.from_stream(frame).read_all()
        assert read.column_names == list(frame.columns), name
        assert read.num_rows == len(frame), name


def test_a_run_prints_as_a_line_with_its_verdict(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", invalid=("a <b>hog</b> ran",)))
    assert repr(run).startswith(
        "<Run synthetic: NOT VALID, virtual kernel, 16 ranks, 4 collectives"
    )
    assert "\n" not in repr(run) and len(repr(run)) < 300
    assert "<li>a &lt;b&gt;hog&lt;/b&gt; ran</li>" in run._repr_html_()
    (run.directory / "result.json").unlink()
    assert "no result yet" in repr(load_run(run.directory))
