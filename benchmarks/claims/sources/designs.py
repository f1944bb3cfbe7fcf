"""LIBRA and COMET: how bandwidth and memory should be divided."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import groundwire
from analysis.design.comparison import by_tensor, clusters
from analysis.design.search import Found
from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import ROOT, Bench, Experiment
from benchmarks.claims.rules import TIME, Above, AtLeast, AtMost, Within

_LIBRA = "Won et al., ISPASS 2024 (LIBRA)"
_COMET = "Kadiyala et al., 2022 (COMET), abstract"
_SHARES = {(4, 4): 1.60, (2, 4, 4): 1.55, (8, 8): 1.78}
_TORUS = """
name: libra
fabric:
  kind: torus
  dims: {dims}
  link: {{rate: 10Gbps, delay: 500ns, mtu: 9000}}
  links: {links}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload:
  kind: collectives
  ranks: {ranks}
  operations:
    - {{kind: all_reduce, size: 16MiB, program: {{algorithm: hierarchical, inside: ring,
       across: ring, chunks: {chunks}}}}}
collectives: {{active_per_dimension: {active}, in_flight: {chunks}}}
capture: {{points: []}}
predict: [packet]
"""


def _bytes(sizes: tuple[int, ...]) -> list[float]:
    """The share of a byte that a rank sends in each dimension, the innermost first."""
    found, left = [], 1.0
    for size in sizes:
        found.append(2 * left * (size - 1) / size)
        left /= size
    return found


def _torus(sizes: tuple[int, ...], rates_gbps: list[float], active: int = 1) -> str:
    """`sizes` and rates from the innermost on; a torus names its outermost axis first."""
    axes = "xyz"[: len(sizes)]
    links = ", ".join(
        f"{axis}: {{rate: {round(rate * 1000)}Mbps}}"
        for axis, rate in zip(reversed(axes), rates_gbps, strict=True)
    )
    return _TORUS.format(
        dims=list(reversed(sizes)),
        links=f"{{{links}}}",
        ranks=prod(sizes),
        chunks=32,
        active=active,
    )


def _gain(bench: Bench) -> Mapping[str, Any]:
    """An equal split's time over that of bandwidths as the bytes, 10 Gb/s in all for each axis."""
    found: dict[str, Any] = {"gain": {}, "closed_form": {}}
    for sizes, closed in _SHARES.items():
        name, sent = "x".join(map(str, sizes)), _bytes(sizes)
        total = 10.0 * len(sizes)
        shares = [total * each / sum(sent) for each in sent]
        (best,) = bench.durations_us(_torus(sizes, shares))
        (equal,) = bench.durations_us(_torus(sizes, [10.0] * len(sizes)))
        found["gain"][name] = equal / best
        found["closed_form"][name] = closed
    return found


_SWITCHES = """
name: libra
fabric:
  kind: rails
  servers: 4
  hosts_per_server: 4
  servers_per_leaf: 4
  link: {{rate: {outer}Mbps, delay: 500ns, mtu: 9000}}
  links: {{scale-up: {{rate: {inner}Mbps, delay: 500ns}}}}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload:
  kind: collectives
  ranks: 16
  operations:
    - {{kind: all_reduce, size: 16MiB, program: {{algorithm: hierarchical, inside: {inside},
       across: {inside}, chunks: 32}}}}
collectives: {{active_per_dimension: 1, in_flight: 32}}
capture: {{points: []}}
predict: [packet]
"""


def _switches(bench: Bench) -> Mapping[str, Any]:
    """The same of 4x4 where both dimensions are switches."""
    found: dict[str, Any] = {}
    for inside in ("ring", "halving-doubling", "direct"):
        (best,) = bench.durations_us(_SWITCHES.format(inner=16_000, outer=4_000, inside=inside))
        (equal,) = bench.durations_us(_SWITCHES.format(inner=10_000, outer=10_000, inside=inside))
        found[inside.replace("-", "_")] = equal / best
    return {"gain": found}


_STAR = """
name: libra
fabric:
  kind: flat
  hosts: 16
  link: {rate: 30Gbps, delay: 500ns, mtu: 9000}
  queue: {kind: droptail, buffer: 64MB}
transport: {congestion_control: cubic, initial_window: 1000}
workload:
  kind: collectives
  ranks: 16
  operations: [{kind: all_reduce, size: 16MiB, program: {algorithm: ring, chunks: 32}}]
collectives: {in_flight: 32}
capture: {points: []}
predict: [packet]
"""
_NETWORKS = ((16,), (4, 4), (4, 2, 2))
"""Sixteen hosts in one, two and three dimensions: what is outside is divided each time."""


def _dimensions(bench: Bench) -> Mapping[str, Any]:
    """30 Gb/s of a host divided as the bytes: the outermost dimension's part, which is that of
    NICs, and how long an all-reduce of 16 MiB takes. Two chunks at once are in a dimension: with
    one, three dimensions wait for each other, and take twice as long."""
    outermost, us = {}, {}
    for sizes in _NETWORKS:
        sent = _bytes(sizes)
        rates = [30.0 * each / sum(sent) for each in sent]
        outermost[f"in_{len(sizes)}"] = rates[-1]
        text = _torus(sizes, rates, active=2) if len(sizes) > 1 else _STAR
        (us[f"in_{len(sizes)}"],) = bench.durations_us(text)
    return {
        "outermost_gbps": outermost,
        "us": us,
        "fewer": {key: outermost["in_1"] / outermost[key] for key in ("in_2", "in_3")},
        "longer": {key: us[key] / us["in_1"] for key in ("in_2", "in_3")},
    }


def _found(bench: Bench, name: str) -> Found:
    path = ROOT / "topologies" / "designs" / f"{name}.yaml"
    bench.take_text(path.read_text())
    with tempfile.TemporaryDirectory() as directory:
        return groundwire.design(path, out=Path(directory) / "design").found


def _comet(bench: Bench) -> Mapping[str, Any]:
    """By the model: what expansion gains on a cluster, how far clusters are apart, and which degree
    of tensor parallelism is best."""
    found = _found(bench, "comet-transformer")
    rows = clusters(found)
    chosen = [(row.best.point.chosen, row.best.time_ns) for row in rows]
    plain = {each["fabric links"]: ns for each, ns in chosen if each["expansion"] == "0B"}
    gains = [plain[each["fabric links"]] / ns for each, ns in chosen]
    times = [row.best.time_ns for row in rows]
    degrees = by_tensor(found)
    best = {
        words: min(line, key=lambda degree: line[degree].objective)
        for words, line in degrees.items()
    }
    least = {words: min(line) for words, line in degrees.items()}
    return {
        "most_gain": max(gains),
        "least_gain": min(gains),
        "spread": max(times) / min(times),
        "clusters": len(rows),
        "smallest_best_degree": min(best.values()),
        "largest_best_degree": max(best.values()),
        "least_degree_without": max(least.values()),
        "least_degree_with": min(least.values()),
    }


GAIN = Experiment("libra-gain", "packet engine", _gain)
SWITCHES = Experiment("libra-switches", "packet engine", _switches)
DIMENSIONS = Experiment("libra-dimensions", "packet engine", _dimensions)
COMET = Experiment("comet", "model", _comet, cheap=True)

CLAIMS = (
    Claim(
        "libra-gain",
        "Bandwidths as the bytes of each dimension are faster than an equal split",
        _LIBRA,
        "speed-ups were not found",
        "closed form of its formulas: 1.60 (4x4), 1.55 (2x4x4), 1.78 (8x8)",
        setting="tori of those sizes, 10 Gb/s an axis in all, 16 MiB in 32 chunks, a ring and one "
        "chunk an axis",
        experiment=GAIN,
        shows="{gain[4x4]:.2f}, {gain[2x4x4]:.2f}, {gain[8x8]:.2f}",
        rules=tuple(
            rule
            for sizes, gain in _SHARES.items()
            for figure in (f"gain.{'x'.join(map(str, sizes))}",)
            for rule in (AtLeast(figure, 1), Within(figure, gain, TIME))
        ),
    ),
    Claim(
        "libra-switches",
        "The same where dimensions are switches",
        _LIBRA,
        "speed-ups were not found",
        "closed form of its formulas: 1.60 (4x4)",
        setting="4 servers of 4, a switch in each and one for each place, 16 MiB in 32 chunks; by "
        "rings, halving and doubling, direct",
        experiment=SWITCHES,
        shows="{gain[ring]:.2f}, {gain[halving_doubling]:.2f}, {gain[direct]:.2f}",
        rules=tuple(
            Within(f"gain.{name}", 1.6, TIME) for name in ("ring", "halving_doubling", "direct")
        ),
    ),
    Claim(
        "libra-shares",
        "Its solver finds those bandwidths",
        _LIBRA,
        "no figure",
        ".8 and .2 for 4x4",
        untested="our solver agrees with our closed form within 0.1%; both are ours, and no "
        "published figure is held against them",
    ),
    Claim(
        "libra-cost",
        "Time x cost of one collective has the same proportions as its time",
        _LIBRA,
        "no figure",
        "closed form of its formulas: bandwidths as bytes, .80 (4x4) and .88 (8x16) inside",
        untested="our solver finds them to five digits; as with `libra-shares` both are ours",
    ),
    Claim(
        "libra-dimensions",
        "More dimensions save NICs",
        _LIBRA,
        "no figure",
        setting="16 hosts of 30 Gb/s in all, divided as the bytes, in one, two and three "
        "dimensions (16, 4x4, 4x2x2), an all-reduce of 16 MiB; NICs are the outermost's",
        experiment=DIMENSIONS,
        shows="{outermost_gbps[in_1]:.0f}, {outermost_gbps[in_2]:.0f}, {outermost_gbps[in_3]:.0f} "
        "Gb/s of NICs, in {us[in_1]:,.0f}, {us[in_2]:,.0f}, {us[in_3]:,.0f} us",
        rules=(
            AtLeast("fewer.in_2", 2),
            AtLeast("fewer.in_3", 2),
            AtMost("longer.in_2", 1 + TIME),
            AtMost("longer.in_3", 1 + TIME),
        ),
        conditions="two chunks at once are in a dimension: with one at a time three dimensions "
        "take twice as long",
    ),
    Claim(
        "libra-published",
        "LIBRA's speed-ups for GPT-3, MSFT-1T, Turing-NLG, ResNet-50",
        _LIBRA,
        "values were not found",
        untested="there is nothing to hold a figure against",
    ),
    Claim(
        "comet-expansion",
        "Memory expansion gains up to 1.4 times",
        _COMET,
        "“up to 1.4x”",
        setting="Transformer-1T on 1,024 hosts (`comet-transformer`), each with its best strategy",
        experiment=COMET,
        shows="{least_gain:.2f} to {most_gain:.2f} times, of {clusters} clusters",
        rules=(AtLeast("most_gain", 1.4),),
        conditions="its batch, network and expansion are not known",
    ),
    Claim(
        "comet-crossover",
        "Expansion moves the optimum to smaller degrees of tensor parallelism",
        _COMET,
        "no figure",
        "where memory excludes small degrees; each more degree costs all-reduces",
        setting="`comet-transformer`",
        experiment=COMET,
        shows="without expansion degrees below {least_degree_without} do not fit, with it "
        "{least_degree_with} does; the best degree goes from {largest_best_degree} to "
        "{smallest_best_degree}",
        rules=(Above("largest_best_degree", "smallest_best_degree"),),
        conditions="its batch, network and expansion are not known",
    ),
    Claim(
        "comet-spread",
        "Clusters differ by up to 7.7 times",
        _COMET,
        "“up to 7.7x”",
        untested="its clusters are not known, and a spread of ours would say nothing of them",
    ),
)
