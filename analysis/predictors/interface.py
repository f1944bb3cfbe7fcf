"""What every predictor takes and gives: a setting, a collective call, a duration in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from topologies.fabric import Fabric
from topologies.routing import Routes

KINDS = (
    "all_reduce",
    "all_to_all",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "send_recv",
    "incast",
    "permutation",
)
ENTRY_POINT_GROUP = "groundwire.predictors"

# Imported on demand: flow needs scipy's sparse solver, ns3 and astra much more.
_BUILT_IN = {
    "alpha-beta": "analysis.predictors.alpha_beta:AlphaBeta",
    "textbook": "analysis.predictors.textbook:Textbook",
    "flow": "analysis.predictors.flow:Flow",
    "flow-ideal-ecmp": "analysis.predictors.flow:FlowIdealEcmp",
    "astra-analytical": "analysis.predictors.astra:AstraAnalytical",
    "ns3": "analysis.predictors.ns3:Ns3",
    "external": "analysis.predictors.external:External",
}


class PredictorError(ValueError):
    """A predictor that does not exist, cannot run here, or cannot predict the call it was given."""


@dataclass(frozen=True, slots=True)
class Transport:
    """What the hosts' TCP is set to. Buffers are in bytes; they bound a connection's window."""

    congestion_control: str = "cubic"
    rcvbuf_bytes: int = 16_000_000
    sndbuf_bytes: int = 16_000_000


@dataclass(frozen=True, eq=False)
class Setting:
    """Where collectives run: fabric, routes, the host of each rank, transport and seed.

    `hosts[rank]` is the name of the host that runs `rank`. `ports` has, for a pair of ranks (lower
    first), the TCP ports of their connection in the same order, where a run recorded them: then
    their path through ECMP routers is known, else it is drawn from the seed. Settings are compared
    by identity.
    """

    fabric: Fabric
    routes: Routes
    hosts: tuple[str, ...]
    transport: Transport = field(default_factory=Transport)
    seed: int = 1
    ports: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rank, host in enumerate(self.hosts):
            if host not in self.fabric.by_name:
                raise PredictorError(f"rank {rank} is placed on {host!r}, which the fabric lacks")


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One collective, by torch's name for it.

    `size_bytes` follows nccl-tests: the total array for all_gather, reduce_scatter, gather and
    scatter (each rank's shard is size/n); the buffer of one rank for all_reduce, all_to_all,
    broadcast and reduce; the message for send_recv (root to `peer`), permutation (member r to r
    + `shift`, or by the setting's seed when None) and incast (the `degree` members after the
    root to the root; all others when None). `ranks` are the members in group order; `root` and
    `peer` are positions in them, as in ranks/NNN.jsonl. `name` is its id in a run, for
    predictors that have results by name; calls that differ in it only are equal. Raises
    PredictorError when these do not fit together.
    """

    kind: str
    size_bytes: int
    ranks: tuple[int, ...]
    element_bytes: int = 4
    root: int = 0
    degree: int | None = None
    peer: int | None = None
    shift: int | None = None
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PredictorError(f"unknown collective {self.kind!r}: known are {', '.join(KINDS)}")
        if self.size_bytes < 0 or self.element_bytes < 1:
            raise PredictorError(f"{self.kind}: size_bytes >= 0 and element_bytes >= 1 expected")
        if not self.ranks or len(set(self.ranks)) != len(self.ranks):
            raise PredictorError(f"{self.kind}: ranks must be distinct, found {self.ranks}")
        last = len(self.ranks) - 1
        if not 0 <= self.root <= last:
            raise PredictorError(f"{self.kind}: root {self.root} is not in 0..{last}")
        if self.peer is not None and not 0 <= self.peer <= last:
            raise PredictorError(f"{self.kind}: peer {self.peer} is not in 0..{last}")
        if self.degree is not None and not 1 <= self.degree <= max(1, last):
            raise PredictorError(f"{self.kind}: degree {self.degree} is not in 1..{last}")

    @property
    def world(self) -> int:
        return len(self.ranks)


@runtime_checkable
class Predictor(Protocol):
    """Duration of a collective: from its last rank's posting it to its last rank's completion."""

    name: str
    ignores: str

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds, not rounded, as fits take small steps. Raises PredictorError when this
        predictor has no answer for the call."""
        ...


def available_predictors() -> dict[str, str]:
    """Name -> "module:attribute" of every predictor, built in or installed as an entry point."""
    plugins = {p.name: p.value for p in entry_points(group=ENTRY_POINT_GROUP)}
    return plugins | _BUILT_IN


def load_predictor(name: str, parameters: Mapping[str, Any] | None = None) -> Predictor:
    """The predictor `name`, constructed with `parameters` as keyword arguments.

    Built in predictors win over entry points (group "groundwire.predictors") of the same name.
    Raises PredictorError when the name is unknown (with what exists), when a needed package is
    missing, or when the predictor does not know one of the parameters.
    """
    known = available_predictors()
    if name not in known:
        raise PredictorError(
            f"unknown predictor {name!r}: available are {', '.join(sorted(known))}"
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
