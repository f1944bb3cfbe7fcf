"""The sections of a spec side by side, each valid by itself."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator

from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.fabric_section import FabricSpec, GraphSpec, Integer
from topologies.spec.queue_section import SpecSection, marks
from topologies.spec.run_sections import (
    CaptureSpec,
    CountersSpec,
    FaultSpec,
    TransportSpec,
    VirtualSpec,
)
from topologies.spec.workload_section import WorkloadSpec


def _check_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) is None:
        raise ValueError("expected up to 64 letters, digits, dots, - or _, as in a file's name")
    return name


def _parse_placement(value: object) -> str | dict[int, str]:
    expected = "expected linear, random, strided, or a host for every rank ({0: h3, 1: h0})"
    if value in ("linear", "random", "strided"):
        return str(value)
    if not isinstance(value, dict) or not value:
        raise ValueError(expected)
    for rank, host in value.items():
        if isinstance(rank, bool) or not isinstance(rank, int) or not isinstance(host, str):
            raise ValueError(expected)
    return dict(sorted(value.items()))


def _parse_scale(value: object) -> int | str:
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise ValueError("expected auto, or a whole number from 1 (unscaled) to 1000000")
    return value


class Sections(SpecSection):
    """All keys of a spec.

    `placement` is a policy's name or a host per rank. `scale` is `auto` or the factor by which the
    native kernel slows the target fabric down; the virtual kernel always runs at 1.
    """

    name: Annotated[str, AfterValidator(_check_name)]
    seed: Integer = Field(default=1, ge=0, lt=2**32)
    fabric: FabricSpec
    transport: TransportSpec = TransportSpec()
    placement: Annotated[str | dict[int, str], PlainValidator(_parse_placement)] = "linear"
    workload: WorkloadSpec
    collectives: CollectivesSection = CollectivesSection()
    compute: ComputeSpec = ComputeSpec()
    capture: CaptureSpec = CaptureSpec()
    predict: tuple[str, ...] = ("alpha-beta",)
    scale: Annotated[int | str, PlainValidator(_parse_scale)] = "auto"
    faults: tuple[FaultSpec, ...] = ()
    counters: CountersSpec = CountersSpec()
    virtual: VirtualSpec = VirtualSpec()

    @property
    def ecn(self) -> bool:
        """Whether TCP negotiates ECN: `transport.ecn`, else when dctcp or a queue needs it."""
        if self.transport.ecn is not None:
            return self.transport.ecn
        queues = [self.fabric.queue, *self.fabric.queues.values()]
        if isinstance(self.fabric, GraphSpec):
            queues += [link.queue for link in self.fabric.links if link.queue is not None]
        return self.transport.congestion_control == "dctcp" or any(marks(q) for q in queues)
