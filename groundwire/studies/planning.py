"""From a study file to its cases, every one checked before the first runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.studies.cases import How
from emulator.session import KernelKind, KernelRefused, choose_kernel
from groundwire.pipeline import resolve
from groundwire.studies.axes import LevelUnfit
from groundwire.studies.design import Combination, grid, grid_size, latin_hypercube
from groundwire.studies.jobs import Job, emulation, prediction
from groundwire.studies.study_file import MOST_CASES, StudyFile, load_study
from topologies.spec.errors import Problem, SpecError, shown


@dataclass(frozen=True, slots=True)
class CaseProblem(Problem):
    """A mistake in one case: which one it is stands before it."""

    case: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {Problem.__str__(self)}"


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A case, checked: its levels by factor, and the jobs that answer it.

    `emulated` is None beyond the size that is emulated.
    """

    number: int
    levels: Mapping[str, str | float]
    seed: int
    ranks: int
    how: How
    emulated: Job | None
    predicted: Job
    cost: float | None

    @property
    def key(self) -> str:
        """The name of the directory that has its outcome."""
        return self.predicted.key if self.emulated is None else self.emulated.key


@dataclass(frozen=True)
class StudyPlan:
    """A study that can run: its file and its cases."""

    file: StudyFile
    cases: tuple[PlannedCase, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs, each once: runs first, as they take longer."""
        runs = {case.emulated.key: case.emulated for case in self.cases if case.emulated}
        predictions = {case.predicted.key: case.predicted for case in self.cases}
        return (*runs.values(), *predictions.values())


def plan_study(path: str | Path, kernel: KernelKind = "virtual") -> StudyPlan:
    """Read and check a study. Raises SpecError that lists every mistake of every case."""
    file = load_study(path)
    seeds = file.sections.seeds or (file.base.seed,)
    number = _combination_count(file) * len(seeds)
    if number > file.most_cases:
        raise SpecError(
            str(path),
            (
                Problem(
                    ("limits", "cases"),
                    f"{number:,} cases",
                    f"expected at most {file.most_cases}; set limits.cases to have more, "
                    f"up to {MOST_CASES:,}",
                ),
            ),
        )
    cases: list[PlannedCase] = []
    problems: list[Problem] = []
    for index, combination in enumerate(_combinations(file)):
        for position, seed in enumerate(seeds):
            at = index * len(seeds) + position + 1
            levels = {name: level.name for name, level in combination.items()}
            said = ", ".join(f"{name}={level}" for name, level in levels.items())
            title = f"case {at} ({said})"
            try:
                cases.append(_case(file, kernel, at, combination, seed, said))
            except SpecError as error:
                problems += [
                    CaseProblem(p.key, p.found, p.expected, case=title) for p in error.problems
                ]
    if problems:
        raise SpecError(str(path), tuple(problems))
    return StudyPlan(file, tuple(cases))


def _combination_count(file: StudyFile) -> int:
    """How many there are, without making them: those of many factors fit nowhere."""
    sections = file.sections
    if sections.design == "grid":
        return grid_size(file.factors, sections.zip)
    assert not isinstance(sections.design, str)
    return sections.design.cases


def _combinations(file: StudyFile) -> Iterator[Combination]:
    sections = file.sections
    if sections.design == "grid":
        return grid(file.factors, sections.zip)
    assert not isinstance(sections.design, str)
    return latin_hypercube(file.factors, sections.zip, sections.design.cases, sections.design.seed)


def _case(
    file: StudyFile,
    kernel: KernelKind,
    number: int,
    combination: Combination,
    seed: int,
    label: str,
) -> PlannedCase:
    """Raises SpecError."""
    source = str(file.path)
    overrides = _overrides(file, combination)
    spec = resolve(file.base, {**overrides, "seed": seed}, source=source)
    ranks = spec.ranks
    predicted = prediction(spec, file.predictor, label)
    emulated = None
    if ranks <= file.sections.emulate_up_to_ranks:
        try:
            choose_kernel(spec, kernel)
        except KernelRefused as error:
            raise SpecError(
                source, (Problem((), str(error), "expected a spec that this kernel runs"),)
            ) from error
        emulated = emulation(spec, kernel, label)
    prices = file.sections.prices
    return PlannedCase(
        number,
        {name: level.name for name, level in combination.items()},
        seed,
        ranks,
        "predicted" if emulated is None else "emulated",
        emulated,
        predicted,
        None if prices is None else prices.cost_of(spec),
    )


def _overrides(file: StudyFile, combination: Combination) -> dict[str, object]:
    """The keys that levels set, after those that the study sets for all. Raises SpecError for two
    factors that set the same key to different values, and for a level that is not for so many
    ranks."""
    ranks = _ranks(file, combination)
    found: dict[str, object] = dict(file.sections.set)
    by: dict[str, str] = {}
    problems: list[Problem] = []
    for name, level in combination.items():
        try:
            sets = level.overrides(ranks)
        except LevelUnfit as error:
            expected = f"expected {error}, for {level.name}"
            problems.append(Problem(("factors", name), f"{ranks} ranks", expected))
            continue
        for key, value in sets.items():
            if key in by and found[key] != value:
                expected = f"expected one factor to set {key}; {by[key]} sets it to"
                problems.append(
                    Problem(("factors", name), shown(value), f"{expected} {shown(found[key])}")
                )
            found[key], by[key] = value, name
    if problems:
        raise SpecError(str(file.path), tuple(problems))
    if any(key.startswith("fabric.queue.") for key in found) and "fabric.queue" not in found:
        # A base that leaves its queue out has one all the same.
        found.setdefault("fabric.queue.kind", file.base.fabric.queue.kind)
    return found


def _ranks(file: StudyFile, combination: Combination) -> int:
    """How many ranks a combination has, for the levels that depend on it."""
    found: object = file.sections.set.get("workload.ranks", file.base.ranks)
    for level in combination.values():
        # A level that does not depend on the ranks says so with any number; others set no other.
        try:
            sets = level.overrides(file.base.ranks)
        except LevelUnfit:
            continue
        if "workload.parallelism" not in sets:
            found = sets.get("workload.ranks", found)
    if isinstance(found, str) and found.isdecimal():
        found = int(found)
    return found if isinstance(found, int) and found > 0 else file.base.ranks
