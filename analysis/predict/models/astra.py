"""ASTRA-sim's analytical model of a collective, set up as one would for the fabric."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.astra.errors import AstraRefused
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.files.system import COLLECTIVES, Implementation, SystemConfig
from analysis.astra.files.task import Task
from analysis.astra.simulate import BACKENDS, simulate
from analysis.astra.simulation import Simulation
from analysis.chakra.schema import CollectiveType, NodeType
from analysis.predict.engines.paths import Paths
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.parameters import RANGES, Parameters, Range
from collectives.call import CollectiveCall
from collectives.kinds import Kind

_TYPES: dict[str, CollectiveType] = {
    Kind.ALL_REDUCE: CollectiveType.ALL_REDUCE,
    Kind.ALL_GATHER: CollectiveType.ALL_GATHER,
    Kind.REDUCE_SCATTER: CollectiveType.REDUCE_SCATTER,
    Kind.ALL_TO_ALL: CollectiveType.ALL_TO_ALL,
}
_FITTED = ("hop_overhead_ns", "message_overhead_ns", "bandwidth_efficiency")
_SAMPLED_MEMBERS = 64
_GIBIBYTE_BITS = 8 * 2**30
# ASTRA-sim counts whole nanoseconds. Fits need finer steps, so they run on a faster clock.
_FIT_TICKS_PER_NS = 1000


class AstraAnalytical:
    """Built-in predictor "astra-analytical".

    Rings carry the reductions and all-gathers and every peer at once the all-to-all, as Gloo does
    it. The fabric becomes a Switch with the slowest rate and the mean latency on the ranks' paths;
    with backend unaware, a torus that the collective's ranks fill in order becomes a Ring per
    axis, innermost axis first, with ASTRA-sim's oneRing and oneDirect. `hop_overhead_ns` adds to
    the links' latency, `bandwidth_efficiency` scales their bandwidth and `message_overhead_ns` is
    the system layer's endpoint-delay, of which ASTRA-sim takes no less than 1 ns.
    """

    name = "astra-analytical"
    ignores = (
        "packet headers, rendezvous and acknowledgements, segments, TCP and congestion control, "
        "ECMP collisions and oversubscription, that an all-to-all uses all ports of a torus's "
        "host; collectives that ASTRA-sim does not have"
    )
    calibratable: Mapping[str, Range] = {name: RANGES[name] for name in _FITTED}

    def __init__(self, *, backend: str | None = None, splits: int = 1, **parameters: float) -> None:
        """`backend` is "unaware", "aware", or None for the one that suits the collective:

        aware for an all-to-all, whose messages share their host's port, unaware for a ring, which
        has one message on a link at a time. For a ring aware is the worse model: it stores each
        chunk in the Switch as a whole before it forwards it, which takes twice as long. `splits`
        is ASTRA-sim's preferred-dataset-splits. Raises PredictorError.
        """
        if backend is not None and backend not in BACKENDS:
            raise PredictorError(f"backend: found {backend!r}, allowed {', '.join(BACKENDS)}")
        if isinstance(splits, bool) or not isinstance(splits, int) or splits < 1:
            raise PredictorError(f"splits: found {splits!r}, allowed a whole number above 0")
        self.parameters = Parameters(**parameters)
        unused = [name for name in parameters if name not in _FITTED]
        if unused:
            raise PredictorError(f"astra-analytical has no {unused[0]}: {', '.join(_FITTED)}")
        self._backend = backend
        self._splits = splits
        self._paths: Paths | None = None

    def predict(self, setting: Setting, call: CollectiveCall) -> int:
        """ASTRA-sim's cycles, 1 ns each. Raises PredictorError for what ASTRA-sim has not."""
        return self._cycles(setting, call, ticks_per_ns=1)

    def duration_ns(self, setting: Setting, call: CollectiveCall) -> float:
        """As `predict`, to thousandths of a nanosecond, for fitting."""
        return self._cycles(setting, call, _FIT_TICKS_PER_NS) / _FIT_TICKS_PER_NS

    def simulation(self, setting: Setting, call: CollectiveCall) -> Simulation:
        """The simulation: ASTRA-sim's own inputs for this collective. Raises PredictorError."""
        return self._simulation(setting, call, ticks_per_ns=1)

    def _cycles(self, setting: Setting, call: CollectiveCall, ticks_per_ns: int) -> int:
        if call.world == 1 or call.size_bytes == 0:
            return 0
        try:
            results = simulate(self._simulation(setting, call, ticks_per_ns))
        except AstraRefused as error:
            raise PredictorError(str(error)) from None
        return max(result.cycles for result in results)

    def _simulation(self, setting: Setting, call: CollectiveCall, ticks_per_ns: int) -> Simulation:
        if call.kind not in _TYPES:
            raise PredictorError(f"ASTRA-sim has no {call.kind}: it has {', '.join(_TYPES)}")
        if call.schedule.uneven:
            raise PredictorError(f"ASTRA-sim has no {call.kind} of unequal parts")
        backend = self._backend or ("aware" if call.kind == Kind.ALL_TO_ALL else "unaware")
        # ASTRA-sim's aware backend takes networks of one dimension.
        torus = _torus(setting, call) if backend == "unaware" else None
        dimensions = torus or (self._switch(setting, call),)
        network = NetworkConfig(tuple(self._calibrated(d, ticks_per_ns) for d in dimensions))
        one = len(dimensions) > 1
        system = SystemConfig(
            {
                name: (Implementation("direct" if name == "all-to-all" else "ring", one),)
                for name in COLLECTIVES
            },
            preferred_dataset_splits=self._splits,
            endpoint_delay_ns=max(1, round(self.parameters.message_overhead_ns * ticks_per_ns)),
        )
        shard = call.kind == Kind.ALL_GATHER
        task = Task(
            id=0,
            type=NodeType.COMM_COLL,
            on_cpu=False,
            parents=frozenset(),
            runtime_ns=1,
            collective=_TYPES[call.kind],
            size_bytes=max(1, call.size_bytes // call.world) if shard else call.size_bytes,
        )
        return Simulation(network, system, [(task,)] * call.world, backend=backend)

    def _calibrated(self, dimension: Dimension, ticks_per_ns: int) -> Dimension:
        latency_ns = dimension.latency_ns + self.parameters.hop_overhead_ns
        return Dimension(
            dimension.topology,
            dimension.npus,
            dimension.bandwidth_gbps * self.parameters.bandwidth_efficiency / ticks_per_ns,
            max(0.0, latency_ns) * ticks_per_ns,
        )

    def _switch(self, setting: Setting, call: CollectiveCall) -> Dimension:
        """One switch between the ranks: two hops make the mean way between those that talk."""
        if self._paths is None or self._paths.setting is not setting:
            self._paths = Paths(setting)
        ranks = np.array(call.ranks, dtype=np.int64)
        positions = np.arange(call.world)
        if call.kind == Kind.ALL_TO_ALL:
            sampled = positions[:_SAMPLED_MEMBERS]
            source = np.repeat(sampled, call.world - 1)
            shift = np.tile(np.arange(1, call.world), len(sampled))
        else:
            source, shift = positions, np.ones_like(positions)
        paths = self._paths.follow(ranks[source], ranks[(source + shift) % call.world])
        # Rows end in the number of a link that does not exist.
        delay_ns = np.append(self._paths.delay_ns, 0.0)[paths].sum(axis=1)
        rate_bps = np.append(self._paths.rate_bps, np.inf)[paths].min(initial=np.inf)
        if not np.isfinite(rate_bps):
            raise PredictorError("the ranks share one host: there is no network between them")
        rate_gbps = float(rate_bps) / _GIBIBYTE_BITS
        return Dimension("Switch", call.world, rate_gbps, float(delay_ns.mean()) / 2)


def _torus(setting: Setting, call: CollectiveCall) -> tuple[Dimension, ...] | None:
    """A Ring per axis when the ranks fill a torus in the order of its hosts, None otherwise."""
    fabric = setting.fabric
    names = tuple(host.name for host in fabric.hosts)
    if fabric.kind != "torus" or tuple(setting.hosts[rank] for rank in call.ranks) != names:
        return None
    lengths = [1 + max(axis) for axis in zip(*(h.coordinates for h in fabric.hosts), strict=True)]
    dimensions = []
    stride = 1
    for length in reversed(lengths):
        # The hosts' last axis varies fastest, as ASTRA-sim's first dimension does.
        neighbour = names[stride]
        link = next(
            link for link in fabric.links_of[names[0]] if link.other(names[0]).node == neighbour
        )
        dimensions.append(
            Dimension("Ring", length, link.rate_bps / _GIBIBYTE_BITS, float(link.delay_ns))
        )
        stride *= length
    return tuple(dimensions)
