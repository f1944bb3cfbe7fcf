"""A study file: what is varied, how often, what is asked for. docs/studies.md has its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from analysis.predict.interface import available_predictors
from analysis.report.tables.table import Unit
from analysis.studies.cases import RESPONSES
from emulator.session import MOST_RANKS
from groundwire.studies.factors import StudyFactor, read_factors
from topologies.spec.document import FileKind, read_document, refuse_other_kind
from topologies.spec.errors import Problem, SpecError, problems_of, shown, suggestion
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.spec.spec import Spec, load_spec, parse_dict
from topologies.units import parse_time_ns

MOST_CASES = 10_000


def _predictor(name: str) -> str:
    allowed = sorted(set(available_predictors()) - {"external"})
    if name not in allowed:
        raise ValueError(f"{suggestion(name, allowed)}allowed: {', '.join(allowed)}")
    return name


def _response(name: str) -> str:
    if name not in RESPONSES:
        raise ValueError(f"{suggestion(name, list(RESPONSES))}allowed: {', '.join(RESPONSES)}")
    return name


class LatinHypercube(SpecSection):
    """So many cases, spread evenly over every factor; `seed` draws which."""

    kind: Literal["latin-hypercube"]
    cases: Integer = Field(ge=2, le=MOST_CASES)
    seed: Integer = 1


class Prices(SpecSection):
    """The cost of a fabric, in any currency: for each host, each switch, and each Gb/s of each
    link."""

    host: float = Field(default=0.0, ge=0)
    switch: float = Field(default=0.0, ge=0)
    gbps: float = Field(default=0.0, ge=0)

    def cost_of(self, spec: Spec) -> float:
        """The cost of a spec's fabric."""
        fabric = spec.plan.fabric
        gbps = sum(link.rate_bps for link in fabric.links) / 1e9
        parts = (
            self.host * len(fabric.hosts),
            self.switch * len(fabric.switches),
            self.gbps * gbps,
        )
        return round(sum(parts), 6)


class StudySections(SpecSection):
    """The keys of a study file. `spec` is a spec's path beside the file, or a spec."""

    name: str = Field(min_length=1)
    spec: str | dict[str, Any]
    set: dict[str, Any] = Field(default_factory=dict)
    factors: dict[str, Any] = Field(min_length=1)
    zip: tuple[tuple[str, ...], ...] = ()
    design: Literal["grid"] | LatinHypercube = "grid"
    seeds: tuple[Integer, ...] | None = Field(default=None, min_length=1)
    responses: tuple[Annotated[str, AfterValidator(_response)], ...] = Field(
        default=("iteration_ns", "exposed_ns"), min_length=1
    )
    emulate_up_to_ranks: Integer = Field(default=16, ge=0, le=MOST_RANKS)
    predictor: Annotated[str, AfterValidator(_predictor)] = "packet"
    limits: dict[str, Any] = Field(default_factory=dict)
    prices: Prices | None = None


@dataclass(frozen=True)
class StudyFile:
    """A study file, read: its sections, its base spec, factors, and limits by response."""

    path: Path
    sections: StudySections
    base: Spec
    factors: tuple[StudyFactor, ...]
    limits: Mapping[str, float]

    most_cases: int

    @property
    def predictor(self) -> str:
        """The predictor of every case."""
        return self.sections.predictor


def load_study(path: str | Path) -> StudyFile:
    """Read a study file and its base spec. Raises SpecError with every mistake in either."""
    path = Path(path)
    source = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise SpecError(
            source, (Problem((), f"a file that cannot be read ({told})", "expected a YAML file"),)
        ) from error
    document = read_document(text, source)
    raw = document.data
    refuse_other_kind(raw, FileKind.STUDY, source)
    if not isinstance(raw, dict):
        expected = "expected a mapping with keys such as spec and factors"
        raise SpecError(source, (Problem((), shown(raw), expected),))
    raw.setdefault("name", path.stem)
    problems: list[Problem] = []
    factors: list[StudyFactor] = []
    limits: dict[str, float] = {}
    most_cases = 1000
    try:
        sections = StudySections.model_validate(raw)
    except ValidationError as error:
        problems += problems_of(error, StudySections, raw)
        if isinstance(raw.get("factors"), dict) and raw["factors"]:
            problems += read_factors(raw["factors"])[1]
    else:
        factors, wrong = read_factors(sections.factors)
        problems += wrong
        if not wrong:
            problems += _zip_problems(sections, factors)
        limits, most_cases = _limits(sections.limits, problems)
    if problems:
        at = tuple(replace(p, line=document.line_of(p.key)) for p in problems)
        raise SpecError(source, at)
    base = _base(sections.spec, path)
    return StudyFile(path, sections, base, tuple(factors), limits, most_cases)


def _base(given: str | dict[str, Any], path: Path) -> Spec:
    if isinstance(given, str):
        return load_spec(path.resolve().parent / given)
    return parse_dict({"name": path.stem, **given}, f"{path}: spec")


def _zip_problems(sections: StudySections, factors: list[StudyFactor]) -> list[Problem]:
    """Names that are no factors', factors zipped twice, and zipped ones of different lengths; and
    ranges that a grid has no steps for."""
    problems = []
    by_name = {factor.name: factor for factor in factors}
    seen: set[str] = set()
    in_grid = sections.design == "grid"
    for index, names in enumerate(sections.zip):
        for position, name in enumerate(names):
            if name not in by_name or name in seen:
                allowed = [n for n in by_name if n not in seen]
                expected = f"{suggestion(name, allowed)}expected a factor, each once: "
                problems.append(
                    Problem(("zip", index, position), name, expected + ", ".join(allowed))
                )
            seen.add(name)
        known = [by_name[name] for name in names if name in by_name]
        lengths = {len(factor.in_grid) for factor in known}
        if in_grid and len(lengths) > 1:
            found = ", ".join(f"{factor.name} has {len(factor.in_grid)}" for factor in known)
            problems.append(Problem(("zip", index), found, "expected as many levels of each"))
    for factor in factors:
        if in_grid and factor.range is not None and factor.range.steps is None:
            problems.append(
                Problem(
                    ("factors", factor.name),
                    "a range without steps",
                    "expected steps in a grid, or design: {kind: latin-hypercube, cases: ...}",
                )
            )
    return problems


def _limits(given: Mapping[str, Any], problems: list[Problem]) -> tuple[dict[str, float], int]:
    """The most that each response may be, and how many cases there may be."""
    found: dict[str, float] = {}
    most_cases = 1000
    for name, value in given.items():
        if name == "cases":
            if isinstance(value, int) and 1 <= value <= MOST_CASES:
                most_cases = value
            else:
                expected = f"expected a whole number from 1 to {MOST_CASES}"
                problems.append(Problem(("limits", name), shown(value), expected))
            continue
        if name not in RESPONSES:
            allowed = ["cases", *RESPONSES]
            expected = f"{suggestion(name, allowed)}allowed: {', '.join(allowed)}"
            problems.append(Problem(("limits", name), shown(value), f"unknown key; {expected}"))
            continue
        try:
            if RESPONSES[name][1] is Unit.DURATION:
                found[name] = float(parse_time_ns(value))
            elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                found[name] = float(value)
            else:
                raise ValueError("expected a whole number from 0")
        except ValueError as error:
            problems.append(Problem(("limits", name), shown(value), str(error)))
    return found, most_cases
