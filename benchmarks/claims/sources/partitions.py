"""Networks split over workers (RePurpose)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import ROOT, Bench, Experiment
from benchmarks.claims.rules import AtLeast, AtMost
from benchmarks.partitions import result_of

_SOURCE = "Abdi et al., AAAI 2023 (RePurpose), abstract"
_OURS = "our reconstruction: formulas and data sets are not published"


def _case(bench: Bench, spec: str, assignment: str, cost: str) -> tuple[float, float, float]:
    """Bytes across, microseconds of the last iteration, accuracy."""
    bench.take((ROOT / "topologies" / f"{spec}.yaml").read_text() + assignment + cost)
    result = result_of(spec, assignment, cost, bench.runs)
    split, last = result["partition"], result["iterations"][-1]
    return split["bytes_across"], last["duration_ns"] / 1000, split["accuracy"]


def _blocks(bench: Bench) -> Mapping[str, Any]:
    across, us, accuracy = _case(bench, "partition-blocks", "munkres", "1")
    other, other_us, _ = _case(bench, "partition-blocks", "contiguous", "1")
    return {
        "bytes": across, "us": us, "accuracy": accuracy, "in_order_bytes": other,
        "in_order_us": other_us,
    }  # fmt: skip


def _trained(bench: Bench) -> Mapping[str, Any]:
    found: dict[str, dict[str, float]] = {"fewer_bytes": {}, "faster": {}, "munkres_us": {}}
    found["in_order_us"], found["accuracy_lost"] = {}, {}
    for spec in ("mlp-4", "cnn-4"):
        across, us, accuracy = _case(bench, f"partition-{spec}", "munkres", "1")
        other, other_us, _ = _case(bench, f"partition-{spec}", "contiguous", "1")
        _, _, whole = _case(bench, f"partition-{spec}", "munkres", "0")
        found["fewer_bytes"][spec] = 1 - across / other
        found["faster"][spec] = other_us / us
        found["munkres_us"][spec], found["in_order_us"][spec] = us, other_us
        found["accuracy_lost"][spec] = whole - accuracy
    return found


BLOCKS = Experiment("partition-blocks", "virtual kernel", _blocks)
TRAINED = Experiment("partition-trained", "virtual kernel", _trained)

CLAIMS = (
    Claim(
        "repurpose-blocks",
        "Neurons assigned to workers by Munkres need little communication",
        _SOURCE,
        "no figure",
        "a block-diagonal network behind a permutation needs none",
        setting=f"`partition-blocks`, 4 workers; {_OURS}",
        experiment=BLOCKS,
        shows="{bytes:.0f} bytes across; {in_order_bytes:,.0f} with neurons in order",
        rules=(AtMost("bytes", 0),),
    ),
    Claim(
        "repurpose-trained",
        "The same on trained networks, without retraining",
        _SOURCE,
        "no figure",
        setting=f"an MLP and a CNN on 4 workers, equal costs, beside neurons in order; {_OURS}",
        experiment=TRAINED,
        shows="{fewer_bytes[mlp-4]:.0%} and {fewer_bytes[cnn-4]:.0%} fewer bytes; "
        "{faster[mlp-4]:.2f} and {faster[cnn-4]:.2f} times as fast",
        rules=(
            AtLeast("fewer_bytes.mlp-4", 0.1),
            AtLeast("fewer_bytes.cnn-4", 0.1),
            AtLeast("faster.mlp-4", 1.0),
            AtLeast("faster.cnn-4", 1.0),
        ),
    ),
    Claim(
        "repurpose-accuracy",
        "The network keeps its accuracy without retraining",
        _SOURCE,
        "no figure",
        "within a point of the network that is not pruned, at equal costs",
        setting=f"an MLP and a CNN on 4 workers, digits of scikit-learn's kind; {_OURS}",
        experiment=TRAINED,
        shows="{accuracy_lost[mlp-4]:.1%} and {accuracy_lost[cnn-4]:.1%} of the answers are lost",
        rules=(AtMost("accuracy_lost.mlp-4", 0.01), AtMost("accuracy_lost.cnn-4", 0.01)),
    ),
)
