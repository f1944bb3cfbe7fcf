"""The work of every rank, as the files of another simulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, Graph
from analysis.chakra.sources.goal_binary import goal_binary
from analysis.exporters.goal import goal_lines, goal_operations
from analysis.exporters.msccl import COLLECTIVES, build_program, render_program
from collectives.call import CollectiveCall
from collectives.msccl.write import NotWritable, write
from collectives.program import Program
from topologies.registration import function_at
from topologies.spec.spec import Spec


class TraceFormat(StrEnum):
    """Formats that a spec or a run is written in."""

    chakra = "chakra"
    astra_sim = "astra-sim"
    goal = "goal"
    goal_binary = "goal-binary"
    msccl_xml = "msccl-xml"
    simai = "simai"
    htsim = "htsim"
    ns3 = "ns3"
    kineto = "kineto"
    """For runs with virtual GPUs alone: `analysis/exporters/kineto.py` writes it."""


@dataclass(frozen=True)
class WrittenTrace:
    """The files that were written, what was left out and why, and the command line that has the
    format's own simulator run them, where there is one."""

    paths: tuple[Path, ...]
    left_out: tuple[str, ...] = ()
    command: str | None = None


Writer = Callable[[Path, Spec, Sequence[Graph], Mapping[str, Any]], WrittenTrace]

_WRITERS = {
    TraceFormat.chakra: "analysis.exporters.write:write_chakra",
    TraceFormat.astra_sim: "analysis.exporters.astra_sim:write_astra_sim",
    TraceFormat.goal: "analysis.exporters.write:write_goal",
    TraceFormat.goal_binary: "analysis.exporters.write:write_goal_binary",
    TraceFormat.msccl_xml: "analysis.exporters.write:write_msccl",
    TraceFormat.simai: "analysis.exporters.simai:write_simai",
    TraceFormat.htsim: "analysis.exporters.flow_files:write_htsim",
    TraceFormat.ns3: "analysis.exporters.flow_files:write_ns3",
}
"""A function for each format, imported when it is asked for."""


def write_trace_as(
    format_: TraceFormat,
    folder: Path,
    spec: Spec,
    graphs: Sequence[Graph],
    fitted: Mapping[str, Any] | None = None,
) -> WrittenTrace:
    """Write the ranks' graphs into a folder, which is made if need be.

    `fitted` are calibrated parameters of astra-analytical. Raises ValueError for what the format
    cannot say.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return cast(Writer, function_at(_WRITERS[format_]))(folder, spec, graphs, fitted or {})


def write_chakra(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """A file for each rank."""
    return WrittenTrace(tuple(write_graphs(folder / spec.name, graphs, seed=spec.seed)))


def write_goal(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """A text of all ranks."""
    path = folder / f"{spec.name}.goal"
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in goal_lines(graphs, seed=spec.seed))
    return WrittenTrace((path,))


def write_goal_binary(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """A binary file of all ranks."""
    path = folder / f"{spec.name}.bin"
    path.write_bytes(goal_binary(list(goal_operations(graphs, seed=spec.seed))))
    return WrittenTrace((path,))


def _programs(calls: Iterable[CollectiveCall]) -> Iterator[tuple[str, Program]]:
    """The programs of the chunks, each of them once, by a name of its own."""
    programs = {
        id(chunk.program): chunk.program for call in calls for chunk in call.schedule.chunks
    }
    known: dict[str, list[Program]] = {}
    for program in programs.values():
        algorithm = re.sub(r"[^\w.-]", "_", program.algorithm)
        found = known.setdefault(f"{program.kind}-{program.ranks}-{algorithm}", [])
        if program not in found:
            found.append(program)
    for name, found in known.items():
        for number, program in enumerate(found):
            yield (f"{name}-{number}" if number else name), program


def write_msccl(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """A file for each program of its collectives. Raises ValueError where MSCCL has none of
    them."""
    calls = [n.call for graph in graphs for n in graph if isinstance(n, CollectiveNode)]
    shapes = sorted({(call.kind, call.world) for call in calls if not call.schedule.chunks})
    paths, left_out = [], []
    for name, program in sorted(_programs(calls), key=itemgetter(0)):
        try:
            text = write(program)
        except NotWritable as error:
            left_out.append(f"{name}: {error}: left out")
            continue
        path = folder / f"{name}.xml"
        path.write_text(text)
        paths.append(path)
    for kind, ranks in shapes:
        if kind not in COLLECTIVES:
            left_out.append(f"MSCCL has no {kind}: left out")
            continue
        path = folder / f"{kind}-{ranks}.xml"
        path.write_text(render_program(build_program(kind, ranks), f"{spec.name}-{kind}-{ranks}"))
        paths.append(path)
    if not paths:
        raise ValueError(f"none of its collectives are MSCCL's: {', '.join(COLLECTIVES)}")
    return WrittenTrace(tuple(paths), tuple(left_out))
