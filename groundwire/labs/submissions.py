"""A class's submissions, graded: each one's runs are made in a sandbox, the grading is out here."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from groundwire.commands.console.plain_text import visible
from groundwire.labs.errors import LabError
from groundwire.labs.folder import STUDENT, LabFolder, handed_in, read_answers
from groundwire.labs.formula import Number
from groundwire.labs.grading import Verdict, fits, grade, right_answers
from groundwire.labs.inside import Task
from groundwire.labs.lab import ANSWERS, Question
from groundwire.labs.running import Outcome
from groundwire.labs.sandbox import Ended, Limits, run_inside
from groundwire.labs.student import Student, usual_name

_LAST_WORDS = 300
_COPIED = 2
"""So many equal answers where different ones are right are no accident."""
_UNTRUSTED = "=+-@\t\r"
"""A spreadsheet takes a cell that begins with one of these for a formula, and obeys it."""


@dataclass(frozen=True)
class Submission:
    """A folder that was handed in. Without a `verdict` it cannot be graded, and `problem` says why.
    `answers_of`: another student's name, whose answers these are though others are right here.
    `files_of`: a file that was handed in -> the submission that has the same."""

    name: str
    verdict: Verdict | None
    problem: str | None = None
    answers_of: str | None = None
    files_of: Mapping[str, str] = field(default_factory=dict)

    @property
    def look_at(self) -> list[str]:
        """Hints for its instructor, in words."""
        found = [] if self.problem is None else [self.problem]
        if self.answers_of is not None:
            found.append(f"answers of {self.answers_of}")
        found += [f"{file} is that of {other}" for file, other in self.files_of.items()]
        if self.verdict is not None:
            found += [f"{run}: {failure}" for run, failure in self.verdict.failures.items()]
            found += self.verdict.strays
        return found

    def document(self) -> dict[str, object]:
        """As plain data, for `--json`."""
        graded = {} if self.verdict is None else self.verdict.document(right=True)
        return {
            "submission": self.name,
            "problem": self.problem,
            "answers_of": self.answers_of,
            "files_of": dict(self.files_of),
            **graded,
        }


def render_csv(graded: Sequence[Submission]) -> str:
    """A line for each submission: its student, lab, points of all, points of each question of any
    lab (empty where the lab does not ask it), and what to look at."""
    asked = dict.fromkeys(
        question.question.name
        for each in graded
        if each.verdict is not None
        for question in each.verdict.questions
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["submission", "student", "lab", "points", "of", *asked, "look_at"])
    for each in graded:
        verdict, points = each.verdict, dict[str, int]()
        head: list[object] = ["", "", 0, ""]
        if verdict is not None:
            lab = verdict.student.lab.name
            head = [_cell(verdict.student.name), lab, verdict.points, verdict.of]
            points = {graded.question.name: graded.points for graded in verdict.questions}
        own = [points.get(name, "") for name in asked]
        writer.writerow([_cell(each.name), *head, *own, _cell("; ".join(each.look_at))])
    return text.getvalue()


def _cell(text: str) -> str:
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"'{shown}" if shown.startswith(tuple(_UNTRUSTED)) else shown


@dataclass(frozen=True)
class _Handed:
    """The answers, facts and files of a submission."""

    answers: Mapping[str, Number]
    facts: Mapping[str, Number]
    files: Mapping[str, bytes]


def submissions_in(folder: Path) -> tuple[Path, ...]:
    """The folders of students in a folder, by name."""
    found = (path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    return tuple(sorted(path for path in found if (path / STUDENT).is_file()))


def grade_submissions(
    folder: Path, kernel: Path, limits: Limits, say: Callable[[str], None]
) -> tuple[Submission, ...]:
    """Grade every submission in a folder, with the virtual kernel in the directory `kernel`. Call
    `require_sandbox` first."""
    graded: list[Submission] = []
    handed: dict[str, _Handed] = {}
    for path in submissions_in(folder):
        say(visible(path.name))
        with tempfile.TemporaryDirectory(prefix="groundwire-lab-") as scratch:
            Path(scratch).chmod(0o755)  # who reads it inside the sandbox may be another user
            try:
                verdict, handed[path.name] = _graded(path, Path(scratch), kernel, limits)
                graded.append(Submission(path.name, verdict))
            except Exception as error:
                # Whatever one has handed in, the class is graded.
                ours = isinstance(error, LabError | OSError)
                why = f"{error}" if ours else f"cannot be graded ({type(error).__name__}: {error})"
                graded.append(Submission(path.name, None, why))
    return tuple(_compared(each, graded, handed) for each in graded)


def _graded(path: Path, scratch: Path, kernel: Path, limits: Limits) -> tuple[Verdict, _Handed]:
    fresh = handed_in(path, scratch / "folder")
    answers = read_answers(fresh)
    outcome = _outcome(fresh, scratch, kernel, limits)
    names = [name for name in fresh.lab.hand_in if name != ANSWERS]
    files = {name: (fresh.path / name).read_bytes() for name in names}
    return grade(fresh.student, answers, outcome), _Handed(answers.numbers, outcome.facts, files)


def _outcome(folder: LabFolder, given: Path, kernel: Path, limits: Limits) -> Outcome:
    lab = folder.lab
    task = Task(
        {name: run.model_dump() for name, run in lab.runs.items()},
        {name: fact.model_dump() for name, fact in lab.facts.items()},
    )
    (given / "task.json").write_text(task.text())
    ended = run_inside([sys.executable, "-m", "groundwire.labs.inside"], given, kernel, limits)
    return _told(ended, folder)


def _told(ended: Ended, folder: LabFolder) -> Outcome:
    """The output of the sandbox's process, which anybody may have written: numbers of names that
    the lab has, and why runs failed."""
    runs, facts = folder.lab.runs, folder.lab.facts
    said = ended.errors.strip()[-_LAST_WORDS:]
    reason = f"stopped: {ended.stopped}" if ended.stopped else f"no result: {said}"
    nothing = Outcome({}, dict.fromkeys(runs, reason))
    try:
        told = json.loads(ended.output.splitlines()[-1])
        found = {name: told["facts"][name] for name in facts if name in told["facts"]}
        failed = {name: str(told["failures"][name]) for name in runs if name in told["failures"]}
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return nothing
    if ended.stopped or not all(map(_is_number, found.values())):
        return nothing
    return Outcome(found, failed)


def _is_number(found: object) -> bool:
    """Whether it is one that arithmetic takes: no boolean, finite, and not beyond a float."""
    try:
        return type(found) in (int, float) and math.isfinite(found)  # type: ignore[arg-type]
    except OverflowError:
        return False


def _compared(
    submission: Submission, all_: list[Submission], handed: Mapping[str, _Handed]
) -> Submission:
    """The submission with whose answers and files it has, too."""
    if submission.verdict is None:
        return submission
    student = submission.verdict.student
    answers_of, most = None, 0
    files_of: dict[str, str] = {}
    for other in all_:
        if other.verdict is None or other.verdict.student.lab.name != student.lab.name:
            continue
        if other is submission:
            continue
        theirs = other.verdict.student
        own, others = handed[submission.name], handed[other.name]
        if usual_name(theirs.name) == usual_name(student.name):
            answers_of, most = f"{theirs.name}, in {other.name}", len(own.answers) + 1
        elif (same := _answers_of(student, own, theirs, others)) > most:
            answers_of, most = theirs.name, same
        for name in _same_files(student, own, others):
            files_of.setdefault(name, other.name)
    return replace(submission, answers_of=answers_of, files_of=files_of)


def _answers_of(student: Student, own: _Handed, theirs: Student, others: _Handed) -> int:
    """How many answers are the other's, or right for the other, where other ones are right here;
    0 where they are too few to tell. An answer that is right for both tells nothing."""
    right, right_there = right_answers(student, own.facts), right_answers(theirs, others.facts)
    here, there = student.numbers | dict(own.facts), theirs.numbers | dict(others.facts)
    same = 0
    for question in student.lab.questions:
        name = question.name
        if name not in own.answers or name not in right or name not in right_there:
            continue
        given = own.answers[name]
        if _fits(question, given, here) or _fits(question, right[name], there):
            continue
        copied = name in others.answers and math.isclose(given, others.answers[name])
        same += copied or _fits(question, given, there)
    return same if same >= _COPIED else 0


def _fits(question: Question, given: Number, names: Mapping[str, Number]) -> bool:
    try:
        return fits(question, given, names)
    except (ArithmeticError, LabError):
        return False


def _same_files(student: Student, own: _Handed, others: _Handed) -> list[str]:
    """Files of both that are the same, and are neither the starter's nor the solution's."""
    folder = student.lab.folder
    found = []
    for name, content in own.files.items():
        ours = [folder / part / name for part in ("starter", "solution")]
        known = [path.read_bytes() for path in ours if path.is_file()]
        if content == others.files.get(name) and content not in known:
            found.append(name)
    return found
