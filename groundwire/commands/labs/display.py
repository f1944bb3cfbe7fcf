"""Labs and their grades on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from groundwire.commands.console.figures import Figures, OutputConsole
from groundwire.commands.console.plain_text import one_line, visible
from groundwire.commands.console.result_table import print_result
from groundwire.labs.formula import Number
from groundwire.labs.grading import Graded, Verdict
from groundwire.labs.lab import Lab
from groundwire.labs.submissions import Submission

_LOOK_LETTERS = 200


def print_labs(console: Console, labs: Iterable[Lab]) -> None:
    """A row for each lab."""
    table = Figures("", "name", "title", "minutes", "needs")
    for lab in labs:
        minutes = "{} to {}".format(*lab.minutes)
        table.add_row(str(lab.number), lab.name, lab.title, minutes, lab.needs)
    console.print(table)


def print_run(console: OutputConsole, name: str, program: bool, directory: Path) -> None:
    """A run that was made: its tables, and where it is. A `program` of the student's has printed
    its figures itself."""
    _say(console, f"run {name}")
    if program:
        console.print(f"run directory: {directory}", highlight=False, soft_wrap=True)
    else:
        print_result(json.loads((directory / "result.json").read_text()), directory, console)


def print_verdict(console: Console, verdict: Verdict, right: bool) -> None:
    """A row for each question, with the `right` answer for instructors, then the sum; hints for
    what is wrong."""
    title = f"{verdict.student.lab.title}: {_name(verdict.student.name)}"
    table = Figures("question", title=title)
    for heading in ("points", "found", *(("expected",) if right else ())):
        table.figure(heading)
    table.text("")
    for graded in verdict.questions:
        table.add_row(
            graded.question.name,
            f"{graded.points}/{graded.question.points}",
            with_unit(graded.found, graded.question.unit),
            *((expected_text(graded),) if right else ()),
            "[green]pass[/green]" if graded.passed else "[red]no[/red]",
        )
    console.print(table)
    for graded in verdict.questions:
        if graded.missing is not None:
            _say(console, f"{graded.question.name}: {graded.missing}")
        elif not graded.passed:
            _say(console, f"{graded.question.name}: {graded.hint}")
    for stray in verdict.strays:
        _say(console, stray)
    _say(console, f"{verdict.points} of {verdict.of} points")


def print_class(console: Console, graded: Iterable[Submission]) -> None:
    """A row for each submission: points, by question, and what its instructor should look at."""
    table = Figures("submission", "student", "lab")
    table.figure("points")
    for heading in ("not passed", "look at"):
        table.text(heading)
    for each in graded:
        look, verdict = each.look_at, each.verdict
        if verdict is None:
            table.add_row(_name(each.name), "", "", "", "", _name("; ".join(look)))
            continue
        failing = (graded.question.name for graded in verdict.questions if not graded.passed)
        table.add_row(
            _name(each.name),
            _name(verdict.student.name),
            verdict.student.lab.name,
            f"{verdict.points}/{verdict.of}",
            " ".join(failing),
            _name("; ".join(text[:_LOOK_LETTERS] for text in look)),
        )
    console.print(table)


def print_hint(console: Console, graded: Graded | None) -> None:
    """The words on a question's answer."""
    if graded is None:
        _say(console, "all questions pass")
        return
    _say(console, f"{graded.question.name}: {graded.question.text.strip()}")
    if graded.missing is not None:
        _say(console, graded.missing)
    _say(console, "right" if graded.hint is None else graded.hint.strip())


def print_failures(console: Console, failures: Mapping[str, str]) -> None:
    """Why runs have no result."""
    for name, failure in failures.items():
        _say(console, f"{name}: {failure}")


def expected_text(graded: Graded) -> str:
    """The expected value, with the tolerance."""
    if graded.expected is None:
        return ""
    if len(graded.expected) == 2:
        least, most = (plain(each) for each in graded.expected)
        return f"{least} to {most} {graded.question.unit}".rstrip()
    about = f" ± {plain(graded.within)}" if graded.within else ""
    return f"{plain(graded.expected[0])}{about} {graded.question.unit}".rstrip()


def with_unit(number: Number | None, unit: str) -> str:
    """A number for people, with its unit."""
    return "" if number is None else f"{plain(number)} {unit}".rstrip()


def plain(number: Number) -> str:
    """A number with its thousands apart, and no more digits than matter."""
    if float(number).is_integer():
        return f"{int(number):,}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.5g}"


def _name(text: str) -> str:
    """Text that a student has written, in a cell of a table."""
    return escape(one_line(text))


def _say(console: Console, text: str) -> None:
    console.print(visible(text), highlight=False, markup=False)
