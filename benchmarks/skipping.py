"""How far `packet-skipping` is from `packet` on specs that are drawn by a seed, and what it saves.

    .venv/bin/python -m benchmarks.skipping [--seed N] [--count N]
    .venv/bin/python -m benchmarks.skipping --spec FILE   # of this spec alone

Each drawn spec is a training step of 8 to 16 ranks (fabric, queue, transport, algorithm, sizes and
parallelism are drawn). A row has how far off its iteration is, and its collectives in the mean;
the error that the answer states of the iteration, and the share of collectives and messages that
are at most as far off as it states of them; and packets' passages of ports that were followed.
Beside it is `packet` on the same step whose microbatches hold a token more each: what so small a
change does to an iteration is the least that any prediction of it can be off.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from analysis.predict.models.packet import Packet
from analysis.predict.models.packet_skipping import PacketSkipping
from analysis.predict.planned_run import PredictedJob, predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import Spec, load_spec, parse_spec

_FABRICS = (
    "{{kind: flat, hosts: {hosts}, {rest}}}",
    "{{kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4, {rest}}}",
    "{{kind: fat-tree, k: 4, {rest}}}",
)
_TCP = (
    ("{congestion_control: cubic}", "{kind: droptail, buffer: 4MB}"),
    ("{congestion_control: reno}", "{kind: droptail, buffer: 4MB}"),
    ("{congestion_control: dctcp}", "{kind: dctcp, k: 100KB, buffer: 4MB}"),
)
_LOSSLESS = "{kind: lossless, kmin: 100KB, kmax: 400KB}"
_ROCE = tuple(
    (f"{{kind: roce, congestion_control: {control}}}", _LOSSLESS)
    for control in ("none", "dcqcn", "timely")
)
_PARALLELISM = ((4, 1, 2), (4, 2, 1), (8, 2, 1), (4, 2, 2), (4, 4, 1), (2, 4, 2))
_ALGORITHMS = ("ring", "halving-doubling", "direct")


def draw(seed: int, number: int, more_tokens: int = 0) -> str:
    """A spec of a training step."""
    chosen = random.Random(f"{seed}/{number}")
    roce = chosen.random() < 0.4
    transport, queue = chosen.choice(_ROCE if roce else _TCP)
    tensor, pipeline, data = chosen.choice(_PARALLELISM)
    rate, mtu = chosen.choice((100, 400)), chosen.choice((1500, 9000))
    rest = f"link: {{rate: {rate}Gbps, delay: 500ns, mtu: {mtu}}}, queue: {queue}"
    fabric = chosen.choice(_FABRICS).format(hosts=tensor * pipeline * data, rest=rest)
    programs = roce or chosen.random() < 0.3
    backend = "gloo"
    if programs:
        backend = f"programs, all_reduce: {{algorithm: {chosen.choice(_ALGORITHMS)}}}"
    hidden, sequence = chosen.choice((512, 1024)), chosen.choice((256, 512))
    layers, microbatches = chosen.choice((8, 16)), chosen.choice((4, 8, 16))
    return f"""
name: drawn-{seed}-{number}
fabric: {fabric}
transport: {transport}
workload:
  kind: training
  parallelism: {{tensor: {tensor}, pipeline: {pipeline}, data: {data}}}
  iterations: 1
  layers: {layers}
  hidden: {hidden}
  sequence: {sequence + more_tokens}
  microbatches: {microbatches}
  dtype: float16
collectives: {{backend: {backend}}}
"""


def followed(spec: Spec, predictor: Packet) -> PredictedJob:
    """The prediction of a spec, by a predictor that keeps its timeline."""
    return predict_workload(spec, setting_of_spec(spec), predictor)


def errors(exact: PredictedJob, other: PredictedJob) -> tuple[float, float]:
    """How far off the iteration is, and the collectives in the mean."""
    off = [
        abs(other.collectives[key].duration_ns / one.duration_ns - 1)
        for key, one in exact.collectives.items()
        if one.duration_ns
    ]
    whole = other.iterations[0].duration_ns / exact.iterations[0].duration_ns - 1
    return abs(whole), mean(off)


def share_within(exact: PredictedJob, other: PredictedJob) -> float:
    """The share of collectives and messages that are at most as far off as is stated of them."""
    return mean(
        abs(other.collectives[key].duration_ns - one.duration_ns)
        <= (other.collectives[key].error_ns or 0)
        for key, one in exact.collectives.items()
    )


def rows(seed: int, count: int) -> Iterator[tuple[str, float, float, float, float, float, float]]:
    """Yields what each spec is, iteration, collectives, what it states of the iteration, the share
    of collectives that what it states holds for, what a token does, and the share of passages that
    were followed."""
    for number in range(count):
        text = draw(seed, number)
        spec = parse_spec(text)
        exact, skipping = Packet(), PacketSkipping()
        known, found = followed(spec, exact), followed(spec, skipping)
        again = followed(parse_spec(draw(seed, number, 1)), Packet())
        assert exact.last is not None
        assert skipping.last is not None
        whole, each = errors(known, found)
        stated = (found.iterations[0].error_ns or 0) / found.iterations[0].duration_ns
        token, _ = errors(known, again)
        share = skipping.last.hops / exact.last.hops
        fabric = spec.fabric.kind
        yield (
            f"{fabric}, {'RoCE' if spec.transport.of_programs else spec.tcp.congestion_control}",
            whole,
            each,
            stated,
            share_within(known, found),
            token,
            share,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--spec", type=Path)
    arguments = parser.parse_args()
    console = Console(width=140)
    if arguments.spec is not None:
        spec = load_spec(arguments.spec)
        exact, skipping = Packet(), PacketSkipping()
        known, found = followed(spec, exact), followed(spec, skipping)
        for name, one, job in (("packet", exact, known), ("packet-skipping", skipping, found)):
            assert one.last is not None
            took = f"{one.last.processor_s:.1f} s of the engine, {one.last.hops:,} passages"
            console.print(f"{name}: {job.iterations[0].duration_ns / 1e6:.3f} ms, {took}")
        whole, each = errors(known, found)
        console.print(f"iteration {whole:.2%} off, collectives {each:.2%} in the mean")
        return
    table = Table(
        "number",
        "spec",
        "iteration",
        "collectives",
        "states",
        "holds for",
        "a token more",
        "followed",
    )
    kept = []
    for number, (what, *figures) in enumerate(rows(arguments.seed, arguments.count)):
        kept.append(figures)
        table.add_row(str(number), what, *(f"{figure:.2%}" for figure in figures))
        console.print(number, what, *(f"{figure:.2%}" for figure in figures))
    table.add_row("", "mean", *(f"{mean(column):.2%}" for column in zip(*kept, strict=True)))
    console.print(table)
    held = sum(whole <= stated for whole, _, stated, *_ in kept)
    console.print(f"the iteration is at most as far off as stated in {held} of {len(kept)}")


if __name__ == "__main__":
    main()
