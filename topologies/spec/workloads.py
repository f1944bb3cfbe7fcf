"""Workloads: their registration, and what a spec says of each.

A workload is registered once, in `WORKLOADS`, by the name that a spec gives as `workload.kind`.
The entry says where its parts are, each as `module:name`. A part that is missing, or is not what
its room asks for, is an error when that room is imported.

Most workloads have two parts: their section, and the actions of a rank
(`workloads/models/step.py`). Ranks run actions, predictors follow them, exporters write them, a
guest gets memory for them. A section may instead say that it is a list of collectives (`listed`) or
a program of a user (`program`). A workload of another nature brings what its ranks run, its memory
and its graphs itself. Three names to know: `WORKLOADS`, `WorkloadParts` and `WorkloadSection`.
docs/howto/add-a-workload.md adds two.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeVar

from topologies.registration import IncompleteRegistration, named
from topologies.spec.errors import Problem
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_types import ITEM_BYTES, ElementType, GroupName

if TYPE_CHECKING:
    from topologies.spec.workload_section import CollectivesWorkload, CommandWorkload

T = TypeVar("T")

_RANKS_OF_ACTIONS = "workloads.execution.rank_work:STEPS"
_GUEST_OF_ACTIONS = "emulator.guest_work:STEPS"


class WorkloadSection(SpecSection, ABC):
    """The section `workload` of a spec, and what follows from it.

    `from_files`: what ranks do is in files of the run directory (`WorkloadParts.inputs`), and
    neither it nor their groups follow from the spec. `own_contents`: messages hold what the
    workload has made. `awaits_at_once`: a rank learns of a message's end when it comes, not when it
    waits for it.
    """

    from_files: ClassVar[bool] = False
    own_contents: ClassVar[bool] = False
    awaits_at_once: ClassVar[bool] = False

    if TYPE_CHECKING:  # each declares them itself: keys stand in its order

        @property
        def kind(self) -> str:
            """Its name."""

        @property
        def ranks(self) -> int:
            """How many ranks it has."""

        @property
        def iterations(self) -> int:
            """How often they do it."""

        @property
        def dtype(self) -> ElementType:
            """The type of the elements that they send, in those that have actions or are listed."""

    @property
    def item_bytes(self) -> int:
        """The bytes of an element."""
        return ITEM_BYTES[self.dtype]

    @property
    def program(self) -> CommandWorkload | None:
        """The program of a user that its ranks are; None where they are Groundwire's own."""
        return None

    @property
    def listed(self) -> CollectivesWorkload | None:
        """The list of collectives that it is, each of which begins when all are ready."""
        return None

    @property
    def ranks_on_host(self) -> int:
        """How many ranks share a host."""
        return 1

    @property
    def degrees(self) -> tuple[int, int, int] | None:
        """Degrees of model (or tensor) parallelism, of the pipeline and of data parallelism, where
        model-parallel ranks are numbered consecutively."""
        return None

    def groups_of_ranks(self) -> dict[GroupName, list[list[int]]]:
        """The groups of ranks of its collectives beside all ranks; each kind covers all ranks."""
        return {}

    @property
    def whole(self) -> str | None:
        """The purpose of the group of all ranks, where it has one: model, data or pipeline."""
        return None

    @property
    def reductions(self) -> tuple[str, ...] | None:
        """How its collectives reduce; None where it has none, or its groups are made as it runs."""
        return ("sum",)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that say what it does."""
        return ()

    @property
    def reads(self) -> str | None:
        """The place that its ranks read, where that is outside of the run directory."""
        return None

    def problems(self) -> Iterable[Problem]:
        """The mistakes in it that are told of whole specs."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadParts:
    """The places of a workload's parts, each as `module:name`.

    section: its keys, a WorkloadSection.
    actions: what a rank does in an iteration, a function of the section and the rank; None where it
        has none.
    ranks: what a rank of ours runs, a `workloads.execution.rank_work.RankWork`.
    guest: the memory that it takes, and how long it computes, a
        `workloads.models.guest_work.GuestWork`.
    graphs: the graphs of a spec, where they are not those of its actions or its list: a function of
        the spec.
    inputs: the files that ranks find in the run directory: a function of the spec.
    row: what it has in result.json, an `analysis.results.rows.ResultRow`.
    """

    section: str
    actions: str | None = None
    ranks: str = _RANKS_OF_ACTIONS
    guest: str = _GUEST_OF_ACTIONS
    graphs: str | None = None
    inputs: str | None = None
    row: str | None = None

    def __post_init__(self) -> None:
        if self.actions is None:
            for part, default in (("ranks", _RANKS_OF_ACTIONS), ("guest", _GUEST_OF_ACTIONS)):
                if getattr(self, part) == default:
                    raise IncompleteRegistration(
                        f"{self.section}: found neither actions nor {part}"
                    )


WORKLOADS: Mapping[str, WorkloadParts] = MappingProxyType(
    {
        "collectives": WorkloadParts(
            section="topologies.spec.workload_section:CollectivesWorkload",
            ranks="workloads.execution.benchmark:PART",
            guest="emulator.guest_work:LISTED",
        ),
        "dlrm": WorkloadParts(
            section="topologies.spec.workload_section:DlrmWorkload",
            actions="workloads.models.dlrm:actions",
        ),
        "training": WorkloadParts(
            section="topologies.spec.workload_section:TrainingWorkload",
            actions="workloads.models.transformer:actions",
        ),
        "layers": WorkloadParts(
            section="topologies.spec.layers_section:LayersWorkload",
            actions="workloads.models.layer_table:layer_steps",
        ),
        "partitioned_inference": WorkloadParts(
            section="topologies.spec.partition.section:PartitionedInferenceWorkload",
            actions="workloads.models.partition.room:actions",
            ranks="workloads.execution.inference:PART",
            inputs="workloads.models.partition.room:inputs",
            row="analysis.results.partition:PART",
        ),
        "flows": WorkloadParts(
            section="topologies.spec.jobs.flows:FlowsWorkload",
            actions="workloads.models.flow_sizes:flow_steps",
        ),
        "kv_cache": WorkloadParts(
            section="topologies.spec.kv_cache_section:KvCacheWorkload",
            actions="workloads.models.kv_cache:kv_cache_steps",
            row="analysis.results.kv_cache:PART",
        ),
        "ingest": WorkloadParts(
            section="topologies.spec.ingest_section:IngestWorkload",
            actions="workloads.models.ingest:ingest_steps",
            row="analysis.results.ingest:PART",
        ),
        "chakra": WorkloadParts(
            section="topologies.spec.workload_section:ChakraWorkload",
            ranks="workloads.execution.chakra_replay:PART",
            guest="emulator.guest_work:REPLAYED",
            graphs="analysis.chakra.sources.replayed:graphs",
            inputs="analysis.exporters.replay:inputs",
        ),
        "command": WorkloadParts(
            section="topologies.spec.workload_section:CommandWorkload",
            ranks="workloads.execution.rank_work:PROGRAMS",
            guest="emulator.guest_work:PROGRAMS",
        ),
    }
)
"""The registration of workloads, by kind."""


def named_parts(part: str, declared: type[T]) -> Mapping[str, T]:
    """A part of all workloads that have it, by kind. Raises IncompleteRegistration."""
    given = {kind: getattr(parts, part) for kind, parts in WORKLOADS.items()}
    return named({kind: name for kind, name in given.items() if name is not None}, declared)
