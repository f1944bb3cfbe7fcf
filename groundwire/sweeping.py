"""One spec, several values of some keys: a run for every combination, one after another, or several
at once by the engine of studies."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from analysis.runs.run import Run, load_run
from emulator.output_directory import alone_in, claimed, new_directory, refuse_taken
from emulator.prepared_guest import guest_prepared
from emulator.progress import Progress, Report
from emulator.session import KernelKind, choose_kernel
from emulator.virtual.building.build import ensure_kernel
from groundwire.pipeline import SpecLike, resolve, run, told
from groundwire.studies.dask_engine import DaskEngine, local_workers
from groundwire.studies.engine import Engine, EngineError
from groundwire.studies.jobs import JOB_FILE, emulation
from groundwire.studies.watch import JobsWatch, StudyProgress
from topologies.spec.spec import Spec

_AT_WORK = ".at-work"
_AT_ONCE_FROM = 4


@dataclass(frozen=True)
class SweepCase:
    """A combination of values, and the run that was made of it."""

    overrides: Mapping[str, object]
    run: Run


@dataclass(frozen=True, slots=True)
class _Planned:
    overrides: dict[str, object]
    spec: Spec
    name: str

    @property
    def label(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.overrides.items())


class SweepFailed(RuntimeError):
    """Runs of a sweep that have failed; the message has each with its reason."""


def sweep(
    spec: SpecLike,
    axes: Mapping[str, Sequence[object]],
    *,
    kernel: KernelKind | None = None,
    out: str | Path | None = None,
    progress: Report | None = None,
    source: str = "axes",
) -> Iterator[SweepCase]:
    """Run a spec once for every combination of the axes' values: `{"fabric.hosts": [4, 8]}`.

    All combinations and run directories (`out`/001 and so on; `out` is by default a new
    runs/NAME-sweep-TIME) are checked before the first one runs. Yields each case when it is done,
    so that what was measured is kept when one fails; `list()` makes all of them. `progress` is as
    of `run`; the stage "case" tells it where a case begins. Errors in the axes name `source`.
    Raises what `run` raises.
    """
    cases = _planned(spec, axes, out, source)
    return _run(cases, _place(spec, out), kernel, progress)


def sweep_at_once(
    spec: SpecLike,
    axes: Mapping[str, Sequence[object]],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    kernel: KernelKind | None = None,
    out: str | Path | None = None,
    progress: Callable[[StudyProgress], None] = lambda progress: None,
    source: str = "axes",
    engine: Engine | None = None,
) -> Iterator[SweepCase]:
    """As `sweep`, by Dask: on `workers` processes here (None: one per core, as memory allows), or
    on the workers of a running `scheduler`.

    A run that fails ends no other. Yields when all have ended. Raises SweepFailed after the last
    when some have failed; EngineError, and what `sweep` raises before the first run.
    """
    cases = _planned(spec, axes, out, source)
    jobs = [
        emulation(case.spec, choose_kernel(case.spec, kernel), case.label, pages=True)
        for case in cases
    ]
    with _place(spec, out) as directory, alone_in(directory, "sweep"):
        place = directory / _AT_WORK
        shutil.rmtree(place, ignore_errors=True)  # an interrupted sweep's
        place.mkdir()
        watch = JobsWatch(tuple({job.key: job for job in jobs}.values()), place, progress)
        try:
            watch.begin()
            (engine or DaskEngine(scheduler, workers))(watch.jobs, place, watch.tell)
            for case, job in zip(cases, jobs, strict=True):
                if job.key not in watch.failures:
                    own = directory / case.name
                    with claimed(own):
                        shutil.copytree(
                            place / job.key,
                            own,
                            ignore=shutil.ignore_patterns(JOB_FILE),
                            dirs_exist_ok=True,
                        )
                    yield SweepCase(case.overrides, load_run(own))
        finally:
            shutil.rmtree(place)
    if watch.failures:
        labels = {job.key: job.label for job in jobs}
        raise SweepFailed("\n".join(f"{labels[k]}: {why}" for k, why in watch.failures.items()))


def workers_here(
    spec: SpecLike,
    axes: Mapping[str, Sequence[object]],
    *,
    kernel: KernelKind | None = None,
    out: str | Path | None = None,
    source: str = "axes",
) -> int:
    """How many runs of a sweep this machine does at once if nobody says: one per core, as memory
    allows. One for a few runs, for which Dask's start is not worth it, where Dask is not installed,
    and on the machine's own kernel, where they would disturb each other. Raises what `sweep` raises
    before the first run."""
    cases = _planned(spec, axes, out, source)
    if len(cases) < _AT_ONCE_FROM or find_spec("distributed") is None:
        return 1
    jobs = [emulation(case.spec, choose_kernel(case.spec, kernel), case.label) for case in cases]
    try:
        return local_workers(jobs, None)[0]
    except EngineError:  # the run that does not fit says so when it is its turn
        return 1


@contextmanager
def _place(spec: SpecLike, out: str | Path | None) -> Iterator[Path]:
    """`out`, or else a new directory, which goes after the block if it is still empty."""
    if out is not None:
        yield Path(out)
        return
    with new_directory(Path("runs"), f"{resolve(spec).name}-sweep") as directory:
        yield directory


def _planned(
    spec: SpecLike,
    axes: Mapping[str, Sequence[object]],
    out: str | Path | None,
    source: str,
) -> list[_Planned]:
    base = resolve(spec)
    cases = []
    for number, values in enumerate(itertools.product(*axes.values()), start=1):
        overrides = dict(zip(axes, values, strict=True))
        name = f"{number:03d}"
        if out is not None:
            refuse_taken(Path(out) / name)
        cases.append(_Planned(overrides, resolve(base, overrides, source=source), name))
    return cases


def _run(
    cases: Sequence[_Planned],
    place: AbstractContextManager[Path],
    kernel: KernelKind | None,
    progress: Report | None,
) -> Iterator[SweepCase]:
    with (
        place as directory,
        alone_in(directory, "sweep"),
        _prepared(cases, kernel),
        told(progress) as report,
    ):
        for number, case in enumerate(cases, start=1):
            report(Progress("case", f"run {number} of {len(cases)}: {case.label}"))
            own = directory / case.name
            made = run(case.spec, kernel=kernel, out=own, progress=report)
            yield SweepCase(case.overrides, made)


@contextmanager
def _prepared(cases: Sequence[_Planned], kernel: KernelKind | None) -> Iterator[None]:
    """One guest boots for all of the runs that a copy of it serves."""
    specs = [case.spec for case in cases if choose_kernel(case.spec, kernel) == "virtual"]
    if not specs:
        yield
        return
    with guest_prepared(ensure_kernel(lambda line: None), specs):
        yield
