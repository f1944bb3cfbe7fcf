"""Closed forms of the algorithms in textbooks: a latency per message, a time per byte, one port.

A message of m bytes takes alpha + m * beta; a rank sends one message and receives one at a time.
Sources: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
MPICH (IJHPCA 2005) for ring and halving-doubling; Sanders, Speck and Traff, Two-tree algorithms for
full bandwidth broadcast, reduction and scan (Parallel Computing 2009) for the double binary tree,
here without pipelining. `size_bytes` is as CollectiveCall defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.paths import paths_of
from analysis.predict.interface import PredictorError, Setting
from collectives.call import CollectiveCall
from collectives.kinds import Kind


@dataclass(frozen=True, slots=True)
class Port:
    """A rank's port: nanoseconds per message and per byte."""

    alpha_ns: float
    beta_ns_per_byte: float

    def message_ns(self, size_bytes: float) -> float:
        return self.alpha_ns + size_bytes * self.beta_ns_per_byte


def ring(kind: str, world: int, size_bytes: int, port: Port) -> float:
    """n-1 steps of a shard each; an all-reduce is a reduce-scatter and an all-gather."""
    return _halves(kind, "ring") * (world - 1) * port.message_ns(size_bytes / world)


def direct(kind: str, world: int, size_bytes: int, port: Port) -> float:
    """Every rank sends a shard to every other, one after the other by its port."""
    shards = (world - 1) * size_bytes / world
    halves = 1 if kind == Kind.ALL_TO_ALL else _halves(kind, "direct")
    return halves * port.message_ns(shards)


def halving_doubling(kind: str, world: int, size_bytes: int, port: Port) -> float:
    """log2 n steps with partners at distances n/2, n/4, .. 1 and halves, quarters, .. of the array.

    Raises PredictorError unless the number of ranks is a power of two.
    """
    halves = _halves(kind, "halving-doubling")
    steps = _log2(world, "halving-doubling")
    moved = size_bytes * (world - 1) / world
    return halves * (steps * port.alpha_ns + moved * port.beta_ns_per_byte)


def double_binary_tree(kind: str, world: int, size_bytes: int, port: Port) -> float:
    """Half of the array up and down each of two trees, in which every rank is once a leaf.

    A tree over n = 2^h ranks is a root with one child, below which h levels are a perfect tree: h-1
    times a parent takes two halves of the array from its children, then the root takes one; and
    back. Raises PredictorError unless the number of ranks is a power of two.
    """
    if kind != Kind.ALL_REDUCE:
        raise PredictorError(f"double-binary-tree: found {kind}, allowed all_reduce")
    height = _log2(world, "double-binary-tree")
    if height == 0:
        return 0.0
    up = (height - 1) * port.message_ns(size_bytes) + port.message_ns(size_bytes / 2)
    return 2 * up


def hierarchical(
    kind: str, world: int, size_bytes: int, inner: Port, outer: Port, group: int
) -> float:
    """Rings: reduce-scatter in groups of `group` ranks, all-reduce of the shards across groups,
    all-gather in groups. Raises PredictorError unless `group` divides the number of ranks."""
    if kind != Kind.ALL_REDUCE:
        raise PredictorError(f"hierarchical: found {kind}, allowed all_reduce")
    if group < 1 or world % group:
        raise PredictorError(f"hierarchical: groups of {group} do not divide {world} ranks")
    inside = 2 * ring(Kind.ALL_GATHER, group, size_bytes, inner)
    shard = -(-size_bytes // group)
    return inside + ring(Kind.ALL_REDUCE, world // group, shard, outer)


_REDUCED_OR_GATHERED = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)


def _halves(kind: str, algorithm: str) -> int:
    if kind == Kind.ALL_REDUCE:
        return 2
    if kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        return 1
    raise PredictorError(
        f"{algorithm}: found {kind}, allowed {', '.join(_REDUCED_OR_GATHERED)}"
        + (", all_to_all" if algorithm == "direct" else "")
    )


def _log2(world: int, algorithm: str) -> int:
    if world & (world - 1):
        raise PredictorError(f"{algorithm}: found {world} ranks, allowed powers of two")
    return world.bit_length() - 1


_FLAT: dict[str, Callable[[str, int, int, Port], float]] = {
    "ring": ring,
    "direct": direct,
    "halving-doubling": halving_doubling,
    "double-binary-tree": double_binary_tree,
}


class Textbook:
    """Built-in predictor "textbook": alpha and beta are those of the worst path between members.

    `algorithm` is ring, direct, halving-doubling, double-binary-tree or hierarchical; None takes
    the algorithm that a collective runs by. Gloo's own have direct for all-to-all and ring for the
    rest. `group` is the size of hierarchical's groups.
    """

    name = "textbook"
    ignores = (
        "everything but a latency per message and a time per byte: headers, rendezvous, segments, "
        "Gloo's own algorithms, contention, congestion control"
    )

    def __init__(self, algorithm: str | None = None, group: int = 1) -> None:
        if algorithm not in (None, "hierarchical", *_FLAT):
            allowed = ", ".join((*_FLAT, "hierarchical"))
            raise PredictorError(f"algorithm: found {algorithm!r}, allowed {allowed}")
        self._algorithm = algorithm
        self._group = group

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds. Raises PredictorError for a kind that the algorithm does not do, and for an
        algorithm without a closed form."""
        if call.world == 1:
            return 0.0
        if call.schedule.uneven:
            raise PredictorError(f"{call.kind} of unequal parts has no closed form")
        algorithm = self._algorithm or _algorithm_of(call)
        if algorithm == "hierarchical":
            inner = _port(setting, call.ranks[: self._group])
            outer = _port(setting, call.ranks[:: self._group])
            return hierarchical(call.kind, call.world, call.size_bytes, inner, outer, self._group)
        port = _port(setting, call.ranks)
        return _FLAT[algorithm](call.kind, call.world, call.size_bytes, port)


def _algorithm_of(call: CollectiveCall) -> str:
    runs_by = call.schedule.algorithm
    if runs_by is None:
        return "direct" if call.kind == Kind.ALL_TO_ALL else "ring"
    if runs_by not in _FLAT:
        raise PredictorError(
            f"{call.kind} runs by {runs_by}; closed forms are known of {', '.join(_FLAT)}"
        )
    return runs_by


def _port(setting: Setting, ranks: Sequence[int]) -> Port:
    """The worst path from the first member, which in regular fabrics is the worst of all."""
    if len(ranks) < 2:
        return Port(0.0, 0.0)
    others = np.array(ranks[1:], dtype=np.int64)
    costs = paths_of(setting).costs(np.full_like(others, ranks[0]), others)
    return Port(float(costs.propagation_ns.max()), float(costs.ns_per_byte.max()))
