"""Published training rates, held against steps that `packet` follows on the fabric.

A step is a table of layers (`workload.kind: layers`): computing times of a model of kernels, and
what FSDP or data parallelism sends. `packet` follows a step of DEEP layers. The communication that
is exposed there is taken for the whole model, as it is that of the first and the last layer; where
it is more than EXPOSED of the step, a step of SHALLOW layers says what a further one adds. A step's
bytes and computing times are divided by SCALE, and its time multiplied, which leaves what overlaps
what as it is; latencies are SCALE times too large then, by how much of a step was not checked, and
kernels' launches are left out.

Where a layer's host takes longer than its device (`hosts.py`), the device waits for it.

`kernels.py` has the computing times, by published shares of the peaks. One number is fitted, a
source: how many times longer the tensor cores take than that, so that the row of `training.csv`
marked so comes out. It has what clocks under a limit of power and gaps between kernels cost;
memory's own clock is not limited, so kernels that move memory keep their time. All else is counted
or published, and stands with its source. The first model was written down before any error was
seen. This one was made after: sources were looked for where the first one missed. No constant was
chosen by a row.

`python -m benchmarks.hardware.training` writes the kept result; it takes some minutes. Given rows
alone are followed anew, with the number that was fitted, those of the role `planned` too: `python
-m benchmarks.hardware.training t1.4 t1.11`. Such a row is held out, by its role, once it is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.hardware.hosts import host_s
from benchmarks.hardware.kernels import GPUS, MODELS, Kernels, kernels
from benchmarks.hardware.training_runs import Run, runs
from groundwire.forecast import predict
from topologies.spec.spec import parse_dict

KEPT = Path(__file__).parents[1] / "results" / "2026-11-26-hardware-training.json"

SHALLOW, DEEP = 2, 3
EXPOSED = 0.1
SCALE = 16


def step_s(run: Run, slower: float) -> float:
    """Seconds of a step of one microbatch's communication and computing, as `packet` has them, with
    those of the further microbatches."""
    model = MODELS[run.model]
    of = kernels(run, slower)
    if run.bert:
        micro_s = model.layers * (of.forward_s + of.backward_s) + of.head_s
        # Gradients of all are reduced in 16 bits after the last microbatch.
        parameters = model.layers * model.layer_parameters + model.vocabulary * model.hidden
        reduced_s = _alone_s(run, "all_reduce", 2 * parameters)
        return run.accumulation * micro_s + of.optimizer_s + reduced_s
    compute_s = of.forward_s + of.backward_s
    deep_s = _layers_s(run, of, DEEP)
    exposed_s = deep_s - DEEP * compute_s
    micro_s = model.layers * compute_s + exposed_s
    if exposed_s > EXPOSED * deep_s:
        each_s = (deep_s - _layers_s(run, of, SHALLOW)) / (DEEP - SHALLOW)
        micro_s = deep_s + (model.layers - DEEP) * each_s
    if run.waits:
        reduced_s = _alone_s(run, "reduce_scatter", 2 * model.layer_parameters)
        forward_s, backward_s = host_s(run, model)
        idle_s = max(0.0, forward_s - of.forward_s)
        idle_s += max(0.0, backward_s - of.backward_s - reduced_s)
        micro_s += model.layers * (reduced_s + idle_s)
    return run.accumulation * (micro_s + of.head_s) + of.optimizer_s


def rate(run: Run, slower: float) -> float:
    """Tokens or sequences a second of a GPU."""
    sequences = run.microbatch * run.accumulation / run.tensor / run.context
    each = 1 if run.unit.startswith("sequences") else run.sequence
    return sequences * each / step_s(run, slower)


def _layers_s(run: Run, of: Kernels, count: int) -> float:
    """Seconds of one microbatch of so many layers."""
    model, scale = MODELS[run.model], SCALE
    groups = run.tensor * run.context
    shards = run.gpus // groups
    parameters = model.layer_parameters // run.tensor
    sent = 4 if run.mixed else 2
    gathered = max(2, sent * parameters // scale // shards // 2 * 2)
    # llm-foundry reduces gradients in 16 bits, all others in 32.
    reduced = 2 if run.mixed or "PURE" in run.measured_on else 4
    activation = 2 * run.tokens * model.hidden // scale // 2 * 2
    halves = 2 if run.tensor > 1 else 1

    def one(index: int) -> dict[str, Any]:
        """A layer, or its half: with sequence parallelism each of attention and feed-forward
        gathers its input and scatters its output, which is an all-reduce."""
        forward: dict[str, Any] = {"compute": _ns(of.forward_s / halves / scale)}
        backward: dict[str, Any] = {"compute": _ns(of.backward_s / halves / scale / 2)}
        if run.tensor > 1:
            forward |= {"collective": "all_reduce", "size": activation}
            backward |= {"collective": "all_reduce", "size": activation}
        if run.context > 1:
            # Keys and values of all are gathered before attention, and their gradients come back;
            # they were repeated for all heads before (torchtitan models/llama/model.py, repeat_kv).
            pairs = 4 * run.tokens * model.hidden // scale
            forward |= {"collective": "all_gather", "size": pairs}
            backward |= {"collective": "reduce_scatter", "size": pairs * run.context}
        weight: dict[str, Any] = {"compute": _ns(of.backward_s / halves / scale / 2)}
        found: dict[str, Any] = {
            "name": f"layer{index}",
            "forward": forward,
            "input_gradient": backward,
            "weight_gradient": weight,
        }
        if shards > 1:
            size = gathered * shards * reduced // sent // halves // shards // 4 * 4 * shards
            if not run.waits:
                weight |= {"collective": "reduce_scatter", "size": size}
            found["parameter_shard"] = gathered // halves // 2 * 2
        return found

    workload = {
        "kind": "layers",
        "ranks": run.gpus,
        "parallelism": "hybrid-data-model",
        "innermost": groups,
        "passes": 1,
        "dtype": "bfloat16",
        "layers": [one(index) for index in range(count * halves)],
    }
    return scale * _packet_s(run, workload)


@cache
def _alone_s(run: Run, kind: str, size_bytes: int) -> float:
    """Seconds of a collective of all GPUs beside which nothing is done."""
    size = size_bytes // SCALE // 1024 * 1024
    workload = {
        "kind": "layers",
        "ranks": run.gpus,
        "parallelism": "data",
        "passes": 1,
        "dtype": "bfloat16",
        "layers": [{"name": "all", "weight_gradient": {"collective": kind, "size": size}}],
    }
    return SCALE * _packet_s(run, workload)


def _packet_s(run: Run, workload: dict[str, Any]) -> float:
    servers = -(-run.gpus // 8)
    nic = {"rate": f"{run.nic_gbps}Gbps"}
    raw = {
        "name": "training",
        "fabric": {
            "kind": "rails",
            "server": GPUS[run.gpu].server,
            "servers": servers,
            "hosts_per_server": min(8, run.gpus),
            "links": {"nic": nic, "spine": nic},
        },
        "workload": workload,
        # A launch would be SCALE times too long; most are hidden.
        "collectives": {"backend": "nccl", "launch": "0ns"},
        "transport": {"initial_window": 1000},
        "payload": "timing",
        "predict": ["packet"],
    }
    answer = predict(parse_dict(raw, run.id)).iterations["packet"]
    if isinstance(answer, str):
        raise RuntimeError(f"{run.id}: {answer}")
    return answer.duration_ns / 1e9


def _ns(seconds: float) -> str:
    return f"{max(1, round(seconds * 1e9))}ns"


def fitted(run: Run) -> float:
    """How many times longer tensor cores take so that a row comes out, to a thousandth of the rate.
    Raises RuntimeError where nothing gives it."""
    low, high = 1.4, 1.5
    at_low = rate(run, low) / run.value - 1
    for _ in range(6):
        at_high = rate(run, high) / run.value - 1
        if abs(at_high) < 1e-3:
            return high
        following = high - at_high * (high - low) / (at_high - at_low)
        low, at_low, high = high, at_high, min(5.0, max(0.5, following))
    raise RuntimeError(f"{run.id}: no time of the tensor cores gives {run.value}")


def main(wanted: Collection[str]) -> None:
    """Predict all rows, or those that are wanted, and keep what they give."""
    every = runs(planned=True)
    if unknown := sorted(set(wanted) - {run.id for run in every}):
        found_rows, allowed = " ".join(unknown), " ".join(run.id for run in every)
        raise SystemExit(f"error: found rows {found_rows}, allowed: {allowed}")
    found: dict[str, dict[str, float]] = {}
    if wanted:
        found = json.loads(KEPT.read_text(encoding="utf-8"))
    slower = {run.source: found[run.id]["slower"] for run in every if run.id in found}
    chosen = [run for run in every if run.id in wanted] if wanted else list(runs())
    for run in sorted(chosen, key=lambda one: not one.fitted):
        if run.fitted:
            slower[run.source] = round(fitted(run), 4)
        value = rate(run, slower[run.source])
        found[run.id] = {"value": round(value, 4), "slower": slower[run.source]}
        print(run.id, run.value, found[run.id], f"{value / run.value - 1:+.1%}", flush=True)
    ordered = {run.id: found[run.id] for run in every if run.id in found}
    KEPT.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
