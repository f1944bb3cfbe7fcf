"""The runs of a lab in a student's folder, and whether they are still those of its files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emulator.progress import Progress, Report
from groundwire import pipeline
from groundwire.labs.errors import LabError
from groundwire.labs.facts import facts_of
from groundwire.labs.folder import LabFolder, check_spec
from groundwire.labs.formula import Number
from groundwire.labs.lab import Fact, LabRun
from topologies.spec.spec import load_spec

NOT_RUN = "not run yet: groundwire lab run"
STALE = "changed since the run: groundwire lab run"


@dataclass(frozen=True)
class Outcome:
    """The facts of a lab's runs. `failures`: run -> why it has no facts."""

    facts: dict[str, Number]
    failures: dict[str, str]


def run_lab(folder: LabFolder, report: Report, *, only: str | None = None) -> Outcome:
    """Make the lab's runs, or one of them, on the virtual kernel, in place of those before.

    A run that fails does not stop the others. Raises LabError for a run that the lab does not have.
    """
    runs = folder.lab.runs
    if only is not None and only not in runs:
        raise LabError(f"run: found {only!r}; allowed are {', '.join(runs)}")
    for name, run in runs.items():
        if only in (None, name):
            try:
                check_spec(folder, run)
                failure = _made(folder.path, name, run, report)
            except LabError as error:
                failure = str(error)
            state = {"inputs": _inputs(folder, run), "failure": failure}
            _state_file(folder, name).write_text(json.dumps(state) + "\n")
    return outcome_of(folder)


def make_runs(
    path: Path,
    runs: Mapping[str, LabRun],
    facts: Mapping[str, Fact],
    report: Report,
) -> Outcome:
    """Make runs of the specs in a folder."""
    made = {name: _made(path, name, run, report) for name, run in runs.items()}
    failures = {name: failure for name, failure in made.items() if failure is not None}
    done = {name: path / "runs" / name for name in runs if name not in failures}
    return Outcome(facts_of(facts, done), failures)


def outcome_of(folder: LabFolder) -> Outcome:
    """The facts of the runs that are there."""
    failures: dict[str, str] = {}
    for name, run in folder.lab.runs.items():
        failure = _failure(folder, name, run)
        if failure is not None:
            failures[name] = failure
    done = {n: folder.run_directory(n) for n in folder.lab.runs if n not in failures}
    return Outcome(facts_of(folder.lab.facts, done), failures)


def _failure(folder: LabFolder, name: str, run: LabRun) -> str | None:
    try:
        state = json.loads(_state_file(folder, name).read_text())
        inputs, failure = state["inputs"], state["failure"]
    except (OSError, ValueError, KeyError, TypeError):
        return NOT_RUN
    now = _inputs(folder, run)
    if not isinstance(inputs, dict):  # of an older version
        return NOT_RUN
    changed = [each for each in {**inputs, **now} if inputs.get(each) != now.get(each)]
    if changed:
        return f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} {STALE}"
    return None if failure is None else str(failure)


def _made(path: Path, name: str, run: LabRun, report: Report) -> str | None:
    """Why there is no result; None when there is one."""
    report(Progress("lab", f"run {name}"))
    directory = path / "runs" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(exist_ok=True)
    try:
        spec = load_spec(path / run.spec)
        with _this_python_first():
            made = pipeline.run(spec, kernel="virtual", out=directory, progress=report)
    except (OSError, RuntimeError, ValueError) as error:
        return f"{error}"
    reasons = made.result["invalid_reasons"]
    return None if made.result["valid"] else f"the run is not valid: {'; '.join(reasons)}"


def _inputs(folder: LabFolder, run: LabRun) -> dict[str, str]:
    """The inputs of the run: digests of its spec and its files as they are now."""
    found = {}
    for name in (run.spec, *run.files):
        path = folder.path / name
        if path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _state_file(folder: LabFolder, name: str) -> Path:
    return folder.path / "runs" / f"{name}.json"


@contextmanager
def _this_python_first() -> Iterator[None]:
    """`python` in a spec is the Python that runs us, with its torch."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
