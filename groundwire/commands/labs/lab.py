"""`groundwire lab`: from a starter to a grade, and to the table of a class."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.report import render_html
from analysis.report.run_figures import run_figures
from emulator.virtual.building.build import ensure_kernel
from groundwire.commands.console.figures import output_console
from groundwire.commands.console.outcome import outcome
from groundwire.commands.console.plain_text import one_line
from groundwire.commands.console.progress_display import ProgressDisplay
from groundwire.commands.labs.display import (
    print_class,
    print_failures,
    print_hint,
    print_labs,
    print_run,
    print_verdict,
)
from groundwire.labs.errors import LabError
from groundwire.labs.folder import (
    LabFolder,
    open_folder,
    read_answers,
    start,
    write_answers,
)
from groundwire.labs.grading import Verdict, grade, right_answers
from groundwire.labs.lab import lab_names, load_lab
from groundwire.labs.running import outcome_of, run_lab
from groundwire.labs.sandbox import Limits, require_sandbox
from groundwire.labs.student import Student
from groundwire.labs.submissions import grade_submissions, render_csv, submissions_in
from topologies.installation import command

lab_app = typer.Typer(
    help="Labs for courses: a page, a starter with TODOs, questions with numbers of your own, and "
    "a grade. Start with: groundwire lab start packet-time",
    no_args_is_help=True,
)

_Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Your folder of the lab (default: this one).")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@lab_app.command(name="list")
@outcome
def list_(as_json: _Json = False) -> int:
    """List the labs, how long they take and what they need to be known first."""
    labs = sorted((load_lab(name) for name in lab_names()), key=lambda lab: lab.number)
    if as_json:
        rows = [{"name": lab.name, "title": lab.title, "minutes": lab.minutes} for lab in labs]
        print(json.dumps(rows, indent=1))
    else:
        print_labs(output_console(), labs)
    return 0


@lab_app.command(name="start")
@outcome
def start_(
    lab: Annotated[str, typer.Argument(metavar="NAME", help="A lab; `groundwire lab list`.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="The folder to make (default: ./NAME)."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Your name, from which your numbers come (default: your user name).",
        ),
    ] = None,
    solution: Annotated[
        bool, typer.Option("--solution", help="Solved, for instructors: `run` fills the answers.")
    ] = False,
) -> int:
    """Make a folder of your own with a lab's page, its starter and answers.yaml."""
    student = Student(getpass.getuser() if name is None else name, load_lab(lab))
    if not student.name.strip():
        raise LabError("--name: found nothing; expected your name")
    made = start(student, folder or Path(lab), solution)
    print(f"{made.path}: read README.md there, and go on from it", flush=True)
    print(_whose_numbers(student, name is None), flush=True)
    if (called := command()) != "groundwire":
        place = Path(called).resolve().parent
        print(f"its commands need this in your shell first: export PATH={place}:$PATH", flush=True)
    return 0


@lab_app.command()
@outcome
def run(
    folder: _Folder = Path(),
    only: Annotated[
        str | None, typer.Option(metavar="RUN", help="This run of the lab, not all of them.")
    ] = None,
) -> int:
    """Make the lab's runs with your files as they are. Exit code 1 when one has failed."""
    found = open_folder(folder.resolve())
    with ProgressDisplay(Console(stderr=True)) as display:
        done = run_lab(found, display.report, only=only)
    if found.solved:
        write_answers(found, right_answers(found.student, done.facts))
    console = output_console()
    for each, of_lab in found.lab.runs.items():
        if only in (None, each) and each not in done.failures:
            print_run(console, each, bool(of_lab.files), found.run_directory(each))
    print_failures(console, done.failures)
    failed = done.failures if only is None else {only} & set(done.failures)
    return 1 if failed else 0


@lab_app.command()
@outcome
def check(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Your folder of the lab (default: this one); with --class a folder of folders.",
        ),
    ] = Path(),
    of_class: Annotated[
        bool,
        typer.Option("--class", help="Grade all submissions in DIR, a folder each, run again."),
    ] = False,
    as_json: _Json = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="With --class: print a table for a spreadsheet.")
    ] = False,
    instructor: Annotated[
        bool, typer.Option("--instructor", help="Show the right answers, too.")
    ] = False,
    limit: Annotated[
        float,
        typer.Option(
            "--limit", metavar="SECONDS", help="With --class: how long a submission may run."
        ),
    ] = 300,
) -> int:
    """Grade your answers and runs: what passes, what was found, and a hint for what does not pass.
    Exit code 1 without full marks.

    With --class each submission is run again, in a sandbox, and the table of the class is printed.
    Where there is no sandbox, nothing is run (exit code 1).
    """
    if of_class:
        if not folder.is_dir() or not submissions_in(folder):
            raise LabError(f"--class: found {folder}; expected a folder of submissions")
        return _check_all(folder.resolve(), limit, as_json, as_csv)
    if as_csv:
        raise LabError("--csv is the table of a class: expected --class")
    verdict = _verdict(open_folder(folder.resolve()))
    if as_json:
        print(json.dumps(verdict.document(right=instructor), indent=1))
    else:
        print_verdict(output_console(), verdict, right=instructor)
    return 0 if verdict.points == verdict.of else 1


@lab_app.command()
@outcome
def hint(
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="Its name (default: the first that fails)."),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Your folder.")] = Path(),
) -> int:
    """Say what is probably wrong with an answer, or how to begin with it."""
    verdict = _verdict(open_folder(folder.resolve()))
    asked = {graded.question.name: graded for graded in verdict.questions}
    if question is not None and question not in asked:
        raise LabError(f"question: found {question!r}; allowed are {', '.join(asked)}")
    failing = [graded for graded in verdict.questions if not graded.passed]
    print_hint(output_console(), asked[question] if question else failing[0] if failing else None)
    return 0


@lab_app.command()
@outcome
def report(folder: _Folder = Path()) -> int:
    """Make one page of all the lab's runs, side by side: report.html in your folder."""
    found = open_folder(folder.resolve())
    failures = outcome_of(found).failures
    done = [found.run_directory(name) for name in found.lab.runs if name not in failures]
    if not done:
        raise LabError(f"{found.path}: no run to report of; `groundwire lab run` makes them")
    page = found.path / "report.html"
    page.write_text(render_html(run_figures(done)), encoding="utf-8", errors="backslashreplace")
    print(page)
    print_failures(Console(stderr=True), failures)
    return 0


def _whose_numbers(student: Student, by_user_name: bool) -> str:
    said = f"its numbers follow from the name {one_line(student.name)}"
    return f"{said}, your user name; --name takes another" if by_user_name else said


def _verdict(folder: LabFolder) -> Verdict:
    return grade(folder.student, read_answers(folder), outcome_of(folder))


def _check_all(folder: Path, limit_s: float, as_json: bool, as_csv: bool) -> int:
    require_sandbox()
    said = Console(stderr=True)
    kernel = ensure_kernel(lambda text: said.print(text, highlight=False))
    graded = grade_submissions(
        folder,
        kernel.path.parent,
        Limits(time_s=limit_s),
        lambda text: said.print(text, highlight=False, markup=False),
    )
    if as_json:
        print(json.dumps([each.document() for each in graded], indent=1))
    elif as_csv:
        print(render_csv(graded), end="")
    else:
        print_class(output_console(), graded)
    return 0
