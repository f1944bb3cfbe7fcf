"""The lines of a run directory's files as typed values (docs/formats.md lists the formats)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """A line. Unknown keys are kept out of the way: a newer Groundwire may write more of them."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class RankRecord(Record):
    """The first line of ranks/NNN.jsonl."""

    event: Literal["rank"]
    rank: int = Field(ge=0)
    host: str
    address: str


class ConnectionRecord(Record):
    """The TCP connection of a group between this rank and a higher one; ports choose ECMP paths."""

    event: Literal["connection"]
    group: str
    peer: int
    port: int
    peer_port: int


class HandshakeRecord(Record):
    """Round trips of this rank's end of its connection with another, for a group's messages, as
    TCP measured them: of the handshake, and of what the rank that connects sends first."""

    event: Literal["handshake"]
    group: str = "default"
    peer: int
    handshake_us: int
    greeting_us: int | None


class QueuePairRecord(Record):
    """The queue pair of a group that this rank is connected to another's with, over RoCE. Numbers
    of packets begin at `start_psn` in what this rank sends, and at the other in what it gets."""

    event: Literal["queue_pair"]
    group: str = "default"
    peer: int
    local_qpn: int
    remote_qpn: int
    start_psn: int
    remote_start_psn: int
    local_address: str
    remote_address: str


class EndRecord(Record):
    """An end of a transport with another rank's, for a group's messages: the ports that it sends
    from by turns, how many packets it `sent`, and how many of these `again`."""

    event: Literal["end"]
    transport: str
    group: str
    peer: int
    ports: list[int]
    sent: int
    again: int


class IterationRecord(Record):
    """One iteration on one rank."""

    event: Literal["iteration"]
    index: int
    start_ns: int
    end_ns: int
    tokens: int | None = None
    """How many indices a virtual GPU's forward passes looked up in an embedding."""
    launched_ns: int | None = None
    """When the host had launched all of it on a virtual GPU."""
    launches: int | None = None
    """How many kernels and collectives the host had launched by then."""


class ComputeRecord(Record):
    """One modelled kernel on one rank, or `operations` of a program's torch, one after another."""

    event: Literal["compute"]
    name: str
    phase: str
    iteration: int
    start_ns: int
    end_ns: int
    flops: int = 0
    bytes: int = 0
    operations: int = 1
    by_trace: int | None = None
    """How many of the operations took the time of a trace; None where there is none."""


class CollectiveRecord(Record):
    """One collective on one rank: posted at `start_ns`, completed here at `end_ns`.

    `waited_ns` is how long the rank's main thread was blocked on it (exposed communication).
    `tag` counts the collectives of `group`, as Gloo's slots do; None for point-to-point messages.
    `known` is how many computations and collectives the rank had logged when it posted this one: it
    knew these to be over.
    """

    event: Literal["collective"]
    id: str
    kind: str
    phase: str
    group: str
    tag: int | None
    size_bytes: int
    iteration: int
    ranks: list[int] | None
    start_ns: int
    end_ns: int
    waited_ns: int
    known: int
    element_bytes: int = 4
    root: int = 0
    degree: int | None = None
    peer: int | None = None
    shift: int | None = None
    op: str = "sum"
    """How it reduces, by torch's name, where it does."""
    algorithm: str | None = None
    """None for Gloo's own as torch calls it."""
    chunks: int = 1
    program: dict[str, Any] | None = None
    """The spec's entry of it, by which it can be planned again; None for Gloo's own."""
    section: dict[str, Any] | None = None
    """The `collectives` section of a program that brought its own; None: the spec's."""
    slots: list[int] | None = None
    """The first of a program's tags, and how many there are."""
    fell_back: bool = False
    """Whether hosts did it, or ended it, as an aggregation node had died."""
    stream: int | None = None
    """The stream of a virtual GPU that it ran on; `posted_ns` is when the host posted it."""
    posted_ns: int | None = None
    number: int | None = None
    """Among what the host launched on a virtual GPU; `after` are launches on other streams that it
    waits for."""
    after: list[int] = Field(default_factory=list)
    payload_bytes: int | None = None
    """The size of the whole message, where `size_bytes` of it were sent."""
    uneven: bool = False
    """Whether ranks send each other unequal parts, so that the size does not say who sends what."""
    parts_bytes: list[int] | None = None
    """The bytes that this rank sends to each member then, by their order."""
    messages: list[tuple[int, int, int]] | None = None
    """The messages of an exchange: (source, destination, bytes), by positions in its ranks."""
    sends: list[tuple[int, int, int, int]] | None = None
    """This rank's messages in a collective that was found in captures: destination, slot, number of
    the first one between the two, and how many."""
    unpredicted: str | None = None
    """Why no predictor knows what it sends."""
    awaited: bool = False
    """Whether it ends where the rank waited for it, as its end is not told."""
    waits: list[tuple[int, int]] = Field(default_factory=list)
    """From when to when the main thread of a program's rank was blocked on it."""


class ChunkRecord(Record):
    """A chunk of a collective that ran as a program, on one rank; phases are [name, start, end]."""

    event: Literal["chunk"]
    id: str
    group: str
    chunk: int
    start_ns: int
    end_ns: int
    phases: list[tuple[str, int, int]]


class CheckRecord(Record):
    """A collective's numbers were verified on this rank."""

    event: Literal["check"]
    id: str
    ok: bool


class GroupRecord(Record):
    """A process group of a program: its members, and the dimension of a device mesh that it is."""

    event: Literal["group"]
    name: str
    ranks: list[int]
    mesh: str | None


class UnfinishedRecord(Record):
    """A collective or message of a program that this rank did not see the end of; with a `reason`,
    torch refused it."""

    event: Literal["unfinished"]
    id: str
    kind: str
    group: str
    tag: int | None
    ranks: list[int] | None
    iteration: int
    reason: str | None


class UnseenRecord(Record):
    """A group's count tells of `operations` that were posted where no observer sees them, in one of
    these iterations."""

    event: Literal["unseen"]
    group: str
    operations: int
    iterations: list[int]


class CapturedRecord(Record):
    """The bytes that captures show between ranks. `gloo_bytes` are in the streams of Gloo's
    connections, and where ranks told of collectives in all connections that these told of.
    `row_bytes` of them are of messages that a row has. `other_bytes` are those of other
    connections, by the port that was connected to. `named` rows have the names of what XLA
    compiled."""

    event: Literal["captured"]
    gloo_bytes: int
    row_bytes: int
    other_bytes: dict[str, int]
    named: int


class ObserverRecord(Record):
    """A program's rank has been observed: whose torch told of its collectives."""

    event: Literal["observer"]
    torch: str
    joined_ns: int | None = None
    """When it had its default group, and so all connections of that."""


class SocketRecord(Record):
    """A connection between hosts that several ranks share. The rank at its other end has one of the
    same ports."""

    event: Literal["socket"]
    group: str = "default"
    port: int
    peer_address: str
    peer_port: int


class GpuRecord(Record):
    """A virtual GPU of a rank: its memory, the most that was allocated and reserved of it, and for
    each operator how many kernels there were, their nanoseconds, FLOP and bytes."""

    event: Literal["gpu"]
    device: int
    contents: Literal["small", "full"]
    memory_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    kernels: dict[str, tuple[int, int, int, int]]


class NoteRecord(Record):
    """The trouble of an observer, in words."""

    event: Literal["note"]
    text: str


class StepRecord(Record):
    """An optimizer's step of a rank that may be killed: by which of its lives, and its number
    there."""

    event: Literal["step"]
    life: int
    index: int
    start_ns: int
    end_ns: int


class LifeRecord(Record):
    """A rank has been started again: when its Python began."""

    event: Literal["life"]
    life: int
    start_ns: int


RankEvent = Annotated[
    RankRecord
    | ConnectionRecord
    | HandshakeRecord
    | QueuePairRecord
    | EndRecord
    | IterationRecord
    | ComputeRecord
    | CollectiveRecord
    | ChunkRecord
    | CheckRecord
    | GroupRecord
    | UnfinishedRecord
    | UnseenRecord
    | CapturedRecord
    | ObserverRecord
    | SocketRecord
    | GpuRecord
    | NoteRecord
    | StepRecord
    | LifeRecord,
    Field(discriminator="event"),
]


class ClassRecord(Record):
    """Counters of one class of traffic at a port. `name` is None where the port has no classes of
    its own."""

    name: str | None = Field(alias="class")
    priority: int
    bytes: int
    packets: int
    drops: int
    ecn_marks: int
    paused_ns: int
    max_backlog_bytes: int


class LinkRecord(Record):
    """Counters of one egress port over the whole run."""

    link: int
    port: str
    node: str
    peer: str
    rate_bps: int
    delay_ns: int
    bytes: int
    packets: int
    drops: int
    drops_by_reason: dict[str, int] = Field(default_factory=dict)
    ecn_marks: int = 0
    pauses: int = 0
    paused_ns: int = 0
    max_backlog_bytes: int | None = None
    backlog_byte_us: int | None = None
    """The integral of the backlog over time."""
    trims: int = 0
    """Packets that went on without their payload."""
    classes: list[ClassRecord] = Field(default_factory=list)
    """By class, where a port has several or sent others than class 0."""
    copies: int = 0
    copied_bytes: int = 0
    copying_ns: int = 0
    """The copies of memory that it carried beside packets, and how long it was busy with them."""


class VerdictRecord(Record):
    """Whether the measurement can be trusted, and why not."""

    valid: bool
    reasons: list[str] = Field(default_factory=list)
    of_time: list[str] = Field(default_factory=list)
    """Those of the reasons that threaten times alone."""
    samples: dict[str, float | int | None] = Field(default_factory=dict)
    """The measurements (`emulator.fidelity`); None: nothing was to be seen."""


class FailureRecord(Record):
    """A job that ended badly, at `at_ns` of the ranks' clock: which rank of it, and what is said of
    that."""

    at_ns: int
    rank: int
    said: str


class JobRecord(Record):
    """A job of a run of several."""

    name: str
    hosts: list[str]
    retransmits: int
    failed: FailureRecord | None = None


class RoceRecord(Record):
    """The counters of the queue pairs of all hosts: how often one went back and sent again, NAKs
    that came for a PSN that was not the expected one and for a receiver that was not ready,
    requests that came with a CE mark, congestion notifications, requests that were sent again
    alone, and those that came before their turn; how often an entropy value was to be skipped once,
    and assumed to be bad, and the probes of these; and how many of the requests that were sent
    again a port had trimmed."""

    retries: int
    sequence_naks: int
    not_ready_naks: int
    ce_packets: int = 0
    cnps_sent: int = 0
    cnps_received: int = 0
    resent_alone: int = 0
    early_requests: int = 0
    paths_skipped: int = 0
    paths_bad: int = 0
    probes: int = 0
    resent_trimmed: int = 0


class SimulatedRecord(Record):
    """The simulated network of a run: packets that left hosts and their passages of ports, segments
    that were sent again, and parts of collectives that came before what had been followed."""

    packets: int
    hops: int
    retransmits: int
    early_posts: int


class ChoicesRecord(Record):
    """For how many packets a node chose among next hops, and how often a flow went on by
    another."""

    packets: int
    moves: int


class LostNodeRecord(Record):
    """An aggregation node that died, at `at_ns` of the monotonic clock."""

    switch: str
    at_ns: int


class SpinnersRecord(Record):
    """Threads that waited for `kind` without end, in the virtual kernel: a file that was `ready`
    all the time, `memory`, or nobody knows what (`interrupted`). The first one's process and
    program."""

    kind: Literal["ready", "memory", "interrupted"]
    naps: int
    virtual_ns: int
    pid: int
    program: str


class FaultEventRecord(Record):
    """A fault that began or ended, at a time of the monotonic clock. `job` is the one that the spec
    names: the others are not touched."""

    at_ns: int
    link: int | None
    what: str
    began: bool
    job: str | None = None


class Environment(Record):
    """environment.json: the kernel that ran it, how, and what it noticed."""

    kernel: Literal["native", "virtual"]
    kernel_release: str
    versions: dict[str, str]
    scale: int
    seed: int
    hosts: list[str]
    """Host of each rank."""
    wall_s: float
    retransmits: int
    """The retransmissions of all hosts' TCP."""
    verdict: VerdictRecord
    captures: list[dict[str, Any]] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)
    jobs: list[JobRecord] = Field(default_factory=list)
    """The jobs of a run of several."""
    lost_nodes: list[LostNodeRecord] = Field(default_factory=list)
    """Aggregation nodes that died, where ranks went on by hosts."""
    unrouted: dict[str, int] = Field(default_factory=dict)
    """Node -> packets that it lost for lack of a route."""
    next_hops: dict[str, ChoicesRecord] = Field(default_factory=dict)
    """Node -> what it chose among next hops by more than a hash."""
    missed_faults: list[str] = Field(default_factory=list)
    """Faults of the spec that had not begun when the ranks were done."""
    faults: list[FaultEventRecord] = Field(default_factory=list)
    """The effects of faults, in order."""
    origin_ns: int | None = None
    """From when on the jobs' starts are counted."""
    spinners: list[SpinnersRecord] = Field(default_factory=list)
    """Threads that waited without letting time pass by themselves."""
    roce: RoceRecord | None = None
    """The counters of a run whose ranks send over RoCE."""
    simulated: SimulatedRecord | None = None
    """The simulated network of a run whose ranks have one."""

    @property
    def lateness_ns(self) -> int:
        """The lateness that the links' token buckets made up for, and so let through at once when
        idle."""
        found = self.details.get("lateness_ns", 0)
        return found if isinstance(found, int) else 0
