"""Every lab is whole: its numbers, its right answers and its typical wrong ones, for anybody."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.labs.errors import LabError
from groundwire.labs.folder import (
    PAGE,
    Answers,
    answers_text,
    handed_in,
    open_folder,
    read_answers,
    start,
)
from groundwire.labs.formula import Number, value
from groundwire.labs.grading import Verdict, grade, right_answers
from groundwire.labs.lab import LABS, Lab, lab_names, load_lab
from groundwire.labs.running import Outcome
from groundwire.labs.student import Student, usual_name
from topologies.spec.spec import load_spec

_LABS = lab_names()
_CLASS = [f"student {number}" for number in range(60)]


def _some_facts(lab: Lab) -> dict[str, Number]:
    """Facts that runs could have had: numbers of no special kind, far from each other."""
    return {
        name: int(123_456 * 1.7 ** (index**1.3)) for index, name in enumerate(sorted(lab.facts))
    }


def _graded(student: Student, answers: dict[str, Number]) -> Verdict:
    return grade(student, Answers(answers), Outcome(_some_facts(student.lab), {}))


@pytest.mark.parametrize("name", _LABS)
def test_right_answers_pass_for_the_whole_class(name: str) -> None:
    lab = load_lab(name)
    for person in _CLASS:
        student = Student(person, lab)
        verdict = _graded(student, right_answers(student, _some_facts(lab)))
        answered = [each for each in verdict.questions if each.question.measured is None]
        assert all(each.passed for each in answered), person


@pytest.mark.parametrize("name", _LABS)
def test_typical_wrong_answers_get_their_hint(name: str) -> None:
    """At least three in each lab, and none of them is right for somebody."""
    lab = load_lab(name)
    tried = set()
    for person in _CLASS:
        student = Student(person, lab)
        known = student.numbers | _some_facts(lab)
        for question in lab.questions:
            if question.measured is not None:
                continue
            for mistake in question.mistakes:
                if mistake.found is None:
                    continue
                found = value(mistake.found, known)
                graded = {
                    g.question.name: g for g in _graded(student, {question.name: found}).questions
                }
                assert not graded[question.name].passed, (person, question.name, mistake)
                assert graded[question.name].hint == mistake.hint, (person, question.name)
                tried.add(mistake.hint)
    assert len(tried) >= 3


@pytest.mark.parametrize("name", _LABS)
def test_an_answer_of_nothing_gets_no_points(name: str) -> None:
    student = Student("nobody", load_lab(name))
    verdict = grade(student, Answers({}), Outcome({}, dict.fromkeys(student.lab.runs, "not run")))
    assert verdict.points == 0
    assert all(graded.hint for graded in verdict.questions)
    assert all(graded.expected is None for graded in verdict.questions)


@pytest.mark.parametrize("name", _LABS)
def test_numbers_differ_in_a_class(name: str) -> None:
    """Few of 60 students share all numbers, so that copied answers are wrong."""
    lab = load_lab(name)
    different = {tuple(Student(person, lab).numbers.items()) for person in _CLASS}
    assert len(different) > 20


@pytest.mark.parametrize("name", _LABS)
def test_a_folder_is_made_and_read(name: str, tmp_path: Path) -> None:
    lab = load_lab(name)
    made = start(Student("Ada Lovelace", lab), tmp_path / "ada")
    assert open_folder(made.path) == made
    assert read_answers(made) == Answers({})
    page = (made.path / PAGE).read_text()
    assert "Ada Lovelace" in page
    assert f"{lab.points} of {lab.points} points" in page
    for question in lab.questions:
        if question.measured is None:
            assert f"**{question.name}**" in page, question.name
    for run in lab.runs.values():
        load_spec(made.path / run.spec)
    for file in lab.hand_in:
        assert f"`{file}`" in page


@pytest.mark.parametrize("name", _LABS)
def test_files_are_short_and_have_their_instructions(name: str) -> None:
    folder = LABS / name
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text())
        assert len(path.read_text().splitlines()) <= 150
    assert "| common mistake |" in (folder / "instructor.md").read_text()
    solution = load_lab(name).solution
    assert solution
    for path in solution:
        assert "TODO" in (folder / "starter" / path).read_text()
        assert "TODO" not in (folder / "solution" / path).read_text()


@given(st.text(min_size=1, max_size=30))
def test_a_name_has_its_numbers_however_it_is_written(name: str) -> None:
    lab = load_lab("packet-time")
    assert Student(f" {name}  ", lab).numbers == Student(usual_name(name), lab).numbers


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "open('x')",
        "(1).real",
        "[1]",
        "1 if 1 else 2",
        "f'{1}'",
        "1 +",
        "min(x=1)",
    ],
)
def test_only_arithmetic_is_evaluated(formula: str) -> None:
    with pytest.raises(LabError):
        value(formula, {"x": 1})


def test_arithmetic() -> None:
    assert value("ceil(7 / 2) * -x + 2 ** 3 // 3 % 2", {"x": 3}) == -12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wire_bytes: many", "found 'many'; expected a number"),
        ("wire_byte: 3", "found 'wire_byte': no such question; allowed are"),
        ("wire_bytes: .nan", "expected a number"),
        ("wire_bytes: true", "expected a number"),
    ],
)
def test_one_bad_answer_costs_itself_alone(text: str, said: str, tmp_path: Path) -> None:
    folder = start(Student("Ada", load_lab("packet-time")), tmp_path / "ada")
    right = right_answers(folder.student, {})
    others = {name: each for name, each in right.items() if name != "wire_bytes"}
    (folder.path / "answers.yaml").write_text(
        text + "".join(f"\n{name}: {each}" for name, each in others.items())
    )
    answers = read_answers(folder)
    assert answers.numbers == others
    (why,) = answers.refused.values()
    assert said in why
    verdict = grade(folder.student, answers, Outcome({}, {}))
    assert {each.question.name for each in verdict.questions if each.passed} == {*others}
    told = [each.missing for each in verdict.questions if each.question.name == "wire_bytes"]
    assert [why] == told or [f"answers.yaml: {why}"] == [*verdict.strays]


@pytest.mark.parametrize(
    ("text", "said"),
    [("- 1", "expected lines of NAME: VALUE"), ("wire_bytes: [1", "answers.yaml")],
)
def test_answers_that_cannot_be_read_are_named(text: str, said: str, tmp_path: Path) -> None:
    folder = start(Student("Ada", load_lab("packet-time")), tmp_path / "ada")
    (folder.path / "answers.yaml").write_text(text)
    with pytest.raises(LabError, match=re.escape(said)):
        read_answers(folder)


def test_numbers_may_be_written_as_people_do(tmp_path: Path) -> None:
    folder = start(Student("Ada", load_lab("packet-time")), tmp_path / "ada")
    (folder.path / "answers.yaml").write_text("wire_bytes: 1,866\ntransfer_ms: 3e2\nfirst_ns:\n")
    assert read_answers(folder) == Answers({"wire_bytes": 1866, "transfer_ms": 300})
    assert "wire_bytes: 7  # bytes" in answers_text(folder.lab, {"wire_bytes": 7})


def test_of_a_spec_only_what_is_the_students_own_may_change(tmp_path: Path) -> None:
    folder = start(Student("Ada", load_lab("lossless")), tmp_path / "ada")
    spec = folder.path / "ring.yaml"
    text = spec.read_text()
    spec.write_text(text.replace("routes: {}", "routes: {s2: {h4: s1}, s1: {h4: s0}}"))
    fresh = handed_in(folder.path, tmp_path / "fresh")
    assert (fresh.path / "ring.yaml").read_text() == spec.read_text()
    for before, after, named in (
        ("delay: ", "delay: 1", "fabric"),
        ("size: ", "size: 1", "workload"),
        ("capture:", "seed: 4\ncapture:", "seed"),
    ):
        spec.write_text(text.replace(before, after, 1))
        with pytest.raises(LabError, match=f"found a change in {named}; allowed are those of"):
            handed_in(folder.path, tmp_path / named)


def test_what_is_the_students_own_may_lie_in_a_list(tmp_path: Path) -> None:
    folder = start(Student("Ada", load_lab("hierarchies")), tmp_path / "ada")
    spec = folder.path / "hierarchy.yaml"
    before, theirs = spec.read_text().split("TODO")
    spec.write_text(f"{before}TODO{theirs.replace('full_size: true', 'chunks: 4', 1)}")
    fresh = handed_in(folder.path, tmp_path / "fresh")
    assert (fresh.path / "hierarchy.yaml").read_text() == spec.read_text()
    spec.write_text(f"{before.replace('full_size: true', 'chunks: 4')}TODO{theirs}")
    with pytest.raises(LabError, match="found a change in workload"):
        handed_in(folder.path, tmp_path / "other")


def test_what_is_the_students_own_may_be_a_word_of_a_command(tmp_path: Path) -> None:
    folder = start(Student("Ada", load_lab("outage")), tmp_path / "ada")
    spec = folder.path / "train.yaml"
    text = spec.read_text()
    assert text.count(", 60]") == 1
    spec.write_text(text.replace(", 60]", ", 7]"))
    assert ", 7]" in (handed_in(folder.path, tmp_path / "fresh").path / "train.yaml").read_text()
    for wrong in (", 7, 8]", "]"):
        spec.write_text(text.replace(", 60]", wrong))
        with pytest.raises(LabError, match="found a change in workload"):
            handed_in(folder.path, tmp_path / str(len(wrong)))


def test_programs_belong_to_the_runs_that_read_them() -> None:
    """So that a run is stale when its program has changed."""
    for lab in map(load_lab, _LABS):
        read = {file for run in lab.runs.values() for file in run.files}
        assert {str(path) for path in lab.starter if path.suffix == ".py"} == read


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear")
    with pytest.raises(LabError, match="something there already"):
        start(Student("Ada", load_lab("packet-time")), tmp_path)
