"""The meaning of a spec's `collectives` section: the schedule of each collective of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from collectives.algorithms import algorithm, algorithms
from collectives.algorithms.aggregation import Aggregation
from collectives.algorithms.base import Algorithm, DoesNotFit, Refused
from collectives.algorithms.nccl import Nccl
from collectives.chunking import Chunking, DimensionOrder, cut
from collectives.dimensions import part_of_grid
from collectives.garbage import uncollected
from collectives.in_network.of_run import aggregation, aggregation_of_run, of_group
from collectives.kinds import Kind, Shape
from collectives.nccl.of_run import tuner_of, with_servers
from collectives.nccl.schedule import nccl_schedule
from collectives.nccl.switches import switches_of
from collectives.program import PROGRAM_KINDS
from collectives.schedule.gloo import GLOO
from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Schedule
from collectives.start_order import CollectiveOrder
from collectives.turns import WithinDimension
from collectives.verify import verify
from topologies.spec.collectives_section import CollectivesOfRun, CollectivesSection
from topologies.spec.fabric_section import (
    DragonflyPlusSpec,
    DragonflySpec,
    FabricSpec,
    FatTreeSpec,
    HierarchicalSpec,
    LeafSpineSpec,
    MeshSpec,
    RailsSpec,
    ServersSection,
    TorusSpec,
)
from topologies.spec.sections import Sections
from topologies.units import SizeBytes, format_time

SCHEDULED = ("chunks", "smallest_chunk", "dimension_order", "priority")
"""Keys of a kind's entry that are no options of its algorithm."""

AGREEMENT: Mapping[str, Any] = {"algorithm": "tree", "chunks": 1, "dimension_order": "fixed"}
"""How ranks agree on the order of collectives (`start_order`): the maximum of an int64."""

_SIZE: TypeAdapter[int] = TypeAdapter(SizeBytes)


def schedule_of(
    section: CollectivesSection,
    shape: Shape,
    entry: Mapping[str, Any] | None = None,
    members: Sequence[int] | None = None,
) -> Schedule:
    """A collective's schedule: of a program, or Gloo's own.

    `entry` is an operation's own, which goes before that of its kind. `members` are the ranks of
    its group, in group order; None are all. A group that is a part of the section's grid of
    dimensions has that part's. Raises DoesNotFit, and MscclError for a wrong MSCCL file. The
    programs of what is returned have been verified.
    """
    request = request_of(section, shape, entry, members)
    return GLOO if request is None else _planned(request)


Planner = Callable[
    [CollectivesSection, Shape, Mapping[str, Any] | None, Sequence[int] | None], Schedule
]
"""Like `schedule_of`."""


class Request(NamedTuple):
    """All that the schedule of a collective depends on. The section and its entry are JSON, so that
    what is asked for again is the same text."""

    section: str
    shape: Shape
    entry: str
    group: tuple[int, ...]


def request_of(
    section: CollectivesSection,
    shape: Shape,
    entry: Mapping[str, Any] | None = None,
    members: Sequence[int] | None = None,
) -> Request | None:
    """The request that `schedule_of` has for `plan`; None for what is Gloo's own."""
    found = entry or entry_of(section, shape.kind)
    if not found or shape.kind not in PROGRAM_KINDS or shape.ranks < 2:
        return None
    if members is not None and section.dimensions:
        part = part_of_grid(tuple(members), section.dimensions)
        if part is not None:
            section = section.model_copy(update={"dimensions": part})
    group = tuple(range(shape.ranks) if members is None else members)
    section = of_group(section, group)
    settings = section.model_dump_json(by_alias=True)
    return Request(settings, shape, json.dumps(found, sort_keys=True), _nccls(section, group))


def by_hosts(
    section: CollectivesSection, shape: Shape, members: Sequence[int]
) -> tuple[Mapping[str, Any], ProgramSchedule]:
    """The entry of a collective that switches do not do, and its schedule: the spec's
    `fall_back`, or a tree for kinds that this has no program for. Raises DoesNotFit."""
    assert isinstance(section, CollectivesOfRun) and section.aggregation is not None
    entry: Mapping[str, Any] = section.aggregation.section.fall_back
    try:
        found = schedule_of(section, shape, entry, members)
    except DoesNotFit:
        entry = {"algorithm": "tree"}
        found = schedule_of(section, shape, entry, members)
    assert isinstance(found, ProgramSchedule), "a kind that switches have programs for"
    return entry, found


def _nccls(section: CollectivesSection, group: tuple[int, ...]) -> tuple[int, ...]:
    """The members of a group where they count: NCCL asks which server each is on."""
    return group if section.backend == "nccl" else ()


def settings_of(spec: Sections) -> CollectivesOfRun:
    """The section of a spec, with the fabric's dimensions where it gives none, the tree of its
    switches where these aggregate, and its servers where NCCL runs. Raises DoesNotFit for what NCCL
    refuses."""
    section = spec.collectives
    dimensions = section.dimensions
    if dimensions is None:
        found = fabric_dimensions(spec.fabric)
        dimensions = found if prod(found) == spec.workload.ranks else None
    given = {name: getattr(section, name) for name in CollectivesSection.model_fields}
    given |= {"dimensions": dimensions, "aggregation": aggregation_of_run(spec)}
    return with_servers(spec, CollectivesOfRun.model_construct(**given))


def fabric_dimensions(fabric: FabricSpec) -> tuple[int, ...]:
    """The sizes of a fabric's dimensions, the innermost first; empty for those that have none."""
    if isinstance(fabric, ServersSection) and fabric.gpus_per_host > 1:
        around = _host_dimensions(fabric) or (fabric.host_count,)
        return fabric.gpus_per_host, *around
    return _host_dimensions(fabric)


def _host_dimensions(fabric: FabricSpec) -> tuple[int, ...]:
    match fabric:
        case HierarchicalSpec():
            return fabric.hosts_per_group, fabric.groups
        case RailsSpec():
            return fabric.hosts_per_server, fabric.servers
        case LeafSpineSpec():
            return fabric.hosts_per_leaf, fabric.leaves
        case TorusSpec() | MeshSpec():
            return tuple(reversed(fabric.dims))
        case DragonflySpec():
            return fabric.hosts_per_router, fabric.routers_per_group, fabric.groups
        case DragonflyPlusSpec():
            return fabric.hosts_per_leaf, fabric.leaves_per_group, fabric.groups
        case FatTreeSpec():
            return fabric.k // 2, fabric.k // 2, fabric.k
        case _:
            return ()


def algorithm_of(section: CollectivesSection, entry: Mapping[str, Any], ranks: int) -> Algorithm:
    """The algorithm of an entry for a group of so many ranks, with the section's dimensions where
    it needs some. Raises DoesNotFit."""
    options = {key: value for key, value in entry.items() if key not in (*SCHEDULED, "algorithm")}
    if entry.get("algorithm") == Aggregation.name:
        return aggregation(section, options, ranks)
    name = entry.get("algorithm")
    if not isinstance(name, str):
        raise DoesNotFit("algorithm", repr(name), ", ".join(algorithms()))
    known = algorithms().get(name)
    takes = known is not None and "dimensions" in known.__dataclass_fields__
    if takes and "dimensions" not in options and section.dimensions:
        options["dimensions"] = section.dimensions
    return algorithm(name, **options)


def chunking_of(section: CollectivesSection, entry: Mapping[str, Any]) -> Chunking:
    """The chunking of an entry: its own keys before the section's. Raises DoesNotFit."""
    chunks = entry.get("chunks", section.chunks)
    if not isinstance(chunks, int) or isinstance(chunks, bool):
        raise DoesNotFit("chunks", repr(chunks), "1 and more")
    try:
        smallest = _SIZE.validate_python(entry.get("smallest_chunk", section.smallest_chunk_bytes))
    except ValidationError:
        found = repr(entry["smallest_chunk"])
        raise DoesNotFit("smallest_chunk", found, "a size such as 1KB") from None
    order = entry.get("dimension_order", section.dimension_order)
    if order not in list(DimensionOrder):
        raise DoesNotFit("dimension_order", repr(order), ", ".join(DimensionOrder))
    priority = entry.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise DoesNotFit("priority", repr(priority), "an integer")
    return Chunking(
        chunks,
        smallest,
        section.in_flight,
        DimensionOrder(order),
        section.dimension_rates,
        section.active_per_dimension,
        WithinDimension(section.within_dimension),
        section.endpoint_delay_ns,
        CollectiveOrder(section.order),
        priority,
    )


@lru_cache
def agreement_of(ranks: int, endpoint_delay_ns: int) -> ProgramSchedule:
    """How ranks agree on the order of a collective: an all-reduce of 8 bytes, by `AGREEMENT`."""
    section = CollectivesSection.model_validate({"endpoint_delay": format_time(endpoint_delay_ns)})
    found = schedule_of(section, Shape(Kind.ALL_REDUCE, 8, ranks, 8), AGREEMENT)
    assert isinstance(found, ProgramSchedule)
    return found


def entry_of(section: CollectivesSection, kind: Kind) -> Mapping[str, Any]:
    """The section's entry of a kind; empty when Gloo's own runs it."""
    if section.backend == "gloo" or kind not in PROGRAM_KINDS:
        return {}
    entry: Mapping[str, Any] = getattr(section, kind)
    if not entry and section.backend == "nccl":
        return {"algorithm": Nccl.name}
    return entry


@uncollected()
def plan(request: Request) -> ProgramSchedule:
    """A schedule, made and proved right. Raises what `schedule_of` raises."""
    settings = CollectivesOfRun.model_validate_json(request.section)
    shape, wanted = request.shape, json.loads(request.entry)
    try:
        if wanted.get("algorithm") == Nccl.name:
            chunking = chunking_of(settings, wanted)
            tuner, switches = tuner_of(settings, request.group), switches_of(settings)
            found = nccl_schedule(tuner, shape, chunking, switches, settings.launch_ns)
        else:
            found = _plan(settings, shape, wanted)
    except Refused:
        of_run = settings.aggregation
        if of_run is None or of_run.section.when_full != "fall-back":
            raise
        wanted = of_run.section.fall_back
        found = _plan(settings, shape, wanted)
    for program in {id(chunk.program): chunk.program for chunk in found.chunks}.values():
        verify(program)
    return found


_planned = lru_cache(maxsize=256)(plan)


def _plan(settings: CollectivesSection, shape: Shape, entry: Mapping[str, Any]) -> ProgramSchedule:
    return cut(shape, algorithm_of(settings, entry, shape.ranks), chunking_of(settings, entry))
