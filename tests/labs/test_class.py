"""A class is graded, whatever one has handed in; copies are seen; students see no right answers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from groundwire.commands.console.figures import output_console
from groundwire.commands.labs.display import print_class, print_verdict
from groundwire.commands.labs.lab import check, start_
from groundwire.labs import submissions
from groundwire.labs.folder import Answers, LabFolder, handed_in, start, write_answers
from groundwire.labs.formula import Number
from groundwire.labs.grading import grade, right_answers
from groundwire.labs.lab import Lab, lab_names, load_lab
from groundwire.labs.running import Outcome
from groundwire.labs.sandbox import Limits
from groundwire.labs.student import Student
from groundwire.labs.submissions import Submission, grade_submissions, render_csv

_LABS = lab_names()
_Facts = Callable[[Student], dict[str, Number]]


def _facts(student: Student) -> dict[str, Number]:
    """The facts of a student's runs: other numbers for each student."""
    own = 1 + sum(student.name.encode()) % 97 / 50
    names = sorted(student.lab.facts)
    return {name: int(123_456 * own * 1.7 ** (n**1.3)) for n, name in enumerate(names)}


def _class(
    folder: Path, lab: str, names: list[str], copies: dict[str, str], facts: _Facts = _facts
) -> None:
    """Folders of students with right answers, but for those who copy another's."""
    for name in names:
        made = start(Student(name, load_lab(lab)), folder / name.encode("unicode_escape").decode())
        whose = Student(copies.get(name, name), made.lab)
        write_answers(made, right_answers(whose, facts(whose)))


def _grade(
    folder: Path, monkeypatch: pytest.MonkeyPatch, facts: _Facts = _facts
) -> dict[str, Submission]:
    def made(fresh: LabFolder, *rest: object) -> Outcome:
        return Outcome(facts(fresh.student), {})

    monkeypatch.setattr(submissions, "_outcome", made)
    graded = grade_submissions(folder, folder, Limits(), lambda text: None)
    return {each.name: each for each in graded}


@pytest.mark.parametrize("lab", _LABS)
def test_copies_are_seen_in_every_lab(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"student {number}" for number in range(8)]
    _class(tmp_path, lab, names, {"student 3": "student 5"})
    graded = _grade(tmp_path, monkeypatch)
    assert {each.name: each.answers_of for each in graded.values() if each.answers_of} == {
        "student 3": "student 5"
    }


@pytest.mark.parametrize("lab", _LABS)
@pytest.mark.parametrize("number", [0, 10**400, float("inf")])
def test_whatever_runs_come_to_there_is_a_row(
    lab: str, number: Number, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fact of 0 divides, a huge one overflows: only that submission's questions suffer."""

    def facts(student: Student) -> dict[str, Number]:
        return dict.fromkeys(student.lab.facts, number) if student.name == "b" else _facts(student)

    _class(tmp_path, lab, ["a", "b", "c"], {}, _facts)
    graded = _grade(tmp_path, monkeypatch, facts)
    assert [graded[name].name for name in "abc"] == ["a", "b", "c"]
    first, _, last = (graded[name].verdict for name in "abc")
    assert first is not None and last is not None
    answered = [q for q in first.questions if q.question.measured is None]
    assert all(question.passed for question in answered)
    assert graded["b"].verdict is not None
    json.dumps([each.document() for each in graded.values()])
    print_class(output_console(), graded.values())


def test_what_nobody_has_thought_of_ends_one_row_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _class(tmp_path, "trust", ["a", "b", "c"], {})
    (tmp_path / "b" / "student.yaml").write_text("lab: trust\nname: b\n")

    def breaks(path: Path, to: Path) -> LabFolder:
        if path.name == "b":
            raise ZeroDivisionError("division by zero")
        return handed_in(path, to)

    monkeypatch.setattr("groundwire.labs.submissions.handed_in", breaks)
    graded = _grade(tmp_path, monkeypatch)
    assert graded["b"].problem == "cannot be graded (ZeroDivisionError: division by zero)"
    assert graded["a"].verdict is not None and graded["c"].verdict is not None


def test_numbers_from_the_sandbox_are_numbers() -> None:
    """Anybody may have written them there."""
    for wrong in (True, float("nan"), float("inf"), 10**400, "5", None, [5]):
        assert not submissions._is_number(wrong)
    assert submissions._is_number(5) and submissions._is_number(0.5)


def test_files_of_another_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that all have: the starter's, and the solution's."""
    _class(tmp_path, "trust", ["a", "b", "c", "d"], {})
    for name in ("a", "b"):
        (tmp_path / name / "model.py").write_text("def fit(x, y):\n    return 1.0, 2.0\n")
    graded = _grade(tmp_path, monkeypatch)
    assert graded["a"].files_of == {"model.py": "b"} and graded["b"].files_of == {"model.py": "a"}
    assert not graded["c"].files_of and not graded["d"].files_of


def _shown_lab(folder: Path) -> tuple[Lab, dict[str, Number]]:
    made = start(Student("Ada", load_lab("packet-time")), folder)
    right = right_answers(made.student, {})
    write_answers(made, dict.fromkeys(right, 1))
    return made.lab, right


def test_students_see_hints_and_instructors_right_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, right = _shown_lab(tmp_path / "mine")

    def said(*, as_json: bool, instructor: bool) -> str:
        with pytest.raises(typer.Exit) as ended:
            check(tmp_path / "mine", as_json=as_json, instructor=instructor)
        assert ended.value.exit_code == 1
        return capsys.readouterr().out

    hints = [q.hint for q in lab.questions if q.name == "wire_bytes"]
    wire = f"{right['wire_bytes']:,}"
    for_student = said(as_json=False, instructor=False)
    assert wire not in for_student and "expected" not in for_student
    assert "".join(hints[0].split())[:40] in "".join(for_student.split())
    assert wire in said(as_json=False, instructor=True)
    rows = json.loads(said(as_json=True, instructor=False))["questions"]
    assert not any("expected" in row or "within" in row for row in rows)
    rows = json.loads(said(as_json=True, instructor=True))["questions"]
    assert rows[0]["expected"] == right["wire_bytes"]


def test_starting_a_lab_says_whose_numbers_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(folder: str, name: str | None) -> str:
        with pytest.raises(typer.Exit):
            start_("packet-time", tmp_path / folder, name=name)
        return capsys.readouterr().out

    assert "follow from the name Ada\n" in said("ada", "Ada")
    monkeypatch.setattr("getpass.getuser", lambda: "grace")
    assert "follow from the name grace, your user name; --name takes another" in said("own", None)


def test_names_are_text_in_tables_and_spreadsheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No terminal obeys them, rich sees no marks in them, and a spreadsheet no formula."""
    names = ["\x1b[2J\x1b]0;owned\x07", "[red]Eve[/red]", "=HYPERLINK(1)", "Bob\nMallory,\u202e"]
    for number, name in enumerate(names):
        made = start(Student(name, load_lab("packet-time")), tmp_path / str(number))
        write_answers(made, right_answers(made.student, {}))
    graded = list(_grade(tmp_path, monkeypatch).values())
    print_class(output_console(), graded)
    for each in graded:
        assert each.verdict is not None
        print_verdict(output_console(), each.verdict, right=True)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
    assert "[red]Eve[/red]" in shown
    head, *rows = list(csv.reader(io.StringIO(render_csv(graded))))
    assert head[:5] == ["submission", "student", "lab", "points", "of"]
    assert [row[1] for row in rows][1:3] == ["[red]Eve[/red]", "'=HYPERLINK(1)"]
    assert rows[0][1] == "\\x1b[2J\\x1b]0;owned\\x07" and rows[3][1] == "Bob\\nMallory,\\u202e"
    assert all(len(row) == len(head) for row in rows)
    for row, each in zip(rows, graded, strict=True):
        assert each.verdict is not None
        points = sum(int(cell) for cell in row[5:-1] if cell)
        assert int(row[3]) == each.verdict.points == points


def test_grading_alone_knows_right_from_wrong() -> None:
    """Answers where a run measured 0 are no answers, and no traceback."""
    student = Student("Ada", load_lab("trust"))
    zeros = Outcome(dict.fromkeys(student.lab.facts, 0), {})
    ones = Answers(dict.fromkeys([q.name for q in student.lab.questions], 1.0))
    verdict = grade(student, ones, zeros)
    missing = [g.missing for g in verdict.questions if g.missing]
    assert "what the runs came to allows no answer: see their figures" in missing
