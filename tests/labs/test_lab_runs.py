"""Labs as a student takes them, by the command: the starter does not pass, the solution does.

Runs are made by a process of their own, as students make them. Commands that take no time are
called in this process, as importing all of Groundwire would take more than the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from emulator.virtual.building.build import find_kernel
from groundwire.commands.labs.lab import lab_app
from groundwire.labs.folder import open_folder, read_answers, write_answers
from groundwire.labs.formula import value
from groundwire.labs.lab import lab_names
from groundwire.labs.running import outcome_of
from tests.session.command import groundwire

pytestmark = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)
_WRONG_ANSWERS = 3


def _lab(*arguments: str | Path) -> Result:
    """`groundwire lab ARGUMENTS`, in this process."""
    return CliRunner().invoke(lab_app, [str(each) for each in arguments])


def _check(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_lab("check", folder, "--json", "--instructor").stdout)
    return found


@pytest.mark.parametrize("name", lab_names())
def test_the_solution_gets_full_marks_and_wrong_answers_their_hints(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "solved"
    started = _lab("start", name, folder, "--name", "Ada", "--solution")
    assert started.exit_code == 0, started.output
    ran = groundwire("lab", "run", folder)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    verdict = _check(folder)
    assert verdict["points"] == verdict["of"], verdict
    hints = _answer_wrongly(folder)
    assert len(hints) == _WRONG_ANSWERS
    graded = _check(folder)["questions"]
    assert {each["name"]: each["hint"] for each in graded if not each["passed"]} == hints
    _change_one_spec(folder)


def _change_one_spec(folder: Path) -> None:
    """Runs of other specs are still what they were."""
    runs = open_folder(folder).lab.runs
    spec = next(iter(runs.values())).spec
    (folder / spec).write_text((folder / spec).read_text() + "\n")
    failures = _check(folder)["failures"]
    assert {*failures} == {name for name, run in runs.items() if run.spec == spec}
    assert all(f"{spec} has changed since the run" in each for each in failures.values())


def _answer_wrongly(folder: Path) -> dict[str, str]:
    """Give typical wrong answers to the last questions, which mostly hang on runs; question ->
    the hint that it should get."""
    opened = open_folder(folder)
    answers = dict(read_answers(opened).numbers)
    known = opened.student.numbers | outcome_of(opened).facts
    hints: dict[str, str] = {}
    for question in reversed(opened.lab.questions):
        found = [each for each in question.mistakes if each.found is not None]
        if question.measured is None and found and len(hints) < _WRONG_ANSWERS:
            assert found[0].found is not None
            answers[question.name] = value(found[0].found, known)
            hints[question.name] = found[0].hint
    write_answers(opened, answers)
    return hints


_STARTERS = {  # lab -> the run that its TODO is about, a question that fails, its hint
    "packet-time": ("wire", "measured_ns", "See TODO 1"),
    "ring-all-reduce": ("ring", "measured_bytes", "the TODO in ring.py"),
    "incast": ("tuned", "tuned_time", "K is too small"),
    "lossless": ("ring", "ring_time", "the TODO in ring.yaml"),
    "ecmp-placement": ("placed", "nothing_crosses", "Put each pair under one leaf"),
    "dlrm": ("tuned", "tuned_time", "Is overlap true?"),
    "hierarchies": ("hierarchy", "opt_time", "Does it still have full_size?"),
    "in-network": ("slots", "slots_time", "the TODO in slots.yaml"),
    "halving-doubling": ("bench", "hd_sent", "the TODO in reduces.py"),
    "outage": ("epoch", "epoch_made", "the TODO in batches.py"),
    "gloo-scaling": ("four", "reduce_sent", "the first TODO in sync.py"),
    "congestion-control": ("tuned", "tuned_drops", "choose a smaller k"),
    "kv-transfer": ("split", "split_wait", "Does it still send all at once?"),
    "trust": ("fit", "fit_beta", "the TODO in model.py"),
}
_POINTS_OF_STARTERS = 2  # a slow ring's sums are right, 2 slots are few, a K of 3 KB drops none


@pytest.mark.parametrize("name", lab_names())
def test_the_starter_runs_and_does_not_pass(name: str, tmp_path: Path) -> None:
    run, question, said = _STARTERS[name]
    folder = tmp_path / "begun"
    assert _lab("start", name, folder, "--name", "Ada").exit_code == 0
    if name == "dlrm":  # where the question compares two runs
        assert groundwire("lab", "run", folder, "--only", "waiting").returncode == 0
    ran = groundwire("lab", "run", folder, "--only", run)
    deadlock = name in ("lossless", "outage")  # what their TODOs are to break
    assert ran.returncode == int(deadlock), ran.stderr
    assert deadlock or f"run {run}" in ran.stdout
    verdict = _check(folder)
    assert verdict["points"] <= _POINTS_OF_STARTERS
    (wrong,) = [each for each in verdict["questions"] if each["name"] == question]
    assert (wrong["expected"] is None) == deadlock
    assert said in wrong["hint"]
    hint = _lab("hint", question, "--dir", folder)
    assert wrong["hint"] in " ".join(hint.stdout.split())
    opened = open_folder(folder)
    worked_on = opened.lab.runs[run].files or (opened.lab.runs[run].spec,)
    file = folder / worked_on[-1]
    file.write_text(file.read_text() + "\n")
    assert f"{worked_on[-1]} has changed since the run" in _check(folder)["failures"][run]


def test_labs_are_listed_and_a_wrong_name_is_answered() -> None:
    listed = json.loads(groundwire("lab", "list", "--json").stdout)
    assert [each["name"] for each in listed][:1] == ["packet-time"]
    assert len(listed) == len(lab_names())
    wrong = groundwire("lab", "start", "packet-tim")
    assert wrong.returncode == 2
    assert "found 'packet-tim'; allowed are" in wrong.stderr
