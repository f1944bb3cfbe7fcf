"""A student's folder: made from the starter, and read back as what somebody else wrote."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from groundwire.labs.errors import LabError
from groundwire.labs.formula import Number
from groundwire.labs.lab import ANSWERS, Lab, LabRun, load_lab
from groundwire.labs.student import Student
from topologies.spec.document import read_document
from topologies.spec.errors import SpecError

STUDENT = "student.yaml"
PAGE = "README.md"
_TEMPLATES = (".md", ".yaml")
_MOST_BYTES = 1_000_000
_MOST_LETTERS = 200


@dataclass(frozen=True)
class LabFolder:
    """A folder in which a lab is worked on. `solved` says that its answers are filled in by us."""

    path: Path
    student: Student
    solved: bool = False

    @property
    def lab(self) -> Lab:
        return self.student.lab

    def run_directory(self, run: str) -> Path:
        """The directory of the lab's run of that name."""
        return self.path / "runs" / run


@dataclass(frozen=True)
class Answers:
    """The number for each question that has one, and why others that are there are none."""

    numbers: Mapping[str, Number]
    refused: Mapping[str, str] = field(default_factory=dict)


def start(student: Student, path: Path, solved: bool = False) -> LabFolder:
    """Make a student's folder: the page, the starter and answers.yaml, with the student's numbers.
    Raises LabError where something is there already."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise LabError(f"{path}: found something there already; expected a folder to be made")
    path.mkdir(parents=True, exist_ok=True)
    lab = student.lab
    for name in lab.starter:
        _write(lab.folder / "starter" / name, path / name, student)
    for name in lab.solution if solved else ():
        _write(lab.folder / "solution" / name, path / name, student)
    _write(lab.folder / "page.md", path / PAGE, student)
    (path / ANSWERS).write_text(answers_text(lab, {}))
    head: dict[str, object] = {"lab": lab.name, "name": student.name}
    text = yaml.safe_dump(head | ({"solved": True} if solved else {}), sort_keys=False)
    (path / STUDENT).write_text(text)
    return LabFolder(path, student, solved)


def open_folder(path: Path) -> LabFolder:
    """The student's folder at a path. Raises LabError."""
    file = path / STUDENT
    if not file.is_file():
        raise LabError(
            f"{path}: no {STUDENT} in it; `groundwire lab start NAME` makes a folder, and "
            "`groundwire lab check --class DIR` grades a folder of folders"
        )
    found = _mapping(file)
    name, lab = found.get("name"), found.get("lab")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= _MOST_LETTERS:
        raise LabError(f"{file}: name: found {name!r:.60}; expected the student's name")
    if not isinstance(lab, str):
        raise LabError(f"{file}: lab: found {lab!r:.60}; expected the name of a lab")
    return LabFolder(path, Student(name, load_lab(lab)), found.get("solved") is True)


def read_answers(folder: LabFolder) -> Answers:
    """The answers of answers.yaml. One that is no number, or to no question, is refused by itself;
    a question without an answer is left out. Raises LabError for a file that cannot be read."""
    asked = {question.name for question in folder.lab.questions}
    numbers: dict[str, Number] = {}
    refused: dict[str, str] = {}
    for name, found in _mapping(folder.path / ANSWERS).items():
        if name not in asked:
            allowed = ", ".join(sorted(asked))
            refused[str(name)] = f"found {name!r:.60}: no such question; allowed are {allowed}"
            continue
        if isinstance(found, str):
            found = _number(found)
        if found is None:
            continue
        if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
            refused[name] = f"found {found!r:.60}; expected a number, and no unit"
        else:
            numbers[name] = found
    return Answers(numbers, refused)


def write_answers(folder: LabFolder, answers: dict[str, Number]) -> None:
    """Replace answers.yaml."""
    (folder.path / ANSWERS).write_text(answers_text(folder.lab, answers))


def answers_text(lab: Lab, answers: dict[str, Number]) -> str:
    """answers.yaml: each question that wants an answer, with its unit."""
    lines = [f"# {lab.title}: your answers. A number behind each colon, without its unit.", ""]
    for question in lab.questions:
        if question.measured is None:
            unit = f"  # {question.unit}" if question.unit else ""
            lines.append(f"{question.name}: {answers.get(question.name, '')}{unit}")
    return "\n".join(lines) + "\n"


def check_spec(folder: LabFolder, run: LabRun) -> None:
    """Raises LabError where a spec that the student works on differs from the lab's in more than
    what is the student's own."""
    if not run.own:
        return
    file = folder.path / run.spec
    found = _mapping(file)
    ours = yaml.safe_load(_rendered(folder.lab.folder / "starter" / run.spec, folder.student))
    for key in run.own:
        _drop(found, key)
        _drop(ours, key)
    changed = sorted({str(key) for key in {*found, *ours} if found.get(key) != ours.get(key)})
    if changed:
        own = ", ".join(run.own)
        raise LabError(
            f"{file}: found a change in {', '.join(changed)[:200]}; allowed are those of {own}"
        )


def handed_in(submission: Path, to: Path) -> LabFolder:
    """A fresh folder at `to` with what a student hands in of `submission`; all the rest is ours.

    Nothing but regular files of at most 1 MB is taken, and no symbolic link is followed. Raises
    LabError.
    """
    given = open_folder(submission)
    fresh = start(given.student, to)
    for name in given.lab.hand_in:
        _copy_plain(submission / name, to / name)
    for run in given.lab.runs.values():
        check_spec(fresh, run)
    return fresh


def _copy_plain(source: Path, target: Path) -> None:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise LabError(f"{source}: not handed in") from error
    except OSError as error:
        raise LabError(f"{source}: expected a file of text: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LabError(f"{source}: expected a file of text")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise LabError(f"{source}: found more than {_MOST_BYTES} bytes")
    target.write_bytes(content)


def _write(source: Path, target: Path, student: Student) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix not in _TEMPLATES:
        shutil.copyfile(source, target)
        return
    target.write_text(_rendered(source, student))


def _rendered(source: Path, student: Student) -> str:
    """A template with the student's numbers."""
    names = student.numbers | {"name": student.name, "lab": student.lab}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    try:
        return environment.from_string(source.read_text()).render(names)
    except jinja2.TemplateError as error:
        raise LabError(f"{source}: {error}") from error


def _drop(document: Any, key: str) -> None:
    """Remove a dotted key, where it is there; a number goes into a list, which stays as long."""
    *way, last = key.split(".")
    for part in way:
        if isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            document = document.get(part) if isinstance(document, dict) else None
    if isinstance(document, dict):
        document.pop(last, None)
    elif isinstance(document, list) and last.isdecimal() and int(last) < len(document):
        document[int(last)] = None


def _mapping(file: Path) -> dict[Any, Any]:
    """A small YAML file that anybody may have written. Raises LabError."""
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise LabError(f"{file}: expected a small file of text")
        found = read_document(file.read_text(encoding="utf-8"), str(file)).data
    except SpecError as error:
        raise LabError(f"{file}: {str(error.problems[0])[:300]}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{file}: {str(error)[:300]}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise LabError(f"{file}: expected lines of NAME: VALUE")
    return found


def _number(text: str) -> Number | str | None:
    """The number that YAML takes for text, such as 1e9 and 1,000; None of no text."""
    try:
        return float(text.replace(",", "")) if text.strip() else None
    except ValueError:
        return text
