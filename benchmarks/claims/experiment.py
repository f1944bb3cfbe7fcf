"""Experiments behind claims, and the files in which their figures are kept."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

import groundwire
from analysis.predict.planned_run import PredictedIteration
from emulator.virtual.building.build import find_kernel
from groundwire.forecast import Forecast
from simulation.building import engine_program
from testing.kept_runs import kept_run

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "claims"
SEEDS = tuple(range(1, 9))
"""So many draws of ECMP's ports has a figure that depends on them."""


class Bench:
    """The place of an experiment's runs; it remembers the specs that were asked for."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.hashes: set[str] = set()
        self.emulates = self.predicts = False

    def run(self, spec: str) -> Path:
        """The run directory of a spec in the virtual kernel, which is kept. Raises RuntimeError for
        a run that is not valid."""
        self.take(spec)
        try:
            directory = kept_run(spec, self.runs)
        except subprocess.CalledProcessError as failed:
            raise RuntimeError(f"a run ended with exit code {failed.returncode}") from None
        result = json.loads((directory / "result.json").read_text())
        if not result["valid"]:
            raise RuntimeError(f"{directory}: not valid: {result['invalid_reasons']}")
        return directory

    def result(self, spec: str) -> dict[str, Any]:
        """result.json of such a run."""
        found: dict[str, Any] = json.loads((self.run(spec) / "result.json").read_text())
        return found

    def predict(
        self, spec: str, overrides: Mapping[str, object], predictor: str = "packet"
    ) -> Forecast:
        """A forecast from the spec alone."""
        self.hashes.add(_hash(spec + json.dumps(dict(overrides), sort_keys=True)))
        self.predicts = True
        return groundwire.predict(yaml.safe_load(spec), overrides, predictors=[predictor])

    def iteration(
        self, spec: str, overrides: Mapping[str, object] | None = None
    ) -> tuple[PredictedIteration, Forecast]:
        """An iteration as a whole. Raises RuntimeError with the reason why there is none."""
        found = self.predict(spec, overrides or {})
        whole = found.iterations["packet"]
        if isinstance(whole, str):
            raise RuntimeError(whole)
        return whole, found

    def durations_us(self, spec: str, overrides: Mapping[str, object] | None = None) -> list[float]:
        """Each collective of an iteration, in microseconds. Raises RuntimeError without one."""
        found = self.predict(spec, overrides or {})
        if found.refusals():
            raise RuntimeError("; ".join(found.refusals()))
        answers = [each.predicted["packet"].duration_ns for each in found.collectives]
        return [each / 1000 for each in answers if each is not None]

    def draws_us(self, spec: str) -> list[float]:
        """An iteration with each seed of `SEEDS`."""
        return [self.iteration(spec, {"seed": seed})[0].duration_ns / 1000 for seed in SEEDS]

    def take_text(self, text: str) -> None:
        """Remember a file that is neither run nor predicted."""
        self.hashes.add(_hash(text))

    def take(self, spec: str) -> None:
        """Remember a spec that a benchmark of its own ran in the virtual kernel."""
        self.hashes.add(_hash(spec))
        self.emulates = True


@dataclass(frozen=True)
class Experiment:
    """`measure` makes the figures. `by` says in a few words what computes them (the virtual kernel,
    the packet engine, arithmetic). A `cheap` one takes seconds and is run again by a test."""

    name: str
    by: str
    measure: Callable[[Bench], Mapping[str, Any]]
    cheap: bool = False

    @property
    def command(self) -> str:
        """Makes its file."""
        return f"make claims ONLY={self.name}"

    @property
    def file(self) -> Path:
        """Its kept figures."""
        return KEPT / f"{self.name}.json"

    def perform(self, runs: Path) -> Kept:
        """Its figures, made now; runs go below `runs` and are kept there."""
        bench = Bench(runs / self.name)
        figures = rounded(self.measure(bench))
        specs = _hash("".join(sorted(bench.hashes)))
        count, versions = len(bench.hashes), _versions(bench)
        return Kept(self.name, self.command, self.by, count, specs, versions, figures)


@dataclass(frozen=True)
class Kept:
    """The file of an experiment. `specs` is how many specs it ran or predicted and `spec_hash`
    the hash of theirs."""

    experiment: str
    command: str
    by: str
    specs: int
    spec_hash: str
    versions: Mapping[str, str]
    figures: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


def read_kept(path: Path) -> Kept | None:
    """A file of kept figures; None where there is none. Raises ValueError for one that is wrong."""
    if not path.exists():
        return None
    try:
        return Kept(**json.loads(path.read_text()))
    except TypeError as wrong:
        raise ValueError(f"{path}: {wrong}") from None


def rounded(value: Any) -> Any:
    """Figures with six digits, which is more than a reader needs and less than a file can bear."""
    if isinstance(value, Mapping):
        return {str(name): rounded(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _versions(bench: Bench) -> dict[str, str]:
    found = {"groundwire": version("groundwire"), "python": platform.python_version()}
    if bench.predicts:
        found["engine"] = engine_program().name
    if bench.emulates:
        kernel = find_kernel()
        found |= {"torch": version("torch"), "kernel": kernel.path.parent.name if kernel else ""}
    return found
