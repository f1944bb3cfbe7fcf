"""`placement: optimize`: hosts for ranks by what they send each other, and by a predictor.

The bytes from rank to rank in a run, on the fabric's routes, keep each directed link busy for some
time; ECMP's next hops share by their weights. A placement is better where the busiest link has
less to do, and of equals where the sum of squares over all links is less. A rank after the other,
most traffic first, takes the best host (greedy); then ranks swap hosts, with each other and with
hosts that are free, as long as that is better. So it begins at `linear` as well. A predictor
answers for what came of both and for the policies, and the one of the shortest iteration is
chosen; of equals the first, which is `linear`. Where a hash chooses among several paths, that is
the mean over some draws: one draw would favour placements that are lucky in it alone.

The links' load alone decides nothing: it does not know what is in flight at a time, nor what hides
behind computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import numpy as np

from analysis.predict.added_up import Adapted
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import load_predictor
from analysis.predict.planned_run import jobs_of, mean_of, planned_scenario, predict_workload
from analysis.predict.setting import setting_of_spec
from analysis.predict.traffic import bytes_between
from collectives.call import CollectiveError
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.placement import OPTIMIZE
from topologies.plan import MODEL_STAGE_DATA
from topologies.routing.routes import Routes
from topologies.spec.spec import Spec

BASELINE = "linear"
PREDICTORS = ("packet", "flow")
"""Those that know the fabric; the first one that answers is asked."""

_MOST_SWAPS = 20_000
"""Swaps that are tried from one start."""

_DRAWS = 4
"""Draws of paths, where a hash chooses among several."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TriedPlacement:
    """A placement: the time for which it keeps its busiest link busy, in nanoseconds of a run's
    payload, and the predictor's iteration."""

    name: str
    hosts: tuple[str, ...]
    busiest_link_ns: int
    predicted_ns: int | None


@dataclass(frozen=True, slots=True)
class PlacementSearch:
    """The placements that were `tried`, `linear` first; `chosen` is the number of one of them."""

    predictor: str
    tried: tuple[TriedPlacement, ...]
    chosen: int

    @property
    def best(self) -> TriedPlacement:
        """The chosen one."""
        return self.tried[self.chosen]

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return asdict(self)


def placed(spec: Spec, tell: Tell = lambda text: None) -> Spec:
    """The spec, with a host for each rank where its placement is to be searched."""
    return with_hosts(spec, search(spec, tell).best.hosts) if spec.placement == OPTIMIZE else spec


def with_hosts(spec: Spec, hosts: Sequence[str]) -> Spec:
    """The spec with these hosts, by rank."""
    given = ", ".join(f"{rank}: {host}" for rank, host in enumerate(hosts))
    return spec.with_overrides({"placement": f"{{{given}}}"}, source="placement")


def search(spec: Spec, tell: Tell = lambda text: None) -> PlacementSearch:
    """Search the placement of a spec's only workload. `tell` is told what is tried.

    Raises PredictorError for workloads that are not predicted ahead, and CollectiveError where no
    predictor answers.
    """
    linear = spec.with_overrides({"placement": BASELINE}, source="placement")
    plan = linear.plan
    traffic = _traffic(linear)
    loads = _Loads(plan.fabric, plan.routes, traffic)
    places = {host.name: place for place, host in enumerate(plan.fabric.hosts)}
    start = [places[host] for host in plan.hosts]
    candidates: dict[str, Sequence[int]] = {BASELINE: start}
    policies = ["strided", "random"]
    if spec.workload.degrees is not None:
        policies.append(MODEL_STAGE_DATA)
    for policy in policies:
        by_policy = spec.with_overrides({"placement": policy}, source="placement").plan.hosts
        candidates[policy] = [places[host] for host in by_policy]
    tell("ranks take hosts by what they send each other")
    candidates["greedy, swapped"] = loads.swapped(loads.greedy())
    candidates["linear, swapped"] = loads.swapped(start)
    different: dict[tuple[int, ...], str] = {}
    for name, where in candidates.items():
        different.setdefault(tuple(where), name)
    predictor, predicted = _predicted(
        spec,
        [[_name(plan.fabric, at) for at in where] for where in different],
        _DRAWS if loads.several_paths and plan.fabric.choice.by_headers else 1,
        tell,
    )
    tried = tuple(
        TriedPlacement(
            name,
            tuple(_name(plan.fabric, at) for at in where),
            round(loads.of(where).max(initial=0.0)),
            duration_ns,
        )
        for (where, name), duration_ns in zip(different.items(), predicted, strict=True)
    )
    return PlacementSearch(predictor, tried, int(np.argmin(predicted)))


def _name(fabric: Fabric, place: int) -> str:
    return fabric.hosts[place].name


def _traffic(spec: Spec) -> Ints:
    """The bytes from rank to rank in all iterations, shape (ranks, ranks)."""
    scenario, own = planned_scenario(jobs_of(spec), setting_of_spec(spec))
    size = spec.workload.ranks
    total = np.zeros((size, size), dtype=np.int64)
    for number in sorted(own):
        total += bytes_between(scenario.calls[number].call, size, spec.seed)
    np.fill_diagonal(total, 0)
    return total


def _predicted(
    spec: Spec, candidates: Sequence[Sequence[str]], draws: int, tell: Tell
) -> tuple[str, list[int]]:
    """The predictor that answers for all placements, and their iterations in nanoseconds."""
    reasons = []
    for name in PREDICTORS:
        found = []
        try:
            for number, hosts in enumerate(candidates, 1):
                tell(f"{name} predicts placement {number} of {len(candidates)}")
                asked = with_hosts(spec, hosts)
                setting = setting_of_spec(asked)
                drawn = [
                    predict_workload(
                        asked, replace(setting, draw=draw), Adapted(load_predictor(name))
                    )
                    for draw in range(draws)
                ]
                found.append(round(fmean(mean_of(job.iterations).duration_ns for job in drawn)))
        except CollectiveError as error:
            reasons.append(f"{name}: {error}")
            continue
        return name, found
    raise CollectiveError(f"placement: optimize: no predictor answers ({'; '.join(reasons)})")


class _Loads:
    """How long placed traffic keeps each directed link busy. Link i has the numbers 2i, from its
    end a to b, and 2i + 1. A placement has a host's place in the fabric for each rank; -1 is
    none."""

    def __init__(self, fabric: Fabric, routes: Routes, traffic: Ints) -> None:
        self._fabric = fabric
        self._routes = routes
        self._hosts = [host.name for host in fabric.hosts]
        self._traffic = traffic
        self._peers = [
            [(int(p), int(traffic[rank, p]), int(traffic[p, rank])) for p in np.flatnonzero(both)]
            for rank, both in enumerate(traffic + traffic.T)
        ]
        self._shares: dict[tuple[int, int], tuple[Ints, Floats]] = {}
        self.several_paths = False

    def of(self, where: Sequence[int]) -> Floats:
        """Nanoseconds by directed link."""
        found = self._none()
        for rank in range(len(where)):
            self._add(found, where, rank, 1.0, above=rank)
        return found

    def greedy(self) -> list[int]:
        """A host after the other, for the rank that has most to do with those that have one."""
        ranks = len(self._peers)
        where = [-1] * ranks
        free = list(range(len(self._hosts)))
        both = self._traffic + self._traffic.T
        all_bytes, placed_bytes = both.sum(axis=1), np.zeros(ranks, dtype=np.int64)
        loads = self._none()
        for _ in range(ranks):
            rank = max(
                (each for each in range(ranks) if where[each] < 0),
                key=lambda each: (placed_bytes[each], all_bytes[each], -each),
            )
            best = None
            for host in free:
                where[rank] = host
                tried = loads.copy()
                self._add(tried, where, rank, 1.0)
                if best is None or _better(_cost(tried), best[0]):
                    best = _cost(tried), host, tried
            assert best is not None
            _, where[rank], loads = best
            free.remove(where[rank])
            placed_bytes += both[rank]
        return where

    def swapped(self, where: Sequence[int]) -> list[int]:
        """A placement in which no swap of two ranks, or of a rank and a free host, is better; or
        the best one that `_MOST_SWAPS` tries have found."""
        now = list(where)
        loads = self.of(now)
        cost = _cost(loads)
        tries, since = 0, 0
        swaps = list(self._swaps(now))
        while since < len(swaps) and tries < _MOST_SWAPS:
            rank, other = swaps[tries % len(swaps)]
            tries, since = tries + 1, since + 1
            tried, then = self._after(now, loads, rank, other)
            if _better(_cost(tried), cost):
                now, loads, cost, since = then, tried, _cost(tried), 0
        return now

    def _swaps(self, where: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Two ranks; or a rank and -1 less the number of a free host, of those at the beginning."""
        ranks = len(where)
        free = len(self._hosts) - ranks
        for rank in range(ranks):
            yield from ((rank, other) for other in range(rank + 1, ranks))
            yield from ((rank, -1 - number) for number in range(free))

    def _after(
        self, where: list[int], loads: Floats, rank: int, other: int
    ) -> tuple[Floats, list[int]]:
        """The loads and the placement behind a swap."""
        then = where.copy()
        found = loads.copy()
        if other < 0:
            taken = set(where)
            free = [host for host in range(len(self._hosts)) if host not in taken]
            then[rank] = free[-1 - other]
            self._add(found, where, rank, -1.0)
            self._add(found, then, rank, 1.0)
            return found, then
        then[rank], then[other] = where[other], where[rank]
        for placement, sign in ((where, -1.0), (then, 1.0)):
            self._add(found, placement, rank, sign)
            self._add(found, placement, other, sign, without=rank)
        return found, then

    def _none(self) -> Floats:
        return np.zeros(2 * len(self._fabric.links))

    def _add(
        self,
        loads: Floats,
        where: Sequence[int],
        rank: int,
        sign: float,
        above: int = -1,
        without: int = -1,
    ) -> None:
        """Add what a rank and its peers that have a host send each other; of those `above` a number
        alone, and `without` one."""
        here = where[rank]
        for peer, sent, received in self._peers[rank]:
            there = where[peer]
            if there < 0 or peer <= above or peer == without:
                continue
            for source, destination, size in ((here, there, sent), (there, here, received)):
                if size:
                    links, times = self._share(source, destination)
                    loads[links] += sign * size * times

    def _share(self, source: int, destination: int) -> tuple[Ints, Floats]:
        """The directed links from host to host, and how long a byte keeps each busy: nanoseconds,
        times the part of the traffic that takes it."""
        key = source, destination
        if key not in self._shares:
            found: dict[int, float] = {}
            at = {self._hosts[source]: 1.0}
            goal = self._hosts[destination]
            while at:
                onward: dict[str, float] = {}
                for node, part in at.items():
                    hops = self._routes.next_hops(node, goal)
                    weights = self._routes.portions(node, goal)
                    self.several_paths |= len(hops) > 1
                    for hop, weight in zip(hops, weights, strict=True):
                        link = self._fabric.links[hop.link]
                        taken = part * weight / sum(weights)
                        number = 2 * hop.link + (link.a.node != node)
                        found[number] = found.get(number, 0.0) + taken * 8e9 / link.rate_bps
                        if hop.node != goal:
                            onward[hop.node] = onward.get(hop.node, 0.0) + taken
                at = onward
            self._shares[key] = np.array(list(found), dtype=np.int64), np.array([*found.values()])
        return self._shares[key]


_Cost = tuple[float, float]


def _cost(loads: Floats) -> _Cost:
    return float(loads.max(initial=0.0)), float(loads @ loads)


def _better(cost: _Cost, than: _Cost) -> bool:
    """By more than what adding and taking away leaves."""
    for one, other in zip(cost, than, strict=True):
        if abs(one - other) > 1e-9 * max(one, other):
            return one < other
    return False
