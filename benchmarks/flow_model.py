"""How near `flow`, or another predictor, is to `packet`, on sets of collectives and iterations.

    python benchmarks/flow_model.py [--set suite,windows,programs,chunks,iterations] [--largest 4MB]

Sets: the standard suite's 128 collectives (`groundwire calibrate --suite standard`), whose windows
do not limit; all kinds on four fabrics with Linux's windows; programs on three fabrics; the
same on one switch, in eight chunks of which two are in flight; the iterations of five specs in
topologies/. `packet` is the guest's time nearly everywhere (docs/packet.md).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from analysis.calibration.suite import standard_suite
from analysis.predict.interface import Predictor, load_predictor
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveError
from topologies.spec.spec import Spec, load_spec, parse_spec
from topologies.units import parse_size_bytes
from workloads.models.planned import planned_calls

_FABRICS = {
    "flat": "kind: flat, hosts: 8",
    "fat-tree": "kind: fat-tree, k: 4",
    "leaf-spine": "kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4",
    "torus": "kind: torus, dims: [2, 4]",
}
_KINDS = ("all_reduce", "all_gather", "all_to_all", "broadcast", "reduce_scatter", "gather")
_ALGORITHMS = ("ring", "double-binary-tree", "halving-doubling", "direct")
_SIZES = ("16KB", "256KB", "1MB", "4MB")
_ITERATIONS = ("dlrm-fat-tree-k4", "leaf-spine", "torus-4x4", "two-hosts", "in-network-fat-tree-k4")

Answers = Callable[[Predictor], float]


def _spec(fabric: str, kind: str, size: str, collectives: str = "{backend: gloo}") -> Spec:
    link = "link: {rate: 100Gbps, delay: 500ns, mtu: 9000}, queue: {kind: droptail, buffer: 64MB}"
    return parse_spec(
        f"""
name: {fabric}
fabric: {{{_FABRICS[fabric]}, {link}}}
workload: {{kind: collectives, ranks: 8, operations: [{{kind: {kind}, size: {size}}}]}}
collectives: {collectives}
"""
    )


def _collectives(spec: Spec) -> Iterator[tuple[str, Answers]]:
    setting = setting_of_spec(spec)
    for planned in planned_calls(spec):
        call = planned.call
        name = f"{spec.name} {call.kind} {call.size_bytes}"
        yield name, lambda by, call=call: by.predict(setting, call)  # type: ignore[misc]


def _iteration(spec: Spec) -> Answers:
    def answer(by: Predictor) -> float:
        return float(predict_workload(spec, setting_of_spec(spec), by).iterations[0].duration_ns)

    return answer


def _cases(of: str, largest_bytes: int) -> Iterator[tuple[str, Answers]]:
    match of:
        case "suite":
            for spec in standard_suite(largest_bytes):
                yield from _collectives(spec)
        case "windows":
            for fabric in _FABRICS:
                for kind in _KINDS:
                    for size in _SIZES:
                        yield from _collectives(_spec(fabric, kind, size))
        case "programs" | "chunks":
            whole = of == "programs"
            for fabric in ("flat", "fat-tree", "leaf-spine") if whole else ("flat",):
                for name in _ALGORITHMS:
                    cut = "" if whole else ", chunks: 8, in_flight: 2"
                    programs = f"{{backend: programs, all_reduce: {{algorithm: {name}}}{cut}}}"
                    for size in _SIZES:
                        spec = _spec(fabric, "all_reduce", size, programs)
                        for case, answer in _collectives(spec):
                            yield f"{name} {case}", answer
        case "iterations":
            for name in _ITERATIONS:
                yield name, _iteration(load_spec(Path(f"topologies/{name}.yaml")))


def _row(table: Table, of: str, model: str, largest_bytes: int, every: bool) -> None:
    predictors = {name: load_predictor(name) for name in (model, "packet")}
    errors: dict[str, float] = {}
    took = dict.fromkeys(predictors, 0.0)
    for name, answer in _cases(of, largest_bytes):
        found = {}
        try:
            for key, predictor in predictors.items():
                began = time.monotonic()
                found[key] = answer(predictor)
                took[key] += time.monotonic() - began
        except CollectiveError:
            continue  # not followed by both
        if found["packet"]:
            errors[name] = math.log(found[model] / found["packet"])
            if every:
                print(f"{name} {found['flow']:.0f} {found['packet']:.0f}")
    sizes = [abs(error) for error in errors.values()]
    worst = max(errors, key=lambda name: abs(errors[name]))
    table.add_row(
        of,
        str(len(errors)),
        f"{math.expm1(sum(sizes) / len(sizes)):.1%}",
        f"{math.expm1(max(sizes)):.1%}",
        worst,
        f"{took[model]:.1f}",
        f"{took['packet']:.1f}",
    )


def main() -> None:
    """Print a row for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--set", default="suite,windows,programs,iterations", metavar="SET,...")
    parser.add_argument("--predictor", default="flow", metavar="NAME", help="beside packet")
    parser.add_argument("--largest", default="64MB", metavar="SIZE", help="of the suite")
    parser.add_argument("--every", action="store_true", help="print each case as well")
    given = parser.parse_args()
    table = Table("set", "cases", "geomean", "worst", "which", f"{given.predictor}, s", "packet, s")
    for of in given.set.split(","):
        _row(table, of, given.predictor, parse_size_bytes(given.largest), given.every)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
