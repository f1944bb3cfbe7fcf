"""The sections of a spec side by side, each valid by itself."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from topologies.spec.aggregation.section import AggregationSection
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.fabric_section import FabricSpec, GraphSpec, Integer
from topologies.spec.host_section import HostSpec
from topologies.spec.jobs.section import JobBeside, JobSpec, check_name, parse_placement
from topologies.spec.queue_section import Classes, SpecSection, TrafficClassName, marks
from topologies.spec.run_sections import (
    CaptureSpec,
    CountersSpec,
    FaultSpec,
    TransportSpec,
    VirtualSpec,
)
from topologies.spec.transports.connections import ONE, Connections
from topologies.spec.transports.tcp.section import TcpTransport
from topologies.spec.workload_section import WorkloadSpec
from topologies.spec.workload_types import Payload
from topologies.units import TimeNs


def _parse_scale(value: object) -> int | str:
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise ValueError("expected auto, or a whole number from 1 (unscaled) to 1000000")
    return value


class Sections(SpecSection):
    """All keys of a spec.

    There is either a `workload` or `jobs`. With `payload: timing` all ranks of ours send the same
    memory, and nobody checks what arrives. `beside` is of the spec of one of several jobs, where
    switches aggregate. `placement` is a policy's name or a host per rank.
    `scale` is `auto` or the factor by which the native kernel slows the target fabric down; the
    virtual kernel always runs at 1.
    """

    name: Annotated[str, AfterValidator(check_name)]
    seed: Integer = Field(default=1, ge=0, lt=2**32)
    fabric: FabricSpec
    transport: TransportSpec = TcpTransport()
    placement: Annotated[str | dict[int, str], PlainValidator(parse_placement)] = "linear"
    only_workload: WorkloadSpec | None = Field(default=None, alias="workload")
    jobs: tuple[JobSpec, ...] = ()
    payload: Payload = "checked"
    traffic_class: TrafficClassName = Field(default=None, alias="class")
    collectives: CollectivesSection = CollectivesSection()
    aggregation: AggregationSection | None = None
    beside: tuple[JobBeside, ...] = ()
    compute: ComputeSpec = ComputeSpec()
    capture: CaptureSpec = CaptureSpec()
    predict: tuple[str, ...] = ()
    scale: Annotated[int | str, PlainValidator(_parse_scale)] = "auto"
    faults: tuple[FaultSpec, ...] = ()
    hang_after_ns: TimeNs | None = Field(default=None, alias="hang_after", gt=0)
    counters: CountersSpec = CountersSpec()
    virtual: VirtualSpec = VirtualSpec()
    host: HostSpec = HostSpec()

    @property
    def workload(self) -> WorkloadSpec:
        """The workload of the ranks. Raises ValueError for a spec of several jobs, each of which is
        a spec with a workload (`Spec.of_job`)."""
        if self.only_workload is None:
            names = ", ".join(job.name for job in self.jobs)
            raise ValueError(f"{self.name} has several jobs ({names}): expected one workload")
        return self.only_workload

    @model_validator(mode="after")
    def _predict_by_default(self) -> Self:
        """The most exact predictor, and closed forms."""
        if "predict" not in self.model_fields_set:
            self.__dict__["predict"] = ("packet", "alpha-beta")
        return self

    @model_validator(mode="after")
    def _nothing_to_capture(self) -> Self:
        """A simulated network has no packets."""
        if self.simulated and "points" not in self.capture.model_fields_set:
            self.__dict__["capture"] = self.capture.model_copy(update={"points": ()})
        return self

    @property
    def simulated(self) -> bool:
        """Whether what ranks exchange goes through the simulator, and not through the fabric."""
        return any(
            workload.program is not None and workload.program.simulated
            for workload in self.workloads
        )

    @property
    def workloads(self) -> tuple[WorkloadSpec, ...]:
        """The workload, or those of the jobs."""
        if self.only_workload is not None:
            return (self.only_workload,)
        return tuple(job.workload for job in self.jobs)

    @property
    def held_ns(self) -> int:
        """How long a port may hold received packets to hand them up together."""
        return max(self.virtual.receive_coalescing_ns, self.host.interrupt_moderation_ns)

    @property
    def held_by(self) -> tuple[str, str]:
        """The section and the key that say so."""
        if self.virtual.receive_coalescing_ns > self.host.interrupt_moderation_ns:
            return "virtual", "receive_coalescing"
        return "host", "interrupt_moderation"

    @property
    def ranks_by_job(self) -> dict[str, int]:
        """How many ranks each job has, by name; the only job has none."""
        return {job.name: job.workload.ranks for job in self.jobs} or {"": self.ranks}

    @property
    def ranks(self) -> int:
        """How many ranks there are, those of all jobs together."""
        return sum(workload.ranks for workload in self.workloads)

    @property
    def socket_priority(self) -> int:
        """The DSCP class selector of what the ranks' sockets send."""
        return self._priority(self.traffic_class)

    @property
    def rdma_priority(self) -> int:
        """The DSCP class selector of what the ranks' queue pairs send: that of `transport`, else of
        the sockets."""
        return self._priority(self.transport.own_class, self.traffic_class)

    def selector(self, name: str | int | None) -> int:
        """The DSCP class selector of a class; None is that of the whole spec."""
        return self._priority(name, self.traffic_class)

    def priorities(self, over_roce: bool) -> tuple[int, ...]:
        """By rank, of all jobs: the DSCP class selector of what its sockets send, or its
        queue pairs."""
        rdma = self.transport.own_class if over_roce else None
        found: list[int] = []
        for job in self.jobs:
            found += [self._priority(rdma, job.traffic_class, self.traffic_class)] * (
                job.workload.ranks
            )
        return tuple(found) or (self._priority(rdma, self.traffic_class),) * self.ranks

    def _priority(self, *names: str | int | None) -> int:
        """The class selector of the first name that is given."""
        name = next((each for each in names if each is not None), 0)
        if isinstance(name, int):
            return name
        assert isinstance(self.fabric.queue, Classes), "checked"
        return self.fabric.queue.classes[name].priority

    @property
    def between_ranks(self) -> Connections:
        """The connections of two ranks for messages of programs: NCCL's where its variables say
        so, else those of the transport. All jobs have as many."""
        own = self.jobs[0].collectives if self.jobs else None
        return (own or self.collectives).between_ranks(
            self.transport.between_ranks, self.transport.of_programs
        )

    @property
    def between_sockets(self) -> Connections:
        """The same of sockets: one where messages of programs go over another transport."""
        return ONE if self.transport.of_programs else self.between_ranks

    @property
    def transport_words(self) -> str:
        """The transport of the ranks' messages, in words."""
        return self.transport.words(self.ecn) + self.between_ranks.words

    @property
    def tcp(self) -> TcpTransport:
        """TCP as the hosts run it, beside another transport too."""
        return self.transport.tcp

    @property
    def ecn(self) -> bool:
        """Whether TCP negotiates ECN: `transport.ecn`, else when dctcp or a queue needs it."""
        if self.tcp.ecn is not None:
            return self.tcp.ecn
        queues = [self.fabric.queue, *self.fabric.queues.values()]
        if isinstance(self.fabric, GraphSpec):
            queues += [link.queue for link in self.fabric.links if link.queue is not None]
        return self.tcp.congestion_control == "dctcp" or any(marks(q) for q in queues)
