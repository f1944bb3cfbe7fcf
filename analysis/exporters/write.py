"""The work of every rank, as the files of another simulator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any

from analysis.astra.files.export import InputSet, write_inputs
from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, Graph
from analysis.chakra.sources.goal_binary import goal_binary
from analysis.exporters.goal import goal_lines, goal_operations
from analysis.exporters.msccl import COLLECTIVES, build_program, render_program
from analysis.predict.models.astra import AstraAnalytical
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.msccl.write import NotWritable, write
from collectives.program import Program
from topologies.spec.spec import Spec

_MEMORY_GBPS = 1600.0
"""Local memory of the system file, as in ASTRA-sim's own examples."""
_SAMPLE_BYTES = 1 << 20


class TraceFormat(StrEnum):
    """Formats that a spec or a run is written in."""

    chakra = "chakra"
    astra_sim = "astra-sim"
    goal = "goal"
    goal_binary = "goal-binary"
    msccl_xml = "msccl-xml"


@dataclass(frozen=True)
class WrittenTrace:
    """The files that were written, what was left out and why, and ASTRA-sim's inputs if it is for
    ASTRA-sim."""

    paths: tuple[Path, ...]
    left_out: tuple[str, ...] = ()
    inputs: InputSet | None = None


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
    match format_:
        case TraceFormat.chakra:
            return WrittenTrace(tuple(write_graphs(folder / spec.name, graphs, seed=spec.seed)))
        case TraceFormat.astra_sim:
            return _astra(folder, spec, graphs, fitted or {})
        case TraceFormat.goal:
            path = folder / f"{spec.name}.goal"
            with path.open("w") as file:
                file.writelines(f"{line}\n" for line in goal_lines(graphs, seed=spec.seed))
            return WrittenTrace((path,))
        case TraceFormat.goal_binary:
            path = folder / f"{spec.name}.bin"
            path.write_bytes(goal_binary(list(goal_operations(graphs, seed=spec.seed))))
            return WrittenTrace((path,))
        case TraceFormat.msccl_xml:
            return _msccl(folder, spec, graphs)


def _astra(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    setting = setting_of_spec(spec)
    world = CollectiveCall(Kind.ALL_TO_ALL, _SAMPLE_BYTES, tuple(range(len(graphs))))
    # One network for all kinds of collectives: the backend that takes several dimensions.
    planned = AstraAnalytical(backend="unaware", **fitted).simulation(setting, world)
    # The predictor's reductions are free; the files need a bandwidth to be exact (write_inputs).
    system = replace(planned.system, local_mem_bw_gbps=_MEMORY_GBPS)
    inputs = write_inputs(folder, graphs, planned.network, system, seed=spec.seed)
    return WrittenTrace((), inputs=inputs)


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


def _msccl(folder: Path, spec: Spec, graphs: Sequence[Graph]) -> WrittenTrace:
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
