"""The setting that collectives run in, and predictors of one collective by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from analysis.predict.carrier import Carrier
from collectives.call import CollectiveCall, CollectiveError
from collectives.groups import groups_of, selectors_of_groups
from topologies.fabrics.copies import CopyPaths
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import Routes
from topologies.spec.errors import Problem, suggestion
from topologies.spec.host_section import HostSpec
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec
from topologies.spec.transports.connections import ONE, Connections, connection_name

ENTRY_POINT_GROUP = "groundwire.predictors"

# Imported on demand: ns3 and astra take long to import.
_BUILT_IN = {
    "alpha-beta": "analysis.predict.models.alpha_beta:AlphaBeta",
    "textbook": "analysis.predict.models.textbook:Textbook",
    "flow": "analysis.predict.models.flow:Flow",
    "packet": "analysis.predict.models.packet:Packet",
    "packet-skipping": "analysis.predict.models.packet_skipping:PacketSkipping",
    "flow-ideal-ecmp": "analysis.predict.models.flow:FlowIdealEcmp",
    "astra-analytical": "analysis.predict.models.astra:AstraAnalytical",
    "ns3": "analysis.predict.models.ns3:Ns3",
    "external": "analysis.predict.models.external:External",
}


class PredictorError(CollectiveError):
    """A predictor that does not exist, cannot run here, or cannot predict the call it was given."""


@dataclass(frozen=True, slots=True)
class Transport:
    """The settings of the hosts' TCP. Buffers are in bytes; they bound a connection's window.

    With a `carrier`, messages of programs go between ends of another transport. `unknown` says why
    predictors do not know what goes through the sockets; None where they do. Messages of programs
    that go through sockets have so many `sockets` between two ranks, each of which has so many
    `flows`.
    """

    congestion_control: str = "cubic"
    rcvbuf_bytes: int = 16_000_000
    sndbuf_bytes: int = 16_000_000
    ecn: bool = False
    min_rto_ns: int = 200_000_000
    initial_window: int = 10
    carrier: Carrier | None = None
    unknown: str | None = None
    sockets: Connections = ONE
    flows: int = 1

    @classmethod
    def of(cls, spec: Sections) -> Transport:
        """The settings of a spec."""
        # Parts of transports are told of settings, which have this.
        from analysis.predict.transports import PREDICTED_TRANSPORTS

        tcp, predicted = spec.tcp, PREDICTED_TRANSPORTS[spec.transport.kind]
        return cls(
            tcp.congestion_control,
            tcp.rcvbuf_bytes,
            tcp.sndbuf_bytes,
            ecn=spec.ecn,
            min_rto_ns=tcp.min_rto_ns,
            initial_window=tcp.initial_window,
            carrier=predicted.carrier(spec),
            unknown=predicted.unknown(spec),
            sockets=spec.between_sockets,
            flows=spec.transport.flows_per_socket,
        )

    def carries(self, call: CollectiveCall) -> bool:
        """Whether a call's messages go by the carrier: those of programs between ranks."""
        return self.carrier is not None and call.schedule.by_carrier

    def between_ranks(self, call: CollectiveCall) -> Connections:
        """The connections of two ranks for a call's messages."""
        if not call.schedule.by_carrier:
            return ONE
        return self.sockets if self.carrier is None else self.carrier.between_ranks


@dataclass(frozen=True, eq=False)
class Setting:
    """The surroundings of collectives: fabric, routes, the host of each rank, transport and seed.

    `hosts[rank]` is the name of the host that runs `rank`. `ports` has, for a pair of ranks (lower
    first), the TCP ports of their connection in the same order, where a run recorded them: then
    their path through ECMP routers is known, else it is drawn from the seed. `group_ports` has the
    same of the connections of groups other than that of all ranks, by the name that the run gave
    the group and by `group_key` of its ranks. `carrier_ports` has
    the port that a carrier's ends of a pair of ranks both send from, `group_carrier_ports` that of
    groups other than that of all ranks, and of further connections (`connection_key`).
    `priorities` has, by rank, the DSCP class selector of what it sends by TCP, and by the carrier;
    empty: all 0. `group_priorities` has that of groups which have one of their own, by name and by
    `group_key`. `draw` numbers the draws of paths that are not known. `charged` has what hosts'
    processors are charged, where they are, and `held_by` which key of the spec has ports hold
    what they receive, where one does. `joined_ns` has, by rank, when it had made its connections,
    where a run told of it; `handshakes_us`, by rank and peer, the round trips that its end of their
    first connection measured when it was made, and of what it sent first (-1: not known), and
    `group_handshakes_us` those of other groups and of further connections, as `group_ports` has
    them.
    Settings are compared by identity.
    """

    fabric: Fabric
    routes: Routes
    hosts: tuple[str, ...]
    transport: Transport = field(default_factory=Transport)
    seed: int = 1
    ports: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    carrier_ports: Mapping[tuple[int, int], int] = field(default_factory=dict)
    priorities: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    group_ports: Mapping[str, Mapping[tuple[int, int], tuple[int, int]]] = field(
        default_factory=dict
    )
    group_priorities: Mapping[str, int] = field(default_factory=dict)
    group_carrier_ports: Mapping[str, Mapping[tuple[int, int], int]] = field(default_factory=dict)
    draw: int = 0
    charged: HostSpec | None = None
    held_by: str = ""
    joined_ns: Mapping[int, int] = field(default_factory=dict)
    handshakes_us: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    group_handshakes_us: Mapping[str, Mapping[tuple[int, int], tuple[int, int]]] = field(
        default_factory=dict
    )

    @cached_property
    def copies(self) -> CopyPaths | None:
        """The links of messages that are copies of memory; None where there are none."""
        return CopyPaths.of(self.fabric)

    def copies_of(self, call: CollectiveCall) -> bool:
        """Whether messages of a call are copies where its ranks are in one server: those of
        programs."""
        return self.copies is not None and call.schedule.algorithm is not None

    def copied_over(self, source: int, destination: int) -> tuple[int, int] | None:
        """The directed links of copies between two ranks, or switches that take part, which are
        numbered after them (`CopyPaths.between`)."""
        if self.copies is None:
            return None
        return self.copies.between(self._ends[source], self._ends[destination])

    def is_copied(self, source: int, destination: int) -> bool:
        """Whether programs' messages between them are copies."""
        return self.copied_over(source, destination) is not None

    @cached_property
    def _ends(self) -> tuple[str, ...]:
        return (*self.hosts, *(node.name for node in self.fabric.routers))

    def expect_packets(self, name: str) -> None:
        """Raises PredictorError where messages are copies, for a predictor that does not follow
        them."""
        if self.copies is not None:
            raise PredictorError(
                f"fabric.scale_up.kind: copies: {name} does not follow copies of memory; allowed: "
                "packet, packet-skipping, flow, alpha-beta"
            )

    def expect_free_hosts(self, name: str) -> None:
        """Raises PredictorError where hosts are charged for their ranks' traffic, for a predictor
        that does not follow that."""
        if self.charged is not None:
            raise PredictorError(
                f"host: {name} does not follow the time of processors "
                f"({self.charged.described()}); allowed: packet"
            )

    def __post_init__(self) -> None:
        for rank, host in enumerate(self.hosts):
            if host not in self.fabric.by_name:
                raise PredictorError(f"rank {rank} is placed on {host!r}, which the fabric lacks")


def group_key(ranks: Iterable[int]) -> str:
    """The name of a group of ranks where the run's name of it is not known."""
    return str(tuple(ranks))


def connection_key(group: str | None, number: int) -> str | None:
    """The name by which settings know connection `number` of each two ranks of a group (None: of
    all ranks)."""
    return connection_name(group or "", number) if number else group


def group_priorities_of(spec: Spec) -> dict[str, int]:
    """The DSCP class selectors of groups with one of their own, as `Setting` has them."""
    found = {}
    own = selectors_of_groups(spec)
    if own:
        for name, parts in groups_of(spec.workload).items():
            for index, part in enumerate(parts):
                if tuple(part) in own:
                    in_run = "default" if name == "world" else f"{name}.{index}"
                    found[in_run] = found[group_key(part)] = own[tuple(part)]
    return found


@runtime_checkable
class Predictor(Protocol):
    """A duration of a collective alone: from its last rank's posting it to its last rank's
    completion. One that follows more than that is a `Simulator` (`analysis.predict.simulator`)."""

    name: str
    ignores: str

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds, not rounded, as fits take small steps. Raises PredictorError when this
        predictor has no answer for the call."""
        ...


@cache
def available_predictors() -> Mapping[str, str]:
    """Name -> "module:attribute" of every predictor, built in or installed as an entry point."""
    plugins = {p.name: p.value for p in entry_points(group=ENTRY_POINT_GROUP)}
    return MappingProxyType(plugins | _BUILT_IN)


def unknown_predictors(spec: Sections) -> Iterator[Problem]:
    """The names under a spec's `predict` that are no predictor's. External results are not named
    in a spec: they come with a command."""
    if not spec.predict:
        return
    allowed = sorted(set(available_predictors()) - {"external"})
    for index, name in enumerate(spec.predict):
        if name not in allowed:
            expected = f"{suggestion(name, allowed)}allowed: {', '.join(allowed)}"
            yield Problem(("predict", index), name, expected)


CHECKS = (unknown_predictors,)
"""Every check of this room (`topologies.spec.checks`)."""


def load_predictor(name: str, parameters: Mapping[str, Any] | None = None) -> Predictor:
    """The predictor `name`, constructed with `parameters` as keyword arguments.

    Built in predictors win over entry points (group "groundwire.predictors") of the same name.
    Raises PredictorError when the name is unknown (with what exists), when a needed package is
    missing, or when the predictor does not know one of the parameters.
    """
    known = available_predictors()
    if name not in known:
        raise PredictorError(
            f"unknown predictor {name!r}: {suggestion(name, sorted(known))}"
            f"available are {', '.join(sorted(known))}"
        )
    if name == "external" and not parameters:
        raise PredictorError(
            "predictor 'external' needs another simulator's results: compare --external FORMAT=FILE"
        )
    module_name, _, attribute = known[name].partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise PredictorError(f"predictor {name!r} cannot be loaded: {error}") from error
    try:
        predictor: Predictor = factory(**(parameters or {}))
    except TypeError as error:
        raise PredictorError(f"predictor {name!r} refused its parameters: {error}") from error
    return predictor
