"""One spec, several values of some keys: a run for every combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.runs.run import Run
from emulator.progress import Progress, Report
from emulator.session import KernelKind, refuse_taken
from groundwire.pipeline import resolve, run, silent
from topologies.spec.spec import Spec


@dataclass(frozen=True)
class SweepCase:
    """A combination of values, and the run that was made of it."""

    overrides: Mapping[str, object]
    run: Run


@dataclass(frozen=True, slots=True)
class _Planned:
    overrides: dict[str, object]
    spec: Spec
    directory: Path


def sweep(
    spec: Spec | str | Path,
    axes: Mapping[str, Sequence[object]],
    *,
    kernel: KernelKind | None = None,
    out: str | Path = "runs/sweep",
    progress: Report = silent,
    source: str = "axes",
) -> Iterator[SweepCase]:
    """Run a spec once for every combination of the axes' values: `{"fabric.hosts": [4, 8]}`.

    All combinations and run directories (`out`/001 and so on) are checked before the first one
    runs. Yields each case when it is done, so that what was measured is kept when one fails;
    `list()` makes all of them. `progress` is told where a case begins by the stage "case";
    errors in the axes name `source`. Raises what `run` raises.
    """
    base = resolve(spec)
    cases = []
    for number, values in enumerate(itertools.product(*axes.values()), start=1):
        overrides = dict(zip(axes, values, strict=True))
        directory = Path(out) / f"{number:03d}"
        refuse_taken(directory)
        cases.append(_Planned(overrides, resolve(base, overrides, source=source), directory))
    return _run(cases, kernel, progress)


def _run(
    cases: Sequence[_Planned], kernel: KernelKind | None, progress: Report
) -> Iterator[SweepCase]:
    for number, case in enumerate(cases, start=1):
        label = ", ".join(f"{key}={value}" for key, value in case.overrides.items())
        progress(Progress("case", f"run {number} of {len(cases)}: {label}"))
        made = run(case.spec, kernel=kernel, out=case.directory, progress=progress)
        yield SweepCase(case.overrides, made)
