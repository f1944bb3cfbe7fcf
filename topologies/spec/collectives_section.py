"""The `collectives` section of a spec: which algorithms run them, and how they are scheduled.

The algorithms and their options are known in the room `collectives`, which checks them
(`collectives.spec_checks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from topologies.spec.aggregation.section import AggregationSection
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection, TrafficClassName
from topologies.spec.transports.connections import SMALLEST_PART_BYTES, Connections
from topologies.units import SizeBytes, TimeNs

AlgorithmEntry = dict[str, Any]
"""`algorithm`, its options, and its own `chunks`, `smallest_chunk`, `dimension_order` and
`priority`."""


def _as_text(value: object) -> object:
    """A number as text: YAML reads `2.27` as one."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if number else value


def _as_texts(value: object) -> object:
    return (
        {name: _as_text(one) for name, one in value.items()} if isinstance(value, dict) else value
    )


class GroupClasses(SpecSection):
    """Classes of traffic by what a group of ranks is for; None is that of the whole spec. `model`
    is for tensor- and model-parallel groups, `pipeline` for the messages between stages, `data` for
    groups that reduce gradients."""

    model: TrafficClassName = None
    pipeline: TrafficClassName = None
    data: TrafficClassName = None


class CollectivesSection(SpecSection):
    """`backend` gloo leaves collectives to Gloo's own algorithms. With programs, kinds that have an
    entry run by that, the others by Gloo's own. With nccl, kinds that have none run as NCCL of this
    `version` would run them.

    `gpu` and `cpu` are those that NCCL would find in the servers; None stands for those of a
    fabric's `server`, else an H100 with Intel processors. `network` is the NICs' kind for NCCL: ib
    (InfiniBand or RoCE, with GPU direct RDMA) or socket, `net_latency` what their plugin tells NCCL
    of their latency. `launch` is what a GPU takes before the first message of a collective; None is
    NCCL's base latency. `env` has variables of NCCL, `tuner` is a CSV file with choices that go
    before NCCL's own.

    `in_flight` bounds the chunks under way at a rank (0: no bound), `order` says whose start first
    where they wait; `active_per_dimension` bounds those in one dimension. `dimensions` are sizes
    whose product is the ranks, the innermost first; None takes the fabric's. `endpoint_delay` is
    what a rank takes to inject each message. `classes` has collectives of one sort of group go
    before those of another at every port.
    """

    backend: Literal["gloo", "programs", "nccl"] = "gloo"
    version: Annotated[str, BeforeValidator(_as_text)] = "2.27"
    gpu: Literal["v100", "a100", "h100", "h200", "b200"] | None = None
    cpu: Literal["intel", "amd"] | None = None
    network: Literal["ib", "socket"] = "ib"
    net_latency_ns: TimeNs = Field(default=0, alias="net_latency")
    launch_ns: TimeNs | None = Field(default=None, alias="launch")
    env: Annotated[dict[str, str], BeforeValidator(_as_texts)] = Field(default_factory=dict)
    tuner: str | None = Field(default=None, min_length=1)
    all_reduce: AlgorithmEntry = Field(default_factory=dict)
    reduce_scatter: AlgorithmEntry = Field(default_factory=dict)
    all_gather: AlgorithmEntry = Field(default_factory=dict)
    all_to_all: AlgorithmEntry = Field(default_factory=dict)
    broadcast: AlgorithmEntry = Field(default_factory=dict)
    reduce: AlgorithmEntry = Field(default_factory=dict)
    chunks: Integer = Field(default=1, ge=1, le=65536)
    smallest_chunk_bytes: SizeBytes = Field(default=1, alias="smallest_chunk", ge=1)
    in_flight: Integer = Field(default=0, ge=0, le=4096)
    order: Literal["fifo", "lifo", "priority"] = "fifo"
    dimensions: tuple[Annotated[Integer, Field(ge=1)], ...] | None = None
    dimension_rates: tuple[Annotated[Integer, Field(ge=1)], ...] = ()
    dimension_order: Literal["fixed", "themis"] = "fixed"
    active_per_dimension: Integer = Field(default=0, ge=0, le=4096)
    within_dimension: Literal["fifo", "smallest-first"] = "fifo"
    endpoint_delay_ns: TimeNs = Field(default=0, alias="endpoint_delay")
    classes: GroupClasses = GroupClasses()

    def between_ranks(self, of_transport: Connections, queue_pairs: bool) -> Connections:
        """The connections of two ranks: those of a transport, or what NCCL's variables make of
        them. NCCL_IB_QPS_PER_CONNECTION is how many `queue_pairs` there are, and
        NCCL_IB_SPLIT_DATA_ON_QPS (0) whether each message goes by all of them (ncclIbIsend of
        src/transport/net_ib/p2p.cc). Sockets are NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD, and
        each message goes by all of them, in parts of at least 64 KiB (ncclNetSocketTest of
        src/transport/net_socket.cc). Wrong values, which are told elsewhere, count as none."""
        if self.backend != "nccl":
            return of_transport
        if not queue_pairs:
            threads, each = socket_threads(self.env)
            if threads * each <= 1:
                return of_transport
            return replace(
                of_transport, count=threads * each, splits=True, least_bytes=SMALLEST_PART_BYTES
            )
        count, splits = (_variable(self.env.get(name)) for name in QUEUE_PAIR_VARIABLES)
        if count is None and splits is None:
            return of_transport
        return replace(of_transport, count=count or of_transport.count, splits=bool(splits))


SOCKET_VARIABLES = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
"""NCCL's variables of how many sockets two ranks have."""

MOST_SOCKETS = 64
"""MAX_SOCKETS of NCCL (src/transport/net_socket.cc)."""

QUEUE_PAIR_VARIABLES = ("NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS")
"""NCCL's variables of how many queue pairs two ranks have, and whether a message takes all."""


def socket_threads(env: Mapping[str, str]) -> tuple[int, int]:
    """NCCL's threads and sockets a thread for each connection, 64 sockets at most. Without threads
    the main one has the one socket, as NCCL has it on NICs of no cloud that it knows
    (ncclNetSocketGetNsockNthread of src/transport/net_socket.cc)."""
    threads, each = (_variable(env.get(name)) for name in SOCKET_VARIABLES)
    threads = min(threads or 0, MOST_SOCKETS)
    each = 1 if each is None else each
    return threads, min(each, MOST_SOCKETS // threads) if threads else each


def _variable(text: str | None) -> int | None:
    return None if text is None or not text.isdecimal() else int(text)


class TreeOfHeads(SpecSection):
    """The tree of the `heads` of a part of the data, ranks of which each server has one: the
    participants in it, heads and switches, each with the one above (`ROOT`: none)."""

    heads: tuple[int, ...]
    parents: tuple[tuple[int, int], ...]


class TreeOfGroup(SpecSection):
    """The aggregation tree of a group of ranks (`topologies.aggregation_tree`): found from the
    fabric, in no spec. Where there is none, `reason` says why. `numbers` are those of the switches
    as `collectives.in_network.node` counts them, `places` those of all participants' nodes in the
    fabric. `slots` of each of its nodes are the group's; `fewest` is the switch that has no more
    for it.

    A group can have several trees, of which this is one `part` of `parts`. All of them know the
    same switches; the parent of one that is outside of a tree is
    `topologies.aggregation_tree.OUTSIDE`.

    With NCCL a participant may have several above it: `beside` are further edges, each a child and
    its parent, and `of_heads` the trees of CollNet's heads."""

    members: tuple[int, ...]
    switches: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    part: int = 0
    parts: int = 1
    slots: int = 0
    fewest: str = ""
    reason: str = ""
    beside: tuple[tuple[int, int], ...] = ()
    of_heads: tuple[TreeOfHeads, ...] = ()

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All edges, each a child and its parent."""
        above = ((child, parent) for child, parent in enumerate(self.parents) if parent >= 0)
        return (*above, *self.beside)


class AggregationOfRun(SpecSection):
    """The aggregation trees of a run's groups, and what its nodes can. In the units of switches
    that `pipelined` selects the latency is that of the first copy of a sequence."""

    section: AggregationSection
    trees: tuple[TreeOfGroup, ...] = ()
    pipelined: tuple[str, ...] = ()

    def of(self, members: Sequence[int]) -> tuple[TreeOfGroup, ...]:
        """The trees of a group; none for ranks that are no group of the workload."""
        wanted = tuple(members)
        return tuple(tree for tree in self.trees if tree.members == wanted)


class ServersOfRun(SpecSection):
    """The servers of a run, as NCCL sees them: found from the fabric, in no spec. `places` has the
    server and the GPU of each rank. `searched` are results of NCCL's search, as
    `collectives.nccl.of_run` writes them, so that ranks need not search. `no_collnet` is why
    switches of the network take no part; "" where they may."""

    places: tuple[tuple[int, int], ...]
    gpus_per_server: int
    nvlink_bps: int
    nic_bps: int
    gpus_per_switch: int = 1
    searched: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    no_collnet: str = ""


class CollectivesOfRun(CollectivesSection):
    """The section with what follows from the fabric of a run filled in."""

    aggregation: AggregationOfRun | None = None
    servers: ServersOfRun | None = None
