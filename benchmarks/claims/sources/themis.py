"""Themis (Rashidi et al., ISCA 2022): dimensions that carry alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

from analysis.runs.run import load_run
from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import ROOT, Bench, Experiment
from benchmarks.claims.rules import BYTES, COUNTED, TIME, Above, AtLeast, AtMost, Within
from collectives.kinds import Kind
from collectives.themis import DimensionLoads

_ISCA = "Rashidi et al., ISCA 2022, abstract"
_FIRST = "arXiv 2110.04478v1, abstract"
_THIRD = "a third party's summary of the ISCA version"
_CODE = "Rashidi et al., ISCA 2022"
_BALANCE = {
    "8x8x8": ((8, 8, 8), (1, 1, 1), 2.58),
    "4x4x4": ((4, 4, 4), (1, 1, 1), 2.26),
    "2x2x2": ((2, 2, 2), (1, 1, 1), 1.71),
    "8x8": ((8, 8), (1, 1), 1.78),
    "8x16": ((8, 16), (1, 1), 1.74),
    "4x4": ((4, 4), (1, 1), 1.60),
    "4x2": ((4, 2), (1, 1), 1.71),
    "4x4 4:1": ((4, 4), (4, 1), 1.00),
    "8x16 12:1": ((8, 16), (12, 1), 1.00),
}
"""Sizes, rates, and the ratio that ASTRA-sim's code computes for 64 chunks."""
_SETTING = "tori 2x2x2 and 4x4 of 100 Gb/s, 32 MiB in 64 chunks, a ring an axis, one chunk an axis"
_IDEAL = {"ResNet-152": 1.54, "GNMT": 1.32, "DLRM": 1.33, "Transformer-1T": 1.26}
"""The gain of a perfect schedule end to end (a third party's summary)."""
_BASELINE_USE = 0.5631
_GAINS = {"ResNet-152": 1.49, "GNMT": 1.30, "DLRM": 1.30, "Transformer-1T": 1.25}
_GAINS_FIRST = {"ResNet-152": 1.49, "GNMT": 1.41, "DLRM": 1.42, "Transformer-1T": 1.35}


_TORUS = """
name: themis
fabric:
  kind: torus
  dims: {dims}
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  links: {links}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload:
  kind: collectives
  ranks: {ranks}
  iterations: 1
  operations:
    - {{kind: all_reduce, size: {size}, program: {{algorithm: hierarchical, inside: ring,
       across: ring, chunks: 64, dimension_order: {order}}}}}
collectives: {{active_per_dimension: 1, in_flight: {in_flight}, within_dimension: {within},
  dimension_rates: {rates}}}
virtual: {{ranks_per_process: {packed}, memory: 7GB}}
capture: {{points: []}}
predict: [flow]
"""


@dataclass(frozen=True, slots=True)
class _Torus:
    """Sizes of the axes, the outermost first; the factor by which the innermost axis is faster."""

    dims: tuple[int, ...]
    inner_rate: int = 1

    @property
    def rates(self) -> list[int]:
        """The rates of the dimensions, the innermost first."""
        return [self.inner_rate] + [1] * (len(self.dims) - 1)

    @property
    def links(self) -> str:
        """The links of the innermost axis have a rate of their own."""
        axis = "xyz"[len(self.dims) - 1]
        return f"{{{axis}: {{rate: {100 * self.inner_rate}Gbps}}}}"


_TORI = {"2x2x2": _Torus((2, 2, 2)), "4x4": _Torus((4, 4)), "4x4, 4:1": _Torus((4, 4), 4)}
_SCHEDULES = {
    "fixed order": ("fixed", "fifo"),
    "Themis, first come": ("themis", "fifo"),
    "Themis, smallest first": ("themis", "smallest-first"),
}


def _spec_of(torus: _Torus, schedule: str, in_flight: int) -> str:
    order, within = _SCHEDULES[schedule]
    return _TORUS.format(
        dims=list(torus.dims),
        links=torus.links,
        rates=torus.rates,
        ranks=prod(torus.dims),
        packed=prod(torus.dims),
        size="32MiB",
        order=order,
        within=within,
        in_flight=in_flight,
    )


def _figures_of(directory: Path) -> tuple[float, dict[str, int]]:
    """Microseconds, and what the ports of each axis sent."""
    (row,) = json.loads((directory / "result.json").read_text())["collectives"]
    found = load_run(directory)
    sent: dict[str, int] = {}
    for record in found.links:
        axis = found.fabric.links[record.link].link_class
        sent[axis] = sent.get(axis, 0) + record.bytes
    return row["duration_ns"] / 1000, dict(sorted(sent.items()))


def _balance(bench: Bench) -> Mapping[str, Any]:
    """The largest load of a dimension by the fixed order, over that by Themis, 64 chunks."""
    found = {}
    for name, (sizes, rates, _) in _BALANCE.items():
        themis, fixed = DimensionLoads(sizes, rates), DimensionLoads(sizes, rates)
        chunk = Fraction(2**30, 64)
        for _ in range(64):
            themis.next_chunk(Kind.ALL_REDUCE, chunk)
            fixed.add(Kind.ALL_REDUCE, chunk, fixed.fixed_order(Kind.ALL_REDUCE))
        found[name] = float(max(fixed.loads) / max(themis.loads))
    return {"ratio": found}


def _tori(bench: Bench) -> Mapping[str, Any]:
    """Loads by port counters, times, and how much of the links' time is used: the mean of the
    dimensions, a ring using one direction of an axis."""
    found: dict[str, Any] = {"load": {}, "faster": {}, "smallest_faster": {}, "use": {}}
    found |= {"use_fixed": {}, "use_smallest": {}, "gain": {}}
    for name, torus in _TORI.items():
        rows = {
            schedule: _figures_of(bench.run(_spec_of(torus, schedule, 64)))
            for schedule in _SCHEDULES
        }
        rates = dict(zip("xyz", reversed(torus.rates), strict=False))
        ranks = prod(torus.dims)
        busy = {
            schedule: {
                axis: sent / ranks * 8 / (100_000 * rates[axis]) for axis, sent in by_axis.items()
            }
            for schedule, (_, by_axis) in rows.items()
        }
        us = {schedule: time for schedule, (time, _) in rows.items()}
        use = {schedule: fmean(busy[schedule].values()) / us[schedule] for schedule in rows}
        fixed, first, smallest = _SCHEDULES
        key = name.replace(", ", " ")
        found["load"][key] = max(busy[fixed].values()) / max(busy[first].values())
        found["faster"][key] = us[fixed] / us[first]
        found["smallest_faster"][key] = us[fixed] / us[smallest]
        found["use_fixed"][key], found["use"][key] = use[fixed], use[first]
        found["use_smallest"][key] = use[smallest]
        found["gain"][key] = use[smallest] / use[fixed]
    equal = ("2x2x2", "4x4")
    for figure in ("faster", "smallest_faster", "gain", "use_fixed", "use", "use_smallest"):
        found[f"mean_{figure}"] = fmean(found[figure][name] for name in equal)
    found["most_gain"] = max(found["gain"].values())
    found["end_to_end"] = {}
    for model, ideal in _IDEAL.items():
        # (compute + t) / (compute + used share of t) is the ideal's gain.
        exposed = (1 - 1 / ideal) / (1 - _BASELINE_USE)
        found["end_to_end"][model] = 1 / (1 - exposed + exposed / found["mean_smallest_faster"])
    return found


def _smallest(bench: Bench) -> Mapping[str, Any]:
    """Smallest chunk first beside first come, by chunks in flight."""
    found: dict[str, Any] = {}
    for in_flight in (4, 64):
        us = {
            schedule: _figures_of(bench.run(_spec_of(_TORI["2x2x2"], schedule, in_flight)))[0]
            for schedule in _SCHEDULES
        }
        fixed, first, smallest = _SCHEDULES
        found[f"first_{in_flight}"] = us[fixed] / us[first]
        found[f"smallest_{in_flight}"] = us[fixed] / us[smallest]
        found[f"gain_{in_flight}"] = us[first] / us[smallest]
    return found


_DLRM = """
name: themis-dlrm
fabric:
  kind: torus
  dims: [4, 4]
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload: {{kind: layers, ranks: 16, passes: 2, path: {table}, dtype: float16}}
collectives:
  backend: programs
  all_reduce: {{algorithm: hierarchical, inside: ring, across: ring, chunks: 8,
    dimension_order: {order}}}
  all_to_all: {{algorithm: direct}}
  order: fifo
  active_per_dimension: 1
  in_flight: 16
capture: {{points: []}}
predict: [packet]
"""


def _dlrm(bench: Bench) -> Mapping[str, Any]:
    table = ROOT / "topologies" / "dlrm-small-layers.txt"
    us = {
        order: bench.iteration(_DLRM.format(table=table, order=order))[0].duration_ns / 1000
        for order in ("fixed", "themis")
    }
    return {"us": us, "faster": us["fixed"] / us["themis"]}


BALANCE = Experiment("themis-balance", "arithmetic", _balance, cheap=True)
TORI_RUNS = Experiment("themis-tori", "virtual kernel", _tori)
SMALLEST = Experiment("themis-smallest", "virtual kernel", _smallest)
DLRM = Experiment("themis-dlrm", "packet engine", _dlrm)


def _end_to_end(model: str, published: float, source: str) -> Claim:
    version = "" if source == _ISCA else "-v1"
    return Claim(
        f"themis-{model.lower()}{version}",
        f"Themis makes an iteration of {model} faster, {published:.2f} times",
        source,
        f"{published:.2f} times on average",
        f"a perfect schedule gains {_IDEAL[model]:.2f} times, the fixed order uses 56.31% "
        f"({_THIRD}): so the exposed part of an iteration follows",
        setting=f"{_SETTING}; beside computing, set so that a perfect schedule has that gain",
        experiment=TORI_RUNS,
        shows=f"{{end_to_end[{model}]:.2f}} times",
        rules=(Within(f"end_to_end.{model}", published, TIME),),
        conditions="all exposed communication is all-reduces of one size; topologies are not known",
    )


CLAIMS = (
    Claim(
        "themis-balance",
        "Themis balances the load of dimensions",
        _CODE,
        "no figure for loads",
        "largest load, fixed order over Themis, by ASTRA-sim's code for 64 chunks: "
        + ", ".join(f"{ratio:.2f} ({name})" for name, (_, _, ratio) in _BALANCE.items()),
        setting="our scheduler, 1 GiB in 64 chunks",
        experiment=BALANCE,
        shows=", ".join(f"{{ratio[{name}]:.2f}}" for name in _BALANCE),
        rules=tuple(Within(f"ratio.{n}", ratio, COUNTED) for n, (_, _, ratio) in _BALANCE.items()),
    ),
    Claim(
        "themis-load",
        "The same on wires",
        _CODE,
        "no figure for loads",
        "1.71 (2x2x2), 1.60 (4x4), 1.00 (4x4 with 4:1) by ASTRA-sim's code",
        setting=_SETTING + ", and 4x4 with 400 Gb/s inside",
        experiment=TORI_RUNS,
        shows="{load[2x2x2]:.3f}, {load[4x4]:.3f}, {load[4x4 4:1]:.3f} by port "
        "counters, headers included",
        rules=(
            Within("load.2x2x2", 1.71, BYTES),
            Within("load.4x4", 1.60, BYTES),
            Within("load.4x4 4:1", 1.00, BYTES),
        ),
    ),
    Claim(
        "themis-no-help",
        "Where dimensions are balanced already, Themis gains nothing",
        _CODE,
        "no figure",
        "1.00: all chunks fall back to the fixed order",
        setting="torus 4x4 with 400 Gb/s inside and 100 Gb/s across, 32 MiB in 64 chunks",
        experiment=TORI_RUNS,
        shows="{faster[4x4 4:1]:.3f} times as fast",
        rules=(Within("faster.4x4 4:1", 1.0, 0.01),),
    ),
    Claim(
        "themis-utilisation",
        "The utilisation of bandwidth by one all-reduce rises 1.72 times",
        _ISCA,
        "1.72 on average, 2.70 at most",
        setting=_SETTING + "; smallest chunk first",
        experiment=TORI_RUNS,
        shows="{mean_gain:.2f} on average: {gain[2x2x2]:.2f}, {gain[4x4]:.2f}",
        rules=(Within("mean_gain", 1.72, TIME), AtMost("most_gain", 2.70)),
        conditions="the paper's topologies are not known",
    ),
    Claim(
        "themis-utilisation-v1",
        "The same, in the first version: 1.88 times",
        _FIRST,
        "1.88 on average, 2.92 at most",
        setting=_SETTING + "; smallest chunk first",
        experiment=TORI_RUNS,
        shows="{mean_gain:.2f} on average",
        rules=(Within("mean_gain", 1.88, TIME), AtMost("most_gain", 2.92)),
        conditions="the paper's topologies are not known",
    ),
    Claim(
        "themis-use-baseline",
        "The fixed order uses 56.31% of the bandwidth, Themis 87.67%, with smallest first 95.14%",
        _THIRD,
        "56.31%, 87.67%, 95.14%",
        setting=_SETTING,
        experiment=TORI_RUNS,
        shows="{mean_use_fixed:.1%}, {mean_use:.1%}, {mean_use_smallest:.1%}",
        rules=(
            Within("mean_use_fixed", 0.5631, TIME),
            Within("mean_use", 0.8767, TIME),
            Within("mean_use_smallest", 0.9514, TIME),
            Above("mean_use", "mean_use_fixed"),
            Above("mean_use_smallest", "mean_use"),
        ),
        conditions="the paper's topologies are not known",
    ),
    Claim(
        "themis-time",
        "An all-reduce is faster by Themis, 1.58 times",
        _THIRD,
        "1.58 times first come, 1.72 smallest first",
        setting=_SETTING,
        experiment=TORI_RUNS,
        shows="{mean_faster:.2f}: {faster[2x2x2]:.2f}, {faster[4x4]:.2f}",
        rules=(Within("mean_faster", 1.58, TIME),),
        conditions="the paper's topologies are not known",
    ),
    Claim(
        "themis-smallest",
        "Smallest chunk first is faster than first come",
        _THIRD,
        "1.72 to 1.58 times, so 1.09",
        setting="torus 2x2x2, 32 MiB in 64 chunks; 4, and all 64 in flight",
        experiment=SMALLEST,
        shows="{gain_4:.2f} times with 4 in flight, {gain_64:.2f} with 64",
        rules=(AtLeast("gain_4", 1.04), AtLeast("gain_64", 1.04)),
    ),
    *(_end_to_end(model, gain, _ISCA) for model, gain in _GAINS.items()),
    *(
        _end_to_end(model, gain, _FIRST)
        for model, gain in _GAINS_FIRST.items()
        if gain != _GAINS[model]
    ),
    Claim(
        "themis-dlrm-torus",
        "Themis makes an iteration of DLRM faster, 1.30 times",
        _ISCA,
        "1.30 on average, 1.77 at most (first version 1.42)",
        setting="the case study's DLRM, a 32nd, on a torus 4x4, 16 ranks, two passes, 8 chunks an "
        "all-reduce",
        experiment=DLRM,
        shows="{faster:.2f} times: {us[fixed]:,.0f} and {us[themis]:,.0f} us",
        rules=(Within("faster", 1.30, TIME),),
    ),
    Claim(
        "themis-512",
        "On three switched dimensions of 8 an all-reduce of 1 GiB is faster with Themis",
        "astra-sim/tutorials, asplos2023 exercise 3",
        "a configuration; its result is not in the repository",
        "load falls 2.58 times",
        untested="512 ranks in 64 chunks are 2.8 million messages, more than the engine follows",
    ),
)
