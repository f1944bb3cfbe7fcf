"""Labs as a student takes them, by the command: the starter does not pass, the solution does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emulator.virtual.building.build import find_kernel
from groundwire.labs.folder import open_folder, read_answers, write_answers
from groundwire.labs.formula import value
from groundwire.labs.lab import lab_names
from groundwire.labs.running import outcome_of
from tests.session.command import groundwire

pytestmark = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)
_WRONG_ANSWERS = 3


def _check(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(groundwire("lab", "check", folder, "--json").stdout)
    return found


@pytest.mark.parametrize("name", lab_names())
def test_the_solution_gets_full_marks_and_wrong_answers_their_hints(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "solved"
    started = groundwire("lab", "start", name, folder, "--name", "Ada", "--solution")
    assert started.returncode == 0, started.stderr
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
    answers = read_answers(opened)
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


@pytest.mark.parametrize(
    ("name", "run", "question", "said"),
    [
        ("packet-time", "wire", "measured_ns", "See TODO 1"),
        ("ring-all-reduce", "ring", "measured_bytes", "the TODO in ring.py"),
        ("in-network", "slots", "slots_time", "the TODO in slots.yaml"),
    ],
)
def test_the_starter_runs_and_does_not_pass(
    name: str, run: str, question: str, said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "begun"
    assert groundwire("lab", "start", name, folder, "--name", "Ada").returncode == 0
    ran = groundwire("lab", "run", folder, "--only", run)
    assert ran.returncode == 0, ran.stderr
    verdict = _check(folder)
    assert verdict["points"] <= 2  # the slow ring's sums are right, and 2 slots are not too many
    (wrong,) = [each for each in verdict["questions"] if each["name"] == question]
    assert wrong["found"] is not None
    assert said in wrong["hint"]
    hint = groundwire("lab", "hint", question, "--dir", folder)
    assert wrong["hint"] in " ".join(hint.stdout.split())
    worked_on = next(folder.glob("*.py"), folder / "slots.yaml")
    worked_on.write_text(worked_on.read_text() + "\n")
    said = f"{worked_on.name} has changed since the run"
    assert said in _check(folder)["failures"][run]


@pytest.mark.parametrize(
    ("name", "run", "question", "said"),
    [
        ("lossless", "ring", "ring_time", "the TODO in ring.yaml"),
        ("incast", "tuned", "tuned_time", "(k_kb), then run"),
        ("ecmp-placement", "placed", "placed_time", "Write the hosts of ranks"),
        ("dlrm", "tuned", "tuned_time", "(bucket_kb), then run"),
    ],
)
def test_the_starter_fails_where_something_is_to_be_decided(
    name: str, run: str, question: str, said: str, tmp_path: Path
) -> None:
    """Its runs come to nothing before that, and the hint says what is to be done."""
    folder = tmp_path / "begun"
    assert groundwire("lab", "start", name, folder, "--name", "Ada").returncode == 0
    assert groundwire("lab", "run", folder, "--only", run).returncode == 1
    verdict = _check(folder)
    assert verdict["points"] == 0
    (wrong,) = [each for each in verdict["questions"] if each["name"] == question]
    assert said in wrong["hint"]


def test_labs_are_listed_and_a_wrong_name_is_answered() -> None:
    listed = json.loads(groundwire("lab", "list", "--json").stdout)
    assert [each["name"] for each in listed][:1] == ["packet-time"]
    assert len(listed) == len(lab_names())
    wrong = groundwire("lab", "start", "packet-tim")
    assert wrong.returncode == 2
    assert "found 'packet-tim'; allowed are" in wrong.stderr
