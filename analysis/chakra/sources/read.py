"""Traces of any accepted origin: Chakra's own files, and those of others, by a reader each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.chakra.check import import_trace, ranks_of
from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.foreign import by_ranks, groups_of_pytorch, not_as_they_say
from analysis.chakra.graph import Graph, Groups, Pricing, from_trace, trace_groups
from analysis.chakra.group_file import read_groups
from analysis.chakra.limits import MOST_RANKS
from analysis.chakra.memory import with_memory
from analysis.chakra.sources.aicb import read_aicb
from analysis.chakra.sources.flow_files import read_connections, read_ns3_flows
from analysis.chakra.sources.goal import read_goal
from analysis.chakra.sources.goal_binary import is_goal_binary, read_goal_binary
from analysis.chakra.sources.kineto import read_kineto
from analysis.chakra.sources.nccl_log import read_nccl_log
from analysis.chakra.sources.nsys import nsys_reports, read_nsys
from analysis.chakra.sources.observer_file import ObserverFile, read_document
from analysis.chakra.sources.pytorch import read_observer
from analysis.chakra.sources.simai import read_simai
from analysis.chakra.trace import Trace
from topologies.installation import page
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.foreign_files import (
    AICB,
    CONNECTIONS,
    GOAL,
    KINETO,
    NCCL_LOG,
    NS3_FLOWS,
    SIMAI,
    foreign_file,
)
from topologies.spec.memory_section import MemorySpec

_ITEM_BYTES = 4
_LOOKED_AT = 512


@dataclass(frozen=True, slots=True)
class TraceSet:
    """The graphs of ranks 0, 1, ...; `complete` where these are all (a file is one rank's of
    several). `notes` say what was read otherwise than it stands there."""

    graphs: tuple[Graph, ...]
    complete: bool = True
    notes: tuple[str, ...] = ()


def read_workload(
    path: Path,
    compute: ComputeSpec | None = None,
    groups: Path | None = None,
    memory: MemorySpec | None = None,
) -> TraceSet:
    """The graphs of a file, or of all `PATH.RANK.et` or `PATH.RANK.json`, checked. A GOAL text has
    all ranks in one file, reports of nsys those of a node each: all of a folder, or `PATH*.sqlite`.

    `compute` times what has operations and no duration, as all of PyTorch's traces; without it that
    takes no time. `groups` is ASTRA-sim's file of communicator groups. `memory` is behind memory
    nodes; the hosts of a pool are ranks behind those of the trace. Raises ChakraError naming the
    file and, where there is one, the offset.
    """
    read = _read(path, compute, groups)
    try:
        graphs, notes = with_memory(read.graphs, memory, complete=read.complete)
    except ValueError as error:
        raise ChakraError(path, None, str(error)) from None
    return replace(read, graphs=graphs, notes=(*read.notes, *notes))


def _read(path: Path, compute: ComputeSpec | None, groups: Path | None) -> TraceSet:
    price = None if compute is None else pricing(compute)
    if (path.is_file() or path.is_dir()) and (reports := nsys_reports(path)):
        return _of_nsys(reports)
    if path.is_file():
        if _is_json(path):
            graph, said = _of_pytorch(path, price or _no_time)
            return TraceSet((graph,), complete=False, notes=said)
        data = read_bytes(path)
        kind = foreign_file(data)
        if kind is GOAL or is_goal_binary(data):
            graphs, notes = (read_goal if kind is GOAL else read_goal_binary)(path)
            return TraceSet(graphs, notes=by_ranks(notes, len(graphs)))
        if kind is AICB:
            graphs, said = read_aicb(path, price or _no_time)
            return TraceSet(graphs, notes=said)
        if kind is SIMAI or kind is NCCL_LOG:
            graphs, said = (read_simai if kind is SIMAI else read_nccl_log)(path)
            return TraceSet(graphs, notes=said)
        if kind is NS3_FLOWS or kind is CONNECTIONS:
            return TraceSet((read_ns3_flows if kind is NS3_FLOWS else read_connections)(path))
        if kind is None and _is_text(data):
            known = f"is a text of none of the formats that are read ({page('traces.md')})"
            raise ChakraError(path, None, known)
        return _of_traces({0: path}, compute, groups, complete=False)
    found = ranks_of(path, (".et", ".et.gz"))
    if not found and (observed := ranks_of(path, (".json", ".json.gz"))):
        read = [_of_pytorch(each, price or _no_time) for each in observed.values()]
        told = [(rank, note) for rank, (_, said) in enumerate(read) for note in said]
        return TraceSet(tuple(graph for graph, _ in read), notes=by_ranks(told, len(read)))
    if not found and (reports := nsys_reports(path)):
        return _of_nsys(reports)
    if not found:
        raise ChakraError(path, None, f"no file {path.name}.RANK.et there")
    return _of_traces(found, compute, groups, complete=True)


def _of_nsys(reports: Sequence[Path]) -> TraceSet:
    graphs, notes = read_nsys(reports)
    return TraceSet(graphs, notes=notes)


def pricing(compute: ComputeSpec) -> Pricing:
    """The times of computations on a device. A slowdown of a whole run acts when it runs."""
    own = compute.model_copy(update={"slowdown": 1})
    return lambda flops, memory_bytes: own.time_ns(flops, memory_bytes, _ITEM_BYTES)


def _no_time(flops: int, memory_bytes: int) -> int:
    return 0


def _of_pytorch(path: Path, price: Pricing) -> tuple[Graph, tuple[str, ...]]:
    """A file of the observer, or a profile, which may have the observer's file beside it."""
    document = read_document(path)
    if "traceEvents" not in document:
        return read_observer(path, price, document)
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    beside = [path.with_name(f"{stem}.et.json{packed}") for packed in ("", ".gz")]
    observed = next((each for each in beside if each.exists()), None)
    calls = {} if observed is None else ObserverFile(observed).calls_by_function()
    return read_kineto(document, path, calls)


def _is_json(path: Path) -> bool:
    named = path.name.removesuffix(".gz").endswith(".json")
    return named or foreign_file(read_bytes(path)) is KINETO


def _is_text(data: bytes) -> bool:
    """Whether a file begins with lines of text, as no Chakra trace does."""
    head = data[:_LOOKED_AT]
    return bool(head) and all(byte >= 32 or byte in b"\t\n\r" for byte in head)


def _of_traces(
    paths: Mapping[int, Path], compute: ComputeSpec | None, groups: Path | None, *, complete: bool
) -> TraceSet:
    graphs, notes = [], []
    for rank, path in paths.items():
        trace, changed = import_trace(path)
        modelled = compute is not None and compute.device != "real"
        price = pricing(compute) if modelled and compute is not None else None
        world = len(paths) if complete else None
        try:
            graphs.append(from_trace(trace, _groups(trace, world, groups), price))
        except ChakraError:
            raise
        except ValueError as error:
            raise ChakraError(path, None, str(error)) from None
        device = compute.device if compute is not None and modelled else "none"
        notes += [(rank, note) for note in (*changed, *not_as_they_say(trace, device))]
    said = by_ranks(notes, len(paths)) if complete else tuple(note for _, note in notes)
    return TraceSet(tuple(graphs), complete, said)


def _groups(trace: Trace, world: int | None, file: Path | None) -> Groups:
    """The groups of a trace: a file's, else its own. `world` None: as many ranks as it knows of.
    Raises ValueError, ChakraError."""
    named = groups_of_pytorch(trace)
    carried = any(attribute.name == "world_size" for attribute in trace.attributes)
    if carried and file is None:
        groups = trace_groups(trace)
    else:
        members = {} if file is None else _members(file, world)
        ranks = [rank for each in (*members.values(), *named.values()) for rank in each]
        groups = Groups(world or max(ranks, default=0) + 1, members)
    for name, ranks_of_group in named.items():
        groups.name(name, ranks_of_group or tuple(range(groups.world)))
    return groups


def _members(file: Path, world: int | None) -> dict[int, Sequence[int]]:
    found = read_groups(file, world or MOST_RANKS)
    return {group.id: group.ranks for group in found.values()}
