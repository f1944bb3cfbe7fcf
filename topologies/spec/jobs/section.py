"""The `jobs` section of a spec: several workloads that share the fabric."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from topologies.fabrics.placement import OPTIMIZE
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection, TrafficClassName
from topologies.spec.workload_section import WorkloadSpec
from topologies.units import TimeNs


def check_name(name: str) -> str:
    """A name that can be a file's. Raises ValueError."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) is None:
        raise ValueError("expected up to 64 letters, digits, dots, - or _, as in a file's name")
    return name


def parse_placement(value: object) -> str | dict[int, str]:
    """A policy's name, or a host for every rank. Raises ValueError."""
    policies = ("linear", "random", "strided", "model-stage-data", OPTIMIZE)
    expected = f"expected {', '.join(policies)}, or a host for every rank ({{0: h3, 1: h0}})"
    if value in policies:
        return str(value)
    if not isinstance(value, dict) or not value:
        raise ValueError(expected)
    for rank, host in value.items():
        if isinstance(rank, bool) or not isinstance(rank, int) or not isinstance(host, str):
            raise ValueError(expected)
    return dict(sorted(value.items()))


def _parse_own_placement(value: object) -> str | dict[int, str] | None:
    if value == OPTIMIZE:
        raise ValueError("expected another policy: hosts are searched for one workload alone")
    return None if value is None else parse_placement(value)


class JobSpec(SpecSection):
    """One of several workloads on a fabric.

    `placement`, `compute`, `collectives` and `class` are the spec's where they are left out. A
    policy places a job's ranks on hosts that no job before it has; a host for every rank can be one
    of another job's, too. `start` is when it begins, counted from when the ranks of all jobs are
    connected. `repeat` is how many times its iterations are run over; with 0 its ranks are
    connected, and then do nothing. `slots` is its quota where switches aggregate: what each of its
    trees has of every node's slots.
    """

    name: Annotated[str, AfterValidator(check_name)]
    workload: WorkloadSpec
    placement: Annotated[str | dict[int, str] | None, PlainValidator(_parse_own_placement)] = None
    compute: ComputeSpec | None = None
    collectives: CollectivesSection | None = None
    start_ns: TimeNs = Field(default=0, alias="start")
    traffic_class: TrafficClassName = Field(default=None, alias="class")
    repeat: Integer = Field(default=1, ge=0, le=1_000_000)
    slots: Annotated[Integer, Field(ge=1, le=4096)] | None = None

    @property
    def idle(self) -> bool:
        """Whether its ranks do nothing."""
        return self.repeat == 0

    @property
    def repeated(self) -> dict[str, Any]:
        """The keys of the workload that `repeat` changes."""
        if self.idle or self.workload.program is not None:
            return {}
        return {"iterations": self.workload.iterations * self.repeat}


class JobBeside(SpecSection):
    """Another job on the same switches that aggregate, in the spec of one of several jobs: its
    trees take slots, too. Those of jobs `ahead` are made before its own."""

    name: str
    workload: WorkloadSpec
    hosts: tuple[str, ...]
    slots: Annotated[Integer, Field(ge=1, le=4096)] | None = None
    ahead: bool
