"""A class's submissions, graded: each one's runs are made in a sandbox, the grading is out here."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from groundwire.labs.errors import LabError
from groundwire.labs.folder import STUDENT, LabFolder, handed_in, read_answers
from groundwire.labs.formula import Number
from groundwire.labs.grading import Verdict, fits, grade, right_answers
from groundwire.labs.inside import Task
from groundwire.labs.running import Outcome
from groundwire.labs.sandbox import Ended, Limits, run_inside
from groundwire.labs.student import usual_name

_LAST_WORDS = 300
_COPIED = 2
"""So many wrong answers that are right for another student are no accident."""


@dataclass(frozen=True)
class Submission:
    """A folder that was handed in. Without a `verdict` it cannot be graded, and `problem` says why.
    `answers_of`: another student's name, for whom answers that are wrong here are right."""

    name: str
    verdict: Verdict | None
    problem: str | None = None
    answers_of: str | None = None

    def document(self) -> dict[str, object]:
        """As plain data, for `--json`."""
        graded = {} if self.verdict is None else self.verdict.document()
        return {
            "submission": self.name,
            "problem": self.problem,
            "answers_of": self.answers_of,
            **graded,
        }


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
    answers: dict[str, dict[str, Number]] = {}
    for path in submissions_in(folder):
        say(path.name)
        with tempfile.TemporaryDirectory(prefix="groundwire-lab-") as scratch:
            Path(scratch).chmod(0o755)  # who reads it inside the sandbox may be another user
            try:
                fresh = handed_in(path, Path(scratch, "folder"))
                answers[path.name] = read_answers(fresh)
                outcome = _outcome(fresh, Path(scratch), kernel, limits)
            except LabError as error:
                graded.append(Submission(path.name, None, str(error)))
                continue
        verdict = grade(fresh.student, answers[path.name], outcome)
        graded.append(Submission(path.name, verdict))
    return tuple(_compared(each, graded, answers) for each in graded)


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
    """What the sandbox's process has printed, which anybody may have written: numbers of names that
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
    if ended.stopped or not all(type(number) in (int, float) for number in found.values()):
        return nothing
    return Outcome(found, failed)


def _compared(
    submission: Submission, all_: list[Submission], answers: dict[str, dict[str, Number]]
) -> Submission:
    if submission.verdict is None:
        return submission
    own = submission.verdict
    wrong = {
        graded.question.name: graded.question
        for graded in own.questions
        if graded.found is not None and graded.question.measured is None and not graded.passed
    }
    for other in all_:
        if other.verdict is None or other.verdict.student.lab.name != own.student.lab.name:
            continue
        theirs = other.verdict.student
        if usual_name(theirs.name) == usual_name(own.student.name):
            if other is not submission:
                return replace(submission, answers_of=f"{theirs.name}, in {other.name}")
            continue
        right = right_answers(theirs, {})
        given = answers[submission.name]
        same = [
            name
            for name, question in wrong.items()
            if name in right and fits(question, given[name], theirs.numbers)
        ]
        if len(same) >= _COPIED:
            return replace(submission, answers_of=theirs.name)
    return submission
