"""`groundwire trace`: runs and specs as files for other simulators, and traces checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.calibration.calibration import read_calibration
from analysis.chakra.errors import ChakraError
from analysis.chakra.files import write_graphs
from analysis.chakra.sources.from_run import graphs_of_run
from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import Summary, summarize
from analysis.exporters.kineto import write_kineto
from analysis.exporters.replay import rounding_notes
from analysis.exporters.write import TraceFormat, write_trace_as
from analysis.runs.run import load_run
from groundwire.commands.console.outcome import BAD_INPUT, outcome
from groundwire.commands.traces.disguise import obfuscate, synthesize
from groundwire.commands.traces.kernels import kernels
from groundwire.commands.traces.options import (
    DeviceChoice,
    DeviceOption,
    GroupsOption,
    MemoryHostsOption,
    MemoryOption,
    memory_of,
)
from groundwire.commands.traces.replay import replay
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.spec import load_spec
from topologies.units import format_size

trace_app = typer.Typer(
    help="Write runs and specs for other simulators; check traces; replay them on a fabric.",
    no_args_is_help=True,
)


@trace_app.command()
@outcome
def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SPEC", help="A run directory, measured; or a spec, as planned."
        ),
    ],
    format_: Annotated[
        TraceFormat,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="chakra: an execution trace per rank. astra-sim: all input files of ASTRA-sim. "
            "goal: LogGOPSim's GOAL text; goal-binary: as txt2bin makes it. msccl-xml: a schedule "
            "per collective. simai: a workload of SimAI. htsim: a connection matrix. ns3: HPCC's "
            "topology and flows. kineto: of a run with virtual GPUs, a profile per rank as "
            "torch.profiler's.",
        ),
    ] = TraceFormat.chakra,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where to write (default: RUN/export/FORMAT, or NAME-FORMAT)."
        ),
    ] = None,
    iteration: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="The iteration of a run, from 0 (default: the last)."
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="astra-sim: links and endpoint delay as `calibrate` fitted them to "
            "astra-analytical.",
        ),
    ] = None,
) -> int:
    """Write what every rank does, with dependencies, durations and sizes, for another simulator.

    A run gives what was measured; a spec gives the durations of its compute model. Prints the
    paths.
    """
    if format_ is TraceFormat.kineto:
        return _export_kineto(source, out, iteration)
    fitted: dict[str, Any] = {}
    if calibration is not None:
        if format_ is not TraceFormat.astra_sim:
            raise typer.BadParameter("--calibration is for --format astra-sim")
        fitted |= read_calibration(calibration).of("astra-analytical")
    if source.is_dir():
        run = load_run(source)
        spec, graphs = run.spec, graphs_of_run(run, iteration)
        folder = out or source / "export" / format_.value
    elif iteration is not None:
        raise typer.BadParameter("--iteration is for a run: a spec's iterations are alike")
    else:
        spec = load_spec(source)
        graphs = graphs_of_spec(spec)
        folder = out or Path(f"{spec.name}-{format_.value}")
    try:
        written = write_trace_as(format_, folder, spec, graphs, fitted)
    except ValueError as error:
        raise ChakraError(source, None, f"as {format_.value}: {error}") from error
    for path in written.paths:
        print(path)
    for note in written.left_out:
        print(f"note: {note}", file=sys.stderr)
    if written.command is not None:
        print(written.command)
    return 0


def _export_kineto(source: Path, out: Path | None, iteration: int | None) -> int:
    if not source.is_dir():
        raise typer.BadParameter("--format kineto is for a run: a spec has no kernels with times")
    if iteration is not None:
        raise typer.BadParameter("--iteration: a profile has all of them, as ProfilerStep#N")
    try:
        paths = write_kineto(out or source / "export" / "kineto", load_run(source))
    except ValueError as error:
        raise ChakraError(source, None, f"as kineto: {error}") from error
    for path in paths:
        print(path)
    return 0


@trace_app.command("import")
@outcome
def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A file (.et, .json of PyTorch, GOAL, SimAI, htsim, ns-3, NCCL's log, nsys's "
            "SQLite), or the PREFIX of PREFIX.RANK.et or PREFIX.RANK.json; of nsys also a folder.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="PREFIX", help="Write the traces as Chakra files PREFIX.RANK.et."),
    ] = None,
    device: DeviceOption = DeviceChoice.V100,
    groups: GroupsOption = None,
    memory: MemoryOption = None,
    memory_hosts: MemoryHostsOption = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check traces, and say what is in them.

    Exit code 2 when a file is bad, or when ranks do not fit together. `groundwire trace replay
    PREFIX` replays what passes with real Gloo.
    """
    compute = ComputeSpec.model_validate({"device": device.value})
    read = read_workload(path, compute, groups, memory_of(memory, memory_hosts))
    graphs, complete = read.graphs, read.complete
    summary = summarize(graphs)
    # The other ranks of a single file are not there to be checked against.
    found = summary.problems if complete else ()
    notes = [*read.notes, *rounding_notes(graphs)]
    if as_json:
        print(json.dumps(_document(summary, found, notes), indent=1))
    else:
        _print(summary)
        for note in notes:
            print(f"note: {path}: {note}", file=sys.stderr)
    for problem in found:
        print(f"error: {path}: {problem}", file=sys.stderr)
    if found:
        return BAD_INPUT
    if out is not None:
        if not complete:
            raise ChakraError(path, None, "is one rank's: give the PREFIX of all ranks with --out")
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            written = write_graphs(out, graphs)
        except ValueError as error:
            raise ChakraError(path, None, str(error)) from error
        print(f"wrote {len(written)} traces, {written[0]} ...", file=sys.stderr)
    return 0


def _document(summary: Summary, problems: Sequence[str], notes: Sequence[str]) -> dict[str, object]:
    return {
        "ranks": summary.ranks,
        "nodes": summary.nodes,
        "compute_ns": summary.compute_ns,
        "collectives": [
            {"kind": kind, "size_bytes": size_bytes, "ranks": ranks, "count": count}
            for (kind, size_bytes, ranks), count in summary.collectives.items()
        ],
        "groups": {str(number): list(ranks) for number, ranks in summary.groups.items()},
        "problems": list(problems),
        "notes": list(notes),
    }


def _print(summary: Summary) -> None:
    nodes = ", ".join(f"{count} {name}" for name, count in summary.nodes.items())
    print(f"ranks: {summary.ranks}")
    print(f"nodes: {nodes}; computation of the busiest rank: {summary.compute_ns / 1000:.1f} us")
    for (kind, size_bytes, ranks), count in summary.collectives.items():
        print(f"collective: {count} x {kind} of {format_size(size_bytes)} over {ranks} ranks")
    for number, members in summary.groups.items():
        print(f"group {number}: ranks {', '.join(map(str, members))}")


trace_app.command()(replay)
trace_app.command()(kernels)
trace_app.command()(obfuscate)
trace_app.command()(synthesize)
