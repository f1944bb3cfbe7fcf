"""The ready axes: the mission's six factors, and how packets use many paths; each with levels that
are sets of a spec's keys.

A level of an axis may depend on the number of ranks: a fabric is made just large enough for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from types import MappingProxyType

Overrides = Mapping[str, object]
"""Dotted key of a spec -> value."""
LevelOf = Callable[[int], Overrides]
"""From the number of ranks to what a level sets. Raises LevelUnfit."""

_GROUP = 8  # hosts behind one inner switch, as in the seed experiment's servers of 8 GPUs
_LARGEST_K = 26


class LevelUnfit(ValueError):
    """A level that there is not for so many ranks."""


def _always(**values: object) -> LevelOf:
    """A level that sets these keys, whose dots are written as two underscores."""
    overrides = MappingProxyType({key.replace("__", "."): v for key, v in values.items()})
    return lambda ranks: overrides


def _program(**entry: object) -> LevelOf:
    return _always(collectives__backend="programs", collectives__all_reduce=entry)


def _parallel(axis: str) -> LevelOf:
    def level(ranks: int) -> Overrides:
        degrees = dict.fromkeys(("data", "tensor", "pipeline"), 1) | {axis: ranks}
        return {"workload.parallelism": degrees, "workload.ranks": ranks}

    return level


def _fat_tree(ranks: int) -> Overrides:
    for k in range(4, _LARGEST_K + 2, 2):
        if k**3 // 4 >= ranks:
            return {"fabric.kind": "fat-tree", "fabric.k": k}
    raise LevelUnfit(f"at most {_LARGEST_K**3 // 4} ranks: a larger fat-tree there is not")


def _near_square(ranks: int) -> tuple[int, int]:
    """Two factors of `ranks`, as near each other as can be, the smaller first."""
    smaller = next(a for a in range(isqrt(ranks), 0, -1) if ranks % a == 0)
    return smaller, ranks // smaller


def _leaf_spine(per_spine: int) -> LevelOf:
    def level(ranks: int) -> Overrides:
        leaves, below = _near_square(ranks)
        if leaves < 2:
            raise LevelUnfit("a number of ranks that is a product of two")
        return {
            "fabric.kind": "leaf-spine",
            "fabric.leaves": leaves,
            "fabric.hosts_per_leaf": below,
            "fabric.spines": max(1, below // per_spine),
        }

    return level


def _torus(axes: int) -> LevelOf:
    def level(ranks: int) -> Overrides:
        last, left = 1, ranks
        if axes == 3:
            cubic = [a for a in range(2, round(ranks ** (1 / 3)) + 1) if ranks % a == 0]
            if not cubic:
                raise LevelUnfit("a number of ranks that is a product of three")
            last = cubic[-1]
            left = ranks // last
        smaller, larger = _near_square(left)
        if smaller < 2:
            raise LevelUnfit(f"a number of ranks that is a product of {axes}, each 2 or more")
        dims = sorted([smaller, larger, *([last] if axes == 3 else [])])
        return {"fabric.kind": "torus", "fabric.dims": dims}

    return level


def _inside_and_groups(ranks: int) -> tuple[int, int]:
    inside = _GROUP if ranks % _GROUP == 0 and ranks > _GROUP else _near_square(ranks)[1]
    return inside, ranks // inside


def _hierarchical(ranks: int) -> Overrides:
    inside, groups = _inside_and_groups(ranks)
    return {
        "fabric.kind": "hierarchical",
        "fabric.hosts_per_group": inside,
        "fabric.groups": groups,
    }


def _by_groups(ranks: int) -> Overrides:
    """In groups as large as those of the topology of this name, whatever the fabric."""
    entry = {
        "algorithm": "hierarchical",
        "inside": "direct",
        "across": "double-binary-tree",
        "dimensions": list(_inside_and_groups(ranks)),
    }
    return {"collectives.backend": "programs", "collectives.all_reduce": entry}


def _hardware() -> dict[str, LevelOf]:
    levels = {}
    for rate in (10, 25, 50, 100, 200, 400, 800):
        levels[f"{rate}G"] = _always(fabric__link__rate=f"{rate}Gbps")
        for name, buffer in (("shallow", "256KB"), ("deep", "32MB")):
            levels[f"{rate}G-{name}"] = _always(
                fabric__link__rate=f"{rate}Gbps", fabric__queue__buffer=buffer
            )
    return levels


def _transport(control: str, queue: str) -> LevelOf:
    return _always(transport__congestion_control=control, fabric__queue__kind=queue)


def _roce(**keys: object) -> LevelOf:
    of_roce = {f"transport__{key}": value for key, value in keys.items()}
    return _always(transport__kind="roce", **of_roce)


def _routing(kind: str, **keys: object) -> LevelOf:
    return _always(fabric__routing={"kind": kind, **keys})


AXES: Mapping[str, Mapping[str, LevelOf]] = MappingProxyType(
    {
        "strategy": {
            "gloo": _always(collectives__backend="gloo"),
            "ring": _program(algorithm="ring"),
            "two-rings": _program(algorithm="ring", channels=2, both_directions=True),
            "halving-doubling": _program(algorithm="halving-doubling"),
            "direct": _program(algorithm="direct"),
            "tree": _program(algorithm="tree"),
            "double-binary-tree": _program(algorithm="double-binary-tree"),
            "hierarchical": _by_groups,
            "data-parallel": _parallel("data"),
            "tensor-parallel": _parallel("tensor"),
            "pipeline-parallel": _parallel("pipeline"),
        },
        "topology": {
            "flat": lambda ranks: {"fabric.kind": "flat", "fabric.hosts": ranks},
            "leaf-spine": _leaf_spine(1),
            "leaf-spine-oversubscribed": _leaf_spine(4),
            "fat-tree": _fat_tree,
            "torus-2d": _torus(2),
            "torus-3d": _torus(3),
            "hierarchical": _hierarchical,
        },
        "placement": {
            name: _always(placement=name) for name in ("linear", "strided", "random", "optimize")
        },
        "transport": {
            "cubic": _transport("cubic", "droptail"),
            "reno": _transport("reno", "droptail"),
            "bbr": _transport("bbr", "droptail"),
            "dctcp": _transport("dctcp", "dctcp"),
            "cubic-red": _transport("cubic", "red"),
            "lossless": _transport("cubic", "lossless"),
            "roce": _roce(),
            "roce-lossless": _always(transport__kind="roce", fabric__queue__kind="lossless"),
            "roce-selective": _roce(loss_recovery="selective-repeat"),
            "udp": _always(transport__kind="udp"),
            "mrc": _always(transport__kind="mrc"),
            "mrc-trim": _always(transport__kind="mrc", fabric__queue__trim=True),
        },
        "connections": {str(number): _roce(connections=number) for number in (1, 2, 4, 8, 16)},
        "sockets": {
            str(number): _always(transport__kind="tcp", transport__connections=number)
            for number in (1, 2, 4, 8, 16)
        },
        "routing": {
            "static": _always(fabric__routing="static"),
            "ecmp": _routing("ecmp"),
            "ecmp-addresses": _routing("ecmp", fields=["addresses"]),
            "ecmp-resilient": _routing("ecmp", resilient=True),
            "weighted": _routing("weighted"),
            "weighted-resilient": _routing("weighted", resilient=True),
            "spray-random": _routing("spray", choose="random"),
            "spray-round-robin": _routing("spray", choose="round-robin"),
            "spray-least-of-two": _routing("spray", choose="least-of-two"),
            "spray-least-queue": _routing("spray", choose="least-queue"),
            "flowlet": _routing("flowlet"),
            "adaptive": _routing("adaptive"),
            "source": _routing("source"),
        },
        "resilient": {
            "thresholds": _routing("ecmp"),
            **{
                str(buckets): _routing("ecmp", resilient={"buckets": buckets})
                for buckets in (32, 64, 128, 256, 512)
            },
        },
        "hardware": _hardware(),
        "concurrency": {
            "overlap": _always(workload__overlap=True),
            "serial": _always(workload__overlap=False),
            "overlap-small-buckets": _always(workload__overlap=True, workload__bucket="256KB"),
            "overlap-one-bucket": _always(workload__overlap=True, workload__bucket="1GB"),
            "one-chunk-in-flight": _always(collectives__chunks=8, collectives__in_flight=1),
            "all-chunks-in-flight": _always(collectives__chunks=8, collectives__in_flight=0),
        },
    }
)
"""Axis -> level -> what it sets. Sources of the levels' figures: docs/studies.md."""
