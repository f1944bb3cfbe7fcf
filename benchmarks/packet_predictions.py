"""The predictor `packet` on fabrics, sizes and seeds that it was not made with: run once.

    .venv/bin/python -m benchmarks.packet_predictions --runs DIR [--random N] [--bars FILE]
    .venv/bin/python -m benchmarks.packet_predictions --runs DIR --seed S [--random N] [--roce N]

Such a set is one only once: what has been looked at is replaced here before the model is changed.
Random specs are drawn by a seed; with one of your own all are, over TCP and over RoCE. A prediction
"from the spec" knows nothing of the run, and draws its paths through ECMP; one "with ports" knows
the run's paths. Prints its tables; `--bars` writes the first one, of what was asked for, between
two marks of a page (docs/packet.md).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.predict.interface import PredictorError
from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import PredictedJob, predict_workload
from analysis.predict.setting import setting_of, setting_of_spec
from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.run import Run, load_run
from testing.kept_runs import kept_run
from topologies.spec.fabric_section import FlatSpec, TorusSpec

SEED = 20261126
BEGIN, END = "<!-- held-out set: begin -->", "<!-- held-out set: end -->"

_REST = "capture: {points: []}\npredict: [flow]\n"
_LINK = "link: {rate: 80Gbps, delay: 1300ns, mtu: 9000}"


def _graph(hosts: int, routers: int, joined: list[tuple[str, str]], queue: str) -> str:
    nodes = [f"{{name: h{i}, kind: host}}" for i in range(hosts)]
    nodes += [f"{{name: r{i}, kind: switch}}" for i in range(routers)]
    links = ", ".join(
        f"{{ends: [{a}, {b}], rate: 80Gbps, delay: 1300ns, mtu: 9000}}" for a, b in joined
    )
    return f"{{kind: graph, nodes: [{', '.join(nodes)}], links: [{links}], queue: {queue}}}"


def _dragonfly() -> str:
    """Four groups of two routers with two hosts each; a link between each two groups."""
    joined = [(f"h{i}", f"r{i // 2}") for i in range(16)]
    joined += [(f"r{2 * group}", f"r{2 * group + 1}") for group in range(4)]
    joined += [("r0", "r2"), ("r3", "r4"), ("r5", "r6")]
    joined += [("r0", "r5"), ("r1", "r7"), ("r2", "r7")]
    return _graph(16, 8, joined, "{kind: dctcp, k: 110KB, buffer: 3MB}")


def _failed_uplinks() -> str:
    """Three leaves of six hosts and two spines, 3:1, without two of the six links between them."""
    joined = [(f"h{i}", f"r{i // 6}") for i in range(18)]
    joined += [(f"r{leaf}", f"r{3 + spine}") for leaf in range(3) for spine in range(2)]
    joined.remove(("r1", "r3"))
    joined.remove(("r2", "r4"))
    return _graph(18, 5, joined, "{kind: droptail, buffer: 24MB}")


_OPERATIONS = (
    "{kind: all_reduce, size: 3500KB}",
    "{kind: all_to_all, size: 2304KB}",
    "{kind: all_gather, size: 1728KB}",
    "{kind: broadcast, size: 1200KB}",
)
_INCASTS = ("{kind: incast, size: 310KB}", "{kind: incast, size: 900KB, degree: 7}")

HELD_OUT = {
    "dragonfly-like, dctcp": (_dragonfly(), 16, "dctcp", _OPERATIONS),
    "leaf-spine 3:1 without two links, cubic": (_failed_uplinks(), 18, "cubic", _OPERATIONS),
    "torus 3x2x2, cubic": (
        "{kind: torus, dims: [3, 2, 2], " + _LINK + ", queue: {kind: droptail, buffer: 8MB}}",
        12,
        "cubic",
        _OPERATIONS,
    ),
    "hierarchical, dctcp": (
        "{kind: hierarchical, groups: 3, hosts_per_group: 4, outer_switches: 2, "
        + _LINK
        + ", queue: {kind: dctcp, k: 120KB}}",
        12,
        "dctcp",
        _OPERATIONS,
    ),
    "incast, drop-tail": (
        "{kind: flat, hosts: 9, " + _LINK + ", queue: {kind: droptail, buffer: 530KB}}",
        9,
        "cubic",
        _INCASTS,
    ),
    "incast, lossless": (
        "{kind: flat, hosts: 9, "
        + _LINK
        + ", queue: {kind: lossless, xoff: 140KB, xon: 90KB, buffer: 6MB}}",
        9,
        "cubic",
        _INCASTS,
    ),
}

_STEPS = {
    "dlrm": "{kind: dlrm, ranks: 8, iterations: 2, batch_size: 448, sparse_features: 16, "
    "embedding_dimension: 32, pooling: 20, dense_features: 192, bottom_mlp: [384, 192, 32], "
    "top_mlp: [512, 640, 288, 1], bucket: 600KB}",
    "training": "{kind: training, parallelism: {data: 2, tensor: 2, pipeline: 2}, ranks: 8, "
    "iterations: 2, layers: 4, hidden: 256, batch_size: 8, microbatches: 2}",
}
_TRAINED = {
    f"{name}, leaf-spine, {control}": (
        "{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, "
        + _LINK
        + ", queue: {kind: dctcp, k: 100KB}}",
        control,
        _STEPS[name],
    )
    for name, control in (("dlrm", "dctcp"), ("training", "cubic"))
}


def _text(fabric: str, control: str, workload: str, seed: int) -> str:
    return (
        f"name: held-out\nseed: {seed}\nfabric: {fabric}\n"
        f"transport: {{congestion_control: {control}}}\nworkload: {workload}\n{_REST}"
    )


def _benchmark(ranks: int, operations: tuple[str, ...]) -> str:
    return f"{{kind: collectives, ranks: {ranks}, operations: [{', '.join(operations)}]}}"


def held_out() -> Iterator[tuple[str, str, str]]:
    """(set, name, text) of each spec of the final set."""
    for name, (fabric, ranks, control, operations) in HELD_OUT.items():
        kind = "incast and lossless" if name.startswith("incast") else "fabrics"
        yield kind, name, _text(fabric, control, _benchmark(ranks, operations), 53)
    for name, (fabric, control, workload) in _TRAINED.items():
        yield "steps", name, _text(fabric, control, workload, 59)


def drawn(count: int, seed: int = SEED) -> Iterator[tuple[str, str, str]]:
    """So many random specs of 8 ranks: fabric, queue, congestion control, workload."""
    draw = random.Random(seed)
    for number in range(count):
        rate = draw.choice(("40Gbps", "100Gbps", "200Gbps"))
        delay = draw.choice(("300ns", "1us", "3us", "7us"))
        link = f"link: {{rate: {rate}, delay: {delay}, mtu: {draw.choice((4500, 9000))}}}"
        queue = draw.choice(
            (
                "{kind: droptail, buffer: 4MB}",
                "{kind: droptail, buffer: 800KB}",
                "{kind: dctcp, k: 90KB}",
                "{kind: red, kmin: 100KB, kmax: 400KB, buffer: 4MB}",
                "{kind: shared, buffer: 8MB}",
                "{kind: lossless}",
                "{kind: codel, target: 50us, interval: 1ms}",
                "{kind: voq, buffer: 800KB}",
            )
        )
        fabric, shape = draw.choice(
            (
                ("flat", "hosts: 8"),
                ("leaf-spine", "leaves: 2, spines: 2, hosts_per_leaf: 4"),
                ("torus", "dims: [4, 2]"),
                ("fat-tree", "k: 4"),
            )
        )
        control = draw.choice(("cubic", "dctcp", "reno", "bbr"))
        kind = draw.choice(("collectives", "collectives", "dlrm", "training"))
        if kind == "collectives":
            sizes = [draw.choice(("64KB", "400KB", "1600KB", "6400KB")) for _ in range(4)]
            kinds = ("all_reduce", "all_to_all", "all_gather", "broadcast")
            listed = tuple(
                f"{{kind: {name}, size: {size}}}" for name, size in zip(kinds, sizes, strict=True)
            )
            workload = _benchmark(8, listed)
        else:
            workload = _STEPS[kind]
        name = f"{number}: {fabric}, {queue[7:-1]}, {control}, {kind}, {rate}, {delay}"
        text = _text(f"{{kind: {fabric}, {shape}, {link}, queue: {queue}}}", control, workload, 11)
        yield f"random, {kind}", name, text


def drawn_over_roce(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """So many random specs of 8 ranks over RoCE, each controller in turn."""
    draw = random.Random(seed ^ 1)
    for number in range(count):
        rate = draw.choice(("40Gbps", "100Gbps", "200Gbps"))
        delay = draw.choice(("300ns", "1us", "3us"))
        link = f"link: {{rate: {rate}, delay: {delay}, mtu: 4500}}"
        kmin = draw.choice((30, 60, 100))
        queue = (
            f"{{kind: lossless, xoff: 200KB, xon: 150KB, kmin: {kmin}KB, kmax: {3 * kmin}KB, "
            "buffer: 32MB}"
        )
        fabric, shape = draw.choice(
            (
                ("flat", "hosts: 8"),
                ("leaf-spine", "leaves: 2, spines: 2, hosts_per_leaf: 4"),
                ("fat-tree", "k: 4"),
            )
        )
        control = ("none", "dcqcn", "timely", "hpcc")[number % 4]
        sizes = [draw.choice(("64KB", "400KB", "1600KB", "4MB")) for _ in range(3)]
        kinds = ("all_reduce", "all_to_all", "all_gather")
        listed = tuple(
            f"{{kind: {name}, size: {size}}}" for name, size in zip(kinds, sizes, strict=True)
        )
        text = (
            "name: held-out\nseed: 11\n"
            f"fabric: {{kind: {fabric}, {shape}, {link}, queue: {queue}}}\n"
            f"transport: {{kind: roce, path_mtu: 4096, congestion_control: {control}}}\n"
            "collectives: {backend: programs, all_reduce: {algorithm: ring}, all_to_all: "
            "{algorithm: direct}, all_gather: {algorithm: ring}}\n"
            f"workload: {_benchmark(8, listed)}\n{_REST}"
        )
        name = f"R{number}: {fabric}, {control}, {rate}, {delay}, marks from {kmin} KB"
        yield f"RoCE, {control}", name, text


@dataclass(frozen=True, slots=True)
class Row:
    """A measured time, and the predictions of it; None where there is none."""

    of_set: str
    run: str
    effects: tuple[str, ...]
    """The effects in the run that a prediction may miss."""
    what: str
    measured_ns: int
    predicted_ns: dict[str, float | None]

    @property
    def is_iteration(self) -> bool:
        """Whether it is a whole iteration, and not a collective or message."""
        return self.what.startswith("iteration")


def _effects(run: Run, result: dict[str, Any]) -> tuple[str, ...]:
    """By what the table is taken apart."""
    one_way = isinstance(run.spec.fabric, FlatSpec | TorusSpec)
    control, summary = run.spec.tcp.congestion_control, result["summary"]
    if summary["drops"]:
        met = "packets lost"
    elif summary["ecn_marks"]:
        met = "nothing lost, marks for " + ("DCTCP" if control == "dctcp" else "ECN of RFC 3168")
    else:
        met = "nothing lost or marked"
    return (
        "one path between two ranks" if one_way else "several paths, drawn from the spec",
        met,
        control,
        f"queue {run.spec.fabric.queue.kind}",
        run.spec.workload.kind,
    )


def _duration_ns(whole: PredictedJob, one: MeasuredCollective) -> float | None:
    found = whole.collectives.get((one.iteration, one.id.partition(".")[2], one.ranks))
    return None if found is None else found.duration_ns


def rows_of(of_set: str, name: str, directory: Path) -> Iterator[Row]:
    """A row for each collective, and for each iteration of a step."""
    run = load_run(directory)
    by_predictor = {}
    for label, setting in (
        ("from the spec", setting_of_spec(run.spec)),
        ("with ports", setting_of(run)),
    ):
        try:
            by_predictor[label] = predict_workload(run.spec, setting, Packet())
        except PredictorError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return
    result = json.loads((directory / "result.json").read_text())
    effects = _effects(run, result)
    flow = {
        (row["id"], row["start_ns"], row["end_ns"]): row["predicted"]["flow"]["duration_ns"]
        for row in result["collectives"]
    }
    for one in collectives_of(run):
        answers: dict[str, float | None] = {
            label: _duration_ns(whole, one) for label, whole in by_predictor.items()
        }
        answers["flow"] = flow.get((one.id, one.start_ns, one.end_ns))
        yield Row(of_set, name, effects, one.id, one.duration_ns, answers)
    for row in result["iterations"]:
        if row["compute_ns"]:
            answers = {
                label: whole.iterations[row["index"]].duration_ns
                for label, whole in by_predictor.items()
            }
            answers["flow"] = row["predicted"]["flow"]["duration_ns"]
            what = f"iteration {row['index']}"
            yield Row(of_set, name, effects, what, row["duration_ns"], answers)


_PREDICTORS = ("from the spec", "with ports", "flow")

Bars = dict[str, tuple[Callable[[Row], bool], float | None, float]]

_BARS: Bars = {
    "final held-out set, each collective": (
        lambda row: not row.of_set.startswith("random") and not row.is_iteration,
        0.03,
        0.10,
    ),
    "incast and lossless, completion": (
        lambda row: row.of_set == "incast and lossless",
        0.03,
        0.10,
    ),
    "training steps, each collective and message": (
        lambda row: "training" in row.effects and not row.is_iteration,
        0.05,
        0.15,
    ),
    "training steps, iteration": (
        lambda row: "training" in row.effects and row.is_iteration,
        None,
        0.03,
    ),
    "random specs, each collective": (
        lambda row: row.of_set.startswith("random") and not row.is_iteration,
        0.05,
        0.20,
    ),
}
"""The targets: rows, the geometric mean and the worst of their errors."""

_BARS_OF_SEED: Bars = {
    "each collective of benchmarks": (lambda row: row.of_set == "random, collectives", 0.005, 0.05),
    "training steps, iteration": (lambda row: row.is_iteration, 0.01, 0.10),
    "RoCE, each collective": (lambda row: row.of_set.startswith("RoCE"), 0.02, 0.10),
}
"""The targets of specs that are drawn by another seed."""


def _geomean_and_worst(rows: list[Row], predictor: str) -> tuple[float, float] | None:
    logs = [
        abs(math.log(found / row.measured_ns))
        for row in rows
        if row.measured_ns and (found := row.predicted_ns[predictor])
    ]
    if not logs:
        return None
    return math.expm1(sum(logs) / len(logs)), math.expm1(max(logs))


def _errors(rows: list[Row], predictor: str) -> str:
    found = _geomean_and_worst(rows, predictor)
    return "none" if found is None else f"{found[0]:.1%} / {found[1]:.1%}"


def _verdict(rows: list[Row], predictor: str, mean: float | None, worst: float) -> str:
    found = _geomean_and_worst(rows, predictor)
    if found is None:
        return "none"
    met = (mean is None or found[0] <= mean) and found[1] <= worst
    beyond = sum(
        abs(math.log(answer / row.measured_ns)) > math.log1p(worst)
        for row in rows
        if row.measured_ns and (answer := row.predicted_ns[predictor])
    )
    text = f"{found[0]:.1%} / {found[1]:.1%}"
    return f"{text}, met" if met else f"{text}, missed ({beyond} beyond the worst)"


def bars_of(rows: list[Row], bars: Bars = _BARS) -> str:
    """The targets, and whether it is met."""
    lines = ["| bar | of | asked for | from the spec | with ports |", "|---|---|---|---|---|"]
    for label, (belongs, mean, worst) in bars.items():
        found = [row for row in rows if belongs(row)]
        asked = f"{worst:.0%}" if mean is None else f"{100 * mean:g}% / {worst:.0%}"
        verdicts = " | ".join(_verdict(found, name, mean, worst) for name in _PREDICTORS[:2])
        lines.append(f"| {label} | {len(found)} | {asked} | {verdicts} |")
    return "\n".join(lines)


def table_of(rows: list[Row]) -> str:
    """Geometric mean and worst by set, by effect and by run, of collectives and of iterations."""
    lines = [
        "| what | of | `packet` from the spec | `packet` with ports | `flow`, conditioned |",
        "|---|---|---|---|---|",
    ]

    def add(label: str, found: list[Row]) -> None:
        for what, kept in (
            ("collectives", [row for row in found if not row.is_iteration]),
            ("iterations", [row for row in found if row.is_iteration]),
        ):
            if kept:
                errors = " | ".join(_errors(kept, name) for name in _PREDICTORS)
                lines.append(f"| {label} | {len(kept)} {what} | {errors} |")

    add("**all**", rows)
    for of_set in dict.fromkeys(row.of_set for row in rows):
        add(f"**{of_set}**", [row for row in rows if row.of_set == of_set])
    for effect in sorted({effect for row in rows for effect in row.effects}):
        add(f"*{effect}*", [row for row in rows if effect in row.effects])
    for run in dict.fromkeys(row.run for row in rows):
        add(run, [row for row in rows if row.run == run])
    return "\n".join(lines)


def furthest_off(rows: list[Row], count: int) -> str:
    """The rows that are missed most with the run's ports known."""
    off = [
        (abs(math.log(answer / row.measured_ns)), row, answer)
        for row in rows
        if row.measured_ns and (answer := row.predicted_ns["with ports"])
    ]
    off.sort(key=lambda each: -each[0])
    lines = ["| run | what | measured us | with ports us | met |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.run} | {row.what} | {row.measured_ns / 1000:,.1f} | {answer / 1000:,.1f} "
        f"| {row.effects[1]} |"
        for _, row, answer in off[:count]
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--random", type=int, default=50, help="how many random specs (50)")
    parser.add_argument("--bars", type=Path, help="a page to write what was asked for into")
    parser.add_argument("--seed", type=int, help="draw all specs, by this seed")
    parser.add_argument("--roce", type=int, default=8, help="how many of them over RoCE (8)")
    options = parser.parse_args()
    rows: list[Row] = []
    bars = _BARS if options.seed is None else _BARS_OF_SEED
    specs = [*held_out(), *drawn(options.random)]
    if options.seed is not None:
        over_roce = drawn_over_roce(options.roce, options.seed)
        specs = [*drawn(options.random, options.seed), *over_roce]
    for of_set, name, text in specs:
        try:
            directory = kept_run(text, options.runs)
        except subprocess.CalledProcessError:
            print(f"{name}: the run failed", file=sys.stderr)
            continue
        rows += rows_of(of_set, name, directory)
        print(f"{name}: done", file=sys.stderr)
        if options.bars is not None:
            write_table(options.bars, bars_of(rows, bars))
    print(f"{bars_of(rows, bars)}\n\n{table_of(rows)}\n\n{furthest_off(rows, 40)}")


def write_table(page: Path, table: str) -> None:
    """Put it between the marks of a page."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}")


if __name__ == "__main__":
    main()
