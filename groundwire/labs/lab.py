"""A lab as typed data: what lies in a folder of `labs/`.

`lab.yaml` has its parameters, runs, facts and questions; `page.md` is the student's page,
`instructor.md` the instructor's, `starter/` what a student begins with, and `solution/` what of it
is different in the end. docs/howto/add-a-lab.md makes one.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import groundwire
from groundwire.labs.errors import LabError
from groundwire.labs.formula import Number
from topologies.spec.document import read_document
from topologies.spec.errors import SpecError

LABS = Path(groundwire.__file__).resolve().parents[1] / "labs"
"""Beside the rooms, in a clone as in an installation."""
ANSWERS = "answers.yaml"

Formula = str | int | float
_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LabRun(_Data):
    """A run of the lab: a spec of the student's folder, and the `files` beside it that its program
    reads. `own` are keys that the student writes in the spec (dots go inwards, a number into a
    list), which is then handed in; the rest of it is the lab's."""

    spec: str
    files: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


class Fact(_Data):
    """A number that a run comes to, by one of

    - `printed`: the last line `NAME NUMBER` in rank 0's output
    - `summary`: a key of result.json's `summary`
    - `spec`: a key of the spec that was run (dots go inwards)
    - `key` of `rows`: a key of the rows of result.json or links.jsonl (dots go inwards) for which
      all of `where` holds (a value, or one of several); `take` makes one number of theirs
    """

    run: str
    printed: str | None = None
    summary: str | None = None
    spec: str | None = None
    rows: Literal["collectives", "iterations", "jobs", "kv_cache", "links"] | None = None
    where: dict[str, str | int | tuple[str | int, ...]] = {}
    key: str | None = None
    take: Literal["first", "last", "max", "min", "sum", "mean", "count"] = "max"

    @model_validator(mode="after")
    def _one_source(self) -> Fact:
        sources = (self.printed, self.summary, self.spec, self.rows)
        given = [source for source in sources if source is not None]
        if len(given) != 1 or (self.rows is None) != (self.key is None):
            raise ValueError("expected one of printed, summary, spec, and rows with key")
        return self


class Mistake(_Data):
    """A typical wrong answer, and what to say to who gives it: the value `found`, or a run that
    `failed` with words that match this regular expression."""

    found: Formula | None = None
    failed: str | None = None
    hint: str

    @model_validator(mode="after")
    def _one_sign(self) -> Mistake:
        if (self.found is None) == (self.failed is None):
            raise ValueError("expected one of found and failed")
        return self


class Question(_Data):
    """A question, and how it is graded. The answer is that of answers.yaml, or with `measured` a
    fact: then a program or a choice of the student's is what is graded. Right is what is `within`
    (a number, or "1%") of `expected`, or lies `between` two values. Formulas know parameters,
    derived values and facts."""

    name: _Name
    text: str
    unit: str = ""
    points: Annotated[int, Field(ge=1)] = 1
    measured: str | None = None
    expected: Formula | None = None
    within: Formula = 0
    between: tuple[Formula, Formula] | None = None
    solution: Formula | None = None
    hint: str
    mistakes: tuple[Mistake, ...] = ()

    @model_validator(mode="after")
    def _one_standard(self) -> Question:
        if (self.expected is None) == (self.between is None):
            raise ValueError("expected one of expected and between")
        if self.between is not None and self.measured is None and self.solution is None:
            raise ValueError("an answer that lies between two values needs the solution's")
        return self


class Lab(_Data):
    """lab.yaml. `name` is the folder's, `number` says when it is taught. Each of
    `parameters` is a list of which a student gets one; `derived` are formulas over them, in order.
    """

    number: int
    title: str
    minutes: tuple[int, int]
    needs: str
    parameters: dict[_Name, tuple[Number, ...]]
    derived: dict[_Name, Formula] = {}
    hand_in: tuple[str, ...]
    runs: dict[_Name, LabRun]
    facts: dict[_Name, Fact] = {}
    questions: tuple[Question, ...]
    folder: Path = Field(exclude=True)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def points(self) -> int:
        return sum(question.points for question in self.questions)

    @cached_property
    def starter(self) -> tuple[Path, ...]:
        """The starter's files, relative to it."""
        return _files(self.folder / "starter")

    @cached_property
    def solution(self) -> tuple[Path, ...]:
        """The solution's, which take the place of the starter's."""
        return _files(self.folder / "solution")

    @model_validator(mode="after")
    def _names_are_known(self) -> Lab:
        given = {str(path) for path in self.starter} | {ANSWERS}
        for run in self.runs.values():
            for name in (run.spec, *run.files):
                _known("the runs' spec and files", name, given)
            if run.own:
                _known(
                    "the spec of a run with keys of the student's own", run.spec, {*self.hand_in}
                )
        for name, fact in self.facts.items():
            _known(f"facts.{name}.run", fact.run, set(self.runs))
        for question in self.questions:
            if question.measured is not None:
                _known(f"{question.name}.measured", question.measured, set(self.facts))
        for name in (*self.hand_in, *map(str, self.solution)):
            _known("hand_in and solution/", name, given)
        return self


def lab_names() -> tuple[str, ...]:
    """The labs that there are, by name."""
    return tuple(sorted(path.parent.name for path in LABS.glob("*/lab.yaml")))


def load_lab(name: str) -> Lab:
    """A lab by its name. Raises LabError."""
    if name not in lab_names():
        raise LabError(f"lab: found {name!r}; allowed are {', '.join(lab_names())}")
    return read_lab(LABS / name)


def read_lab(folder: Path) -> Lab:
    """The lab in a folder. Raises LabError with the file and each key that is wrong."""
    file = folder / "lab.yaml"
    try:
        found = read_document(file.read_text(encoding="utf-8"), str(file)).data
        return Lab.model_validate({**found, "folder": folder})
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise LabError(f"{file}: " + "; ".join(wrong)) from error
    except SpecError as error:
        raise LabError(str(error)) from error
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise LabError(f"{file}: {error}") from error


def _files(folder: Path) -> tuple[Path, ...]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return tuple(
        sorted(path.relative_to(folder) for path in found if "__pycache__" not in path.parts)
    )


def _known(key: str, found: str, allowed: set[str]) -> None:
    if found not in allowed:
        raise ValueError(f"{key}: found {found}; allowed are {', '.join(sorted(allowed))}")
