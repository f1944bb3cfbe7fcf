"""Solved points beside each other: the equal split, clusters, degrees of tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.design.network import network_cost
from analysis.design.search import Found, Solution

_ALIKE = 1e-3


@dataclass(frozen=True, slots=True)
class EqualSplit:
    """The best point's total bandwidth, divided equally among its dimensions but for those whose
    bandwidth is fixed. It is the baseline; it need not keep the other constraints."""

    gbytes_per_s: tuple[float, ...]
    time_ns: float
    gain: float
    """Its time over the best one's."""
    product_gain: float
    """Its time x cost over the best one's; 0 without prices."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """All choices but the strategy, with the strategy that is best for them."""

    words: str
    best: Solution
    strategies: int


def equal_split(found: Found) -> EqualSplit | None:
    """None where there is nothing to divide."""
    best = found.best
    return equal_split_of(best)


def equal_split_of(solution: Solution) -> EqualSplit | None:
    """The equal split of a solution's bandwidth."""
    dimensions = solution.point.dimensions
    free = [i for i, one in enumerate(dimensions) if not one.fixed]
    if len(free) < 2:
        return None
    share = sum(solution.gbytes_per_s[i] for i in free) / len(free)
    rates = tuple(share if i in free else rate for i, rate in enumerate(solution.gbytes_per_s))
    time_ns = solution.work.demand.time_ns(rates)
    of_best, of_equal = (network_cost(dimensions, r) for r in (solution.gbytes_per_s, rates))
    cost = solution.cost + of_equal - of_best
    gain = time_ns / solution.time_ns
    return EqualSplit(rates, time_ns, gain, gain * cost / solution.cost if solution.cost else 0.0)


def clusters(found: Found) -> tuple[Cluster, ...]:
    """The best first; empty where nothing but the strategy is chosen."""
    groups: dict[str, list[Solution]] = {}
    for solution in found.solved:
        groups.setdefault(cluster_words(solution), []).append(solution)
    if len(groups) < 2 or found.best.point.host is None:
        return ()
    rows = [
        Cluster(words, min(group, key=lambda s: s.objective), len(group))
        for words, group in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: row.best.objective))


def cluster_words(solution: Solution) -> str:
    """The choices but for the strategy."""
    chosen = solution.point.chosen
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if name != "strategy")


def neighbours(found: Found) -> tuple[Solution, ...]:
    """For each other value of each choice the best point that has it, whatever its other choices;
    for strategies, for each degree of tensor and of pipeline parallelism, and each stage of ZeRO.
    Another buffer makes no neighbour: emulated links have the bandwidth that the model lets it use.
    The best first. One of several that take equally long is kept, and none that takes as
    long as the best: times could not tell them apart."""
    best = found.best
    kept: dict[tuple[str, str], Solution] = {}
    of_best = best.point.choices
    for solution in found.solved:
        if abs(solution.time_ns / best.time_ns - 1) < _ALIKE:
            continue
        for name, value in solution.point.choices.items():
            of_itself = name not in ("data", "microbatches") and not name.endswith(" buffer")
            if of_itself and value != of_best.get(name):
                kept.setdefault((name, value), solution)
    chosen: list[Solution] = []
    for one in sorted(kept.values(), key=lambda one: one.objective):
        if all(abs(one.time_ns / other.time_ns - 1) >= _ALIKE for other in chosen):
            chosen.append(one)
    return tuple(chosen)


def by_tensor(found: Found) -> dict[str, dict[int, Solution]]:
    """The best point of each degree of tensor parallelism, by cluster; empty without strategies."""
    lines: dict[str, dict[int, Solution]] = {}
    for solution in found.solved:
        strategy = solution.point.strategy
        if strategy is None:
            return {}
        line = lines.setdefault(cluster_words(solution), {})
        before = line.get(strategy.tensor)
        if before is None or solution.objective < before.objective:
            line[strategy.tensor] = solution
    return {words: dict(sorted(line.items())) for words, line in lines.items()}
