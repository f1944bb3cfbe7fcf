"""From a spec to a run: spec, plan, run, predictions, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from emulator.output_directory import new_directory, remove_run
from emulator.progress import Progress, Report
from emulator.ranks.failures.full_directory import full_directory_reported
from emulator.session import KernelKind, KernelRefused, Stop, choose_kernel, run_session
from groundwire.importing import imported
from topologies.fabrics.placement import OPTIMIZE
from topologies.spec.spec import Spec, load_spec, parse_dict
from workloads.models.build import inputs_of

if TYPE_CHECKING:
    from analysis.runs.run import Run


SpecLike: TypeAlias = Spec | Mapping[str, Any] | str | PathLike[str]
"""A spec, plain data as in a spec's file, or the path of one."""


class JobsMissing(ValueError):
    """A spec of one workload where one of several jobs is needed."""


def silent(progress: Progress) -> None:
    """A `Report` that tells nobody."""


@contextmanager
def told(progress: Report | None) -> Iterator[Report]:
    """`progress`; for None one that shows events where standard error is a terminal, for people who
    type at a prompt of Python, and else nobody."""
    if progress is not None or not sys.stderr.isatty():
        yield progress or silent
        return
    from rich.console import Console

    from groundwire.commands.console.progress_display import SweepProgress

    with SweepProgress(Console(stderr=True), output=sys.stderr) as display:
        yield display.report


def resolve(
    spec: SpecLike,
    overrides: Mapping[str, object] | None = None,
    *,
    source: str = "overrides",
) -> Spec:
    """A spec, or the one in a file or in plain data, with dotted keys set: `{"fabric.k": 8}`.

    An override's text is YAML, as after `--set`; other values are taken as they are. Raises
    SpecError, whose text names `source` where an override is wrong.
    """
    given = overrides or {}
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in given.items()}
    if isinstance(spec, str | PathLike):
        return load_spec(Path(spec), overrides=texts, overridden_by=source)
    found = _loaded(spec)
    return found.with_overrides(texts, source=source) if texts else found


def _loaded(spec: Spec | Mapping[str, Any]) -> Spec:
    """Raises SpecError, and TypeError for what is none of these."""
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, Mapping):
        return parse_dict({"name": "spec", **spec})
    raise TypeError(f"spec: found {type(spec).__name__}; expected a Spec, a dict or a path")


@contextmanager
def run_directory(spec: Spec, out: str | Path | None, *, force: bool = False) -> Iterator[Path]:
    """`out`, or else a new `runs/NAME-TIME` below the current directory, which goes after the block
    if it is still empty. With `force` the run that `out` has goes first."""
    if out is not None:
        if force:
            remove_run(Path(out))
        yield Path(out)
        return
    with new_directory(Path("runs"), spec.name) as directory:
        yield directory


def run(
    spec: SpecLike,
    overrides: Mapping[str, object] | None = None,
    *,
    kernel: KernelKind | None = None,
    out: str | Path | None = None,
    progress: Report | None = None,
    twin: bool = False,
    alone: bool = False,
    pages: bool = True,
    stall_timeout_s: float | None = None,
    stop: Stop | None = None,
    live: bool = False,
) -> Run:
    """Run a spec and return its run, with result.json, report.html and trace.json written.

    `spec` is a Spec, the path of a file, or plain data as in one.

    `kernel` None takes native as root where it has what the spec needs, else virtual. `out` is the
    run directory (default: `runs/NAME-TIME`). `progress` is called with every event; without it
    they are shown where standard error is a terminal (`silent` shows none). A run that is done but
    not valid returns too: ask `run.result["valid"]` and `["invalid_reasons"]`. `twin` runs the same
    spec on the virtual kernel after a native run, without captures, in `twin/` of the run
    directory, and judges the native times by its exact ones.

    With `placement: optimize` the ranks' hosts are searched first, and the spec runs once more with
    `placement: linear`, in `in-order/` of the run directory, unless that is chosen.

    `alone` runs each of several jobs once more with the others idle, in `alone/NAME` of the run
    directory, and says by how much each is slowed down.

    `stall_timeout_s` are the real seconds after which a run on the virtual kernel ends whose time
    stands still (None: 300).

    With `stop` the run of a program stands still at its time, and goes on when that has looked.
    A `live` run says in `live/` of its directory how far it is (docs/formats.md).

    Without `pages` there are no report.html and no trace.json; `groundwire report` makes them.

    Raises SpecError, UnknownKernel, FileExistsError for a directory that is not empty,
    KernelRefused, SessionFailed, RankFailed and RunDirectoryFull; for a program ProgramNotFound and
    VirtualGpuError.
    """
    resolved = resolve(spec, overrides)
    if alone and len(resolved.parts) < 2:
        raise JobsMissing(f"{resolved.name}: expected several jobs, to run each of them alone")
    with (
        told(progress) as report,
        run_directory(resolved, out) as directory,
        full_directory_reported(directory),
    ):
        if twin:
            kernel = _native_for_twin(resolved, kernel)
        inputs = _inputs(resolved)
        in_order = None
        if resolved.placement == OPTIMIZE:
            in_order, resolved, inputs = _placed(resolved, inputs, report)
        try:
            run_session(
                resolved,
                kernel,
                directory,
                report,
                inputs,
                _import_what_follows,
                _idle_times_ns,
                stall_timeout_s,
                stop,
                live,
            )
        except RuntimeError as failure:
            _tell_more(failure, directory, resolved)
            raise
        if twin:
            report(Progress("twin", "native run done; its twin follows on the virtual kernel"))
            from analysis.results.judged import TWIN

            same = resolved.with_overrides({"capture.points": "[]"}, source="the twin")
            run_session(same, "virtual", directory / TWIN, report, inputs)
        if in_order is not None:
            _run_in_order(in_order, kernel, directory, report, inputs)
        if alone:
            _run_alone(resolved, kernel, directory, report, inputs)
        from groundwire.finishing import finish

        return finish(directory, report, pages=pages)


def _tell_more(failure: RuntimeError, directory: Path, spec: Spec) -> None:
    """Add to the words of a run that hangs what its captures tell."""
    from groundwire.mpi_hangs import tell_mpi_messages

    if told := tell_mpi_messages(directory, spec):
        failure.args = (f"{failure}\n{told}",)


def _placed(
    spec: Spec, inputs: Mapping[str, str | bytes], progress: Report
) -> tuple[Spec | None, Spec, dict[str, str | bytes]]:
    """The spec with its ranks in order, where that is to be run beside it; the spec with the hosts
    that are found for its ranks; and its inputs, which say so."""
    from analysis.predict.placement_search import search, with_hosts
    from analysis.results.placement import SEARCH

    found = search(spec, lambda text: progress(Progress("placement", text)))
    other = with_hosts(spec, found.tried[0].hosts) if found.chosen else None
    told = {SEARCH: json.dumps(found.as_dict(), indent=1) + "\n"}
    return other, with_hosts(spec, found.best.hosts), {**inputs, **told}


def _run_in_order(
    spec: Spec,
    kernel: KernelKind | None,
    directory: Path,
    progress: Report,
    inputs: Mapping[str, str | bytes],
) -> None:
    """The run beside one whose placement was searched, without captures."""
    from analysis.results.placement import IN_ORDER, SEARCH

    progress(Progress("placement", "the run with ranks in order follows"))
    plain = spec.with_overrides({"capture.points": "[]"}, source="the run in order")
    run_session(
        plain,
        kernel,
        directory / IN_ORDER,
        progress,
        {name: content for name, content in inputs.items() if name != SEARCH},
        idle_times_ns=_idle_times_ns,
    )


def _import_what_follows() -> None:
    """Import what comes after a guest while it boots: a second of work, on another core."""
    Thread(target=imported, args=("groundwire.finishing",), daemon=True).start()


def _idle_times_ns(spec: Spec) -> list[float]:
    from analysis.predict.models.alpha_beta import idle_times_ns

    return idle_times_ns(spec)


def _run_alone(
    spec: Spec,
    kernel: KernelKind | None,
    directory: Path,
    progress: Report,
    inputs: Mapping[str, str | bytes],
) -> None:
    """Each job with the others idle, without captures."""
    from analysis.results.jobs_result import ALONE

    for name in spec.parts:
        progress(Progress("alone", f"job {name} follows alone"))
        idle = {
            f"jobs.{number}.repeat": "0" for number, job in enumerate(spec.jobs) if job.name != name
        }
        overrides = {"capture.points": "[]"} | idle
        by_itself = spec.with_overrides(overrides, source=f"{name} alone")
        run_session(
            by_itself,
            kernel,
            directory / ALONE / name,
            progress,
            inputs,
            idle_times_ns=_idle_times_ns,
        )


def _native_for_twin(spec: Spec, kernel: KernelKind | None) -> KernelKind:
    """The kernel of a run that is to have a twin. Raises KernelRefused where there can be none."""
    if spec.compute.device == "real":
        raise KernelRefused(
            "there is no twin of a spec with compute.device real, which has no virtual time"
        )
    if kernel == "virtual":
        raise KernelRefused("a twin is for runs on the native kernel; the virtual one is exact")
    return choose_kernel(spec, "native")


def _inputs(spec: Spec) -> dict[str, str | bytes]:
    """The files that the workload's ranks read, or those of jobs, below the run directory, and the
    simulated network's. Raises KernelRefused for a network that cannot be simulated."""
    found: dict[str, str | bytes] = {}
    if spec.simulated:
        found |= _simulated(spec)
    for name, part in spec.parts.items():
        place = f"jobs/{name}/" if spec.jobs else ""
        found |= {place + file: content for file, content in inputs_of(part).items()}
    return found


def _simulated(spec: Spec) -> dict[str, str | bytes]:
    from analysis.predict.driven_network import network_columns
    from analysis.predict.interface import PredictorError
    from collectives.carried import CarriedSection
    from emulator.ranks.simulated.files import MESHES
    from emulator.ranks.simulated.network import COLUMNS_FILE, ENGINE_FILE, SECTION_FILE
    from simulation.building import engine_program
    from simulation.columns import pack
    from simulation.failure import SimulationError
    from topologies.spec.payload_scaling import wire_spec

    if spec.jobs:
        raise KernelRefused("network: simulated: found several jobs; expected one workload")
    try:
        columns = b"".join(pack(network_columns(wire_spec(spec), meshes=MESHES)))
        section = CarriedSection.of_spec(spec).as_json()
        return {COLUMNS_FILE: columns, ENGINE_FILE: str(engine_program()), SECTION_FILE: section}
    except (PredictorError, SimulationError) as error:
        raise KernelRefused(f"network: simulated: {error}") from error
