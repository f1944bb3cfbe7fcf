"""Answers and runs held against what is right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from groundwire.labs.errors import LabError
from groundwire.labs.folder import Answers
from groundwire.labs.formula import Number, UnknownName, value
from groundwire.labs.lab import ANSWERS, Formula, Lab, Mistake, Question
from groundwire.labs.running import Outcome
from groundwire.labs.student import Student

NO_ANSWER = "no answer yet"


@dataclass(frozen=True)
class Graded:
    """A question, graded. `expected` has one value, or the least and the most; None where there is
    no answer or no run to hold against it, and `missing` says what."""

    question: Question
    found: Number | None
    expected: tuple[Number, ...] | None
    within: Number
    passed: bool
    missing: str | None
    hint: str | None
    """For a wrong answer: what its mistake probably is. None where it is right."""

    @property
    def points(self) -> int:
        return self.question.points if self.passed else 0


@dataclass(frozen=True)
class Verdict:
    """A lab, graded."""

    student: Student
    questions: tuple[Graded, ...]
    failures: Mapping[str, str]
    strays: tuple[str, ...] = ()
    """Answers to no question of the lab, in words."""

    @property
    def points(self) -> int:
        return sum(graded.points for graded in self.questions)

    @property
    def of(self) -> int:
        return self.student.lab.points

    def document(self, right: bool) -> dict[str, object]:
        """The verdict as plain data, for `--json`; with the `right` answers, for instructors."""
        return {
            "lab": self.student.lab.name,
            "student": self.student.name,
            "points": self.points,
            "of": self.of,
            "failures": dict(self.failures),
            "strays": list(self.strays),
            "questions": [_document(graded, right) for graded in self.questions],
        }


def grade(student: Student, answers: Answers, outcome: Outcome) -> Verdict:
    """Hold answers, and what the runs came to, against what is right for the student. An answer
    that is refused costs its own question alone."""
    names = student.numbers | outcome.facts
    graded = tuple(
        _grade(student.lab, each, answers, names, outcome) for each in student.lab.questions
    )
    asked = {each.name for each in student.lab.questions}
    strays = tuple(
        f"{ANSWERS}: {why}" for name, why in answers.refused.items() if name not in asked
    )
    return Verdict(student, graded, outcome.failures, tuple(strays))


def right_answers(student: Student, facts: Mapping[str, Number]) -> dict[str, Number]:
    """Right answers, as far as these facts tell them: the solution's, exactly."""
    names = student.numbers | dict(facts)
    answers: dict[str, Number] = {}
    for question in student.lab.questions:
        right = question.expected if question.solution is None else question.solution
        if question.measured is None and right is not None:
            try:
                answers[question.name] = value(right, names)
            except LabError:  # a fact is missing, or allows no answer
                continue
    return answers


def fits(question: Question, found: Number, names: Mapping[str, Number]) -> bool:
    """Whether a value is right. Raises UnknownName where a fact is missing."""
    if question.between is not None:
        least, most = (value(each, names) for each in question.between)
        return least <= found <= most
    assert question.expected is not None
    return _near(found, question.expected, question.within, names)


def _grade(
    lab: Lab,
    question: Question,
    answers: Answers,
    names: Mapping[str, Number],
    outcome: Outcome,
) -> Graded:
    fact, name = question.measured, question.name
    found = answers.numbers.get(name) if fact is None else outcome.facts.get(fact)
    if found is None:
        no_answer = answers.refused.get(name, NO_ANSWER)
        missing = no_answer if fact is None else _why_no_fact(lab, fact, outcome)
        hint = _hint_of_failure(question.mistakes, missing) or question.hint
        return Graded(question, None, None, 0, False, missing, hint)
    try:
        passed = fits(question, found, names)
        formulas = question.between or (question.expected or 0,)
        expected = tuple(value(each, names) for each in formulas)
        within = 0 if question.between else tolerance(question.within, expected[0], names)
    except UnknownName as error:
        missing = _why_no_fact(lab, error.name, outcome)
        return Graded(question, found, None, 0, False, missing, question.hint)
    except (ArithmeticError, LabError):
        # Such as a division by a measured 0.
        missing = "what the runs came to allows no answer: see their figures"
        return Graded(question, found, None, 0, False, missing, question.hint)
    wrong = None if passed else _hint(question, found, names)
    return Graded(question, found, expected, within, passed, None, wrong)


def _why_no_fact(lab: Lab, fact: str, outcome: Outcome) -> str:
    run = lab.facts[fact].run
    printed = lab.facts[fact].printed
    said = f"run {run} does not print {printed}" if printed else f"run {run} has no {fact}"
    return f"run {run}: {outcome.failures[run]}" if run in outcome.failures else said


def _hint(question: Question, found: Number, names: Mapping[str, Number]) -> str:
    for mistake in question.mistakes:
        if mistake.found is not None:
            try:
                if _near(found, mistake.found, question.within, names):
                    return mistake.hint
            except (ArithmeticError, LabError):
                continue
    return question.hint


def _hint_of_failure(mistakes: tuple[Mistake, ...], missing: str) -> str | None:
    for mistake in mistakes:
        if mistake.failed is not None and re.search(mistake.failed, missing):
            return mistake.hint
    return None


def _near(found: Number, right: Formula, within: Formula, names: Mapping[str, Number]) -> bool:
    expected = value(right, names)
    return abs(found - expected) <= tolerance(within, expected, names) + 1e-9 * abs(expected)


def tolerance(within: Formula, expected: Number, names: Mapping[str, Number]) -> Number:
    """How far off an answer may be: a number, or a share such as "1%" of what is expected."""
    if isinstance(within, str) and within.endswith("%"):
        return float(within[:-1]) / 100 * abs(expected)
    return value(within, names)


def _document(graded: Graded, right: bool) -> dict[str, object]:
    expected = graded.expected
    found: dict[str, object] = {
        "name": graded.question.name,
        "passed": graded.passed,
        "points": graded.points,
        "of": graded.question.points,
        "unit": graded.question.unit,
        "found": graded.found,
        "missing": graded.missing,
        "hint": graded.hint,
    }
    if right:
        one = None if expected is None else expected[0] if len(expected) == 1 else expected
        found |= {"expected": one, "within": graded.within}
    return found
