"""Published training rates, held against steps that `packet` follows on the fabric.

A step is a table of layers (`workload.kind: layers`): computing times of a model of kernels, and
what FSDP or data parallelism sends. `packet` follows a step of DEEP layers. The communication that
is exposed there is taken for the whole model, as it is that of the first and the last layer; where
it is more than EXPOSED of the step, a step of SHALLOW layers says what a further one adds. A step's
bytes and computing times are divided by SCALE, and its time multiplied, which leaves what overlaps
what as it is; latencies are SCALE times too large then, by how much of a step was not checked.

The model of kernels has one number that is fitted, a source: the share of the tensor cores' peak
that matrix products reach, so that the row of `training.csv` marked so comes out. All else is
counted or published, and stands below with its source. It was written down before any error was
seen, and not changed after.

`python -m benchmarks.hardware.training` writes the kept result; it takes some minutes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from groundwire.forecast import predict
from topologies.spec.spec import parse_dict

FILE = Path(__file__).parent / "training.csv"
KEPT = Path(__file__).parents[1] / "results" / "2026-11-26-hardware-training.json"

SHALLOW, DEEP = 2, 3
EXPOSED = 0.1
SCALE = 16


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer. `gated` networks have three matrices of `hidden` x `inner`, others two."""

    layers: int
    hidden: int
    key_value: int
    inner: int
    vocabulary: int
    gated: bool

    @property
    def layer_parameters(self) -> int:
        """The parameters of a layer's matrices."""
        attention = 2 * self.hidden * (self.hidden + self.key_value)
        return attention + (3 if self.gated else 2) * self.hidden * self.inner


MODELS: Mapping[str, Model] = {
    # Llama 3.1 8B (arXiv 2407.21783, table 3), Qwen3-8B (arXiv 2505.09388, table 1), MPT (llm-
    # foundry's yaml files), BERT large (arXiv 1810.04805).
    "llama3-8b": Model(32, 4096, 1024, 14336, 128256, True),
    "qwen3-8b": Model(36, 4096, 1024, 12288, 151936, True),
    "mpt-7b": Model(32, 4096, 4096, 16384, 50368, False),
    "mpt-13b": Model(40, 5120, 5120, 20480, 50368, False),
    "mpt-30b": Model(48, 7168, 7168, 28672, 50368, False),
    "bert-large": Model(24, 1024, 1024, 4096, 30528, False),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peaks, and the share of the peak that attention reaches; which servers it is in."""

    flops: float
    memory_bytes_per_s: float
    attention: float
    server: str


GPUS: Mapping[str, Gpu] = {
    # Peaks: NVIDIA's data sheets; of the HBM2e variant what torchtitan's page says. Attention:
    # FlashAttention 2 reaches 35% on H100 (arXiv 2407.08608, abstract), and 50 to 73% of an A100
    # (arXiv 2307.08691, abstract), of which the middle is taken.
    "h100": Gpu(989e12, 3.35e12, 0.35, "dgx-h100"),
    "h100-hbm2e": Gpu(989e12, 2.4e12, 0.35, "dgx-h100"),
    "h200": Gpu(989e12, 4.8e12, 0.35, "dgx-h200"),
    "a100": Gpu(312e12, 2.039e12, 0.615, "dgx-a100"),
}

FLOAT8_FACTOR = 2.0
"""float8 over bfloat16 on the tensor cores (H100 data sheet: 1979 and 989 TFLOPS)."""


@dataclass(frozen=True, slots=True)
class Run:
    """A published rate, of tokens or sequences a second of a GPU."""

    id: str
    source: str
    measured_on: str
    model: str
    gpu: str
    gpus: int
    technique: str
    recompute: str
    sequence: int
    microbatch: int
    accumulation: int
    tensor: int
    context: int
    nic_gbps: int
    unit: str
    value: float
    fitted: bool
    compared_with: str
    not_stated: str

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch that one GPU works on, all its tensor-parallel peers alike."""
        return self.microbatch * self.sequence // self.context


@dataclass(frozen=True, slots=True)
class Kernels:
    """Seconds that a GPU computes for a microbatch: of a layer, forward and backward with what is
    recomputed; of embedding, head and loss; and of a step's optimizer."""

    forward_s: float
    backward_s: float
    head_s: float
    optimizer_s: float


def kernels(run: Run, share: float) -> Kernels:
    """The computing of a GPU whose matrix products reach this share of the peak."""
    model, gpu = MODELS[run.model], GPUS[run.gpu]
    tokens, split = run.tokens, run.tensor
    faster = FLOAT8_FACTOR if run.technique == "float8" else 1.0
    products_s = 2 * model.layer_parameters * tokens / split / (gpu.flops * share * faster)
    # Causal attention does half of 4 x sequence x hidden; BERT's is not causal.
    whole = 2.0 if run.technique == "bert" else 1.0
    attention_flops = 2 * whole * run.sequence * model.hidden * tokens / split
    attention_s = attention_flops / (gpu.flops * gpu.attention)
    other_s = _elementwise_bytes(run, model) * tokens / gpu.memory_bytes_per_s
    forward = products_s + attention_s + other_s
    again = {
        "none": 0.0,
        # Every second matrix product, and what is elementwise: torchtitan's selective policy.
        "selective": products_s / 2 + other_s,
        "full": forward,
    }[run.recompute]
    # FlashAttention's backward pass does 2.5 times the forward's operations (arXiv 2307.08691).
    backward = 2 * products_s + 2.5 * attention_s + 2 * other_s + again
    head_flops = 6 * model.vocabulary * model.hidden * tokens / split
    # Logits in 16 bits, then in 32 for the loss: 28 bytes of each there and back, 10 if fused.
    logit_bytes = (28 if run.technique in ("eager", "bert") else 10) * model.vocabulary
    head_s = head_flops / (gpu.flops * share)
    head_s += logit_bytes * tokens / split / gpu.memory_bytes_per_s
    parameters = model.layers * model.layer_parameters + 2 * model.vocabulary * model.hidden
    shards = run.gpus if run.technique != "bert" else 1
    # Adam reads weight, gradient and two moments and writes three of them, 4 bytes each.
    optimizer_s = 28 * parameters / shards / gpu.memory_bytes_per_s
    return Kernels(forward, backward, head_s, optimizer_s)


def _elementwise_bytes(run: Run, model: Model) -> float:
    """Memory that a layer's forward pass moves beside its products, a token, counted by operation:
    norms, residuals, rotary embeddings, repeated keys and values, activations; float8's casts."""
    hidden, inner = model.hidden, model.inner
    if run.technique == "bert":
        # Two norms, two residuals, two dropouts, GELU; scores and their softmax and dropout are
        # written: 16 heads.
        return 36 * hidden + 4 * inner + 16 * 10 * run.sequence
    if not model.gated:
        return 20 * hidden + 4 * inner
    if run.technique == "eager":
        return 117 * hidden + 10 * inner
    fused = 29 * hidden + 6 * inner
    return fused + (5 * (3 * hidden + inner) if run.technique == "float8" else 0)


def step_s(run: Run, share: float) -> float:
    """Seconds of a step of one microbatch's communication and computing, as `packet` has them, with
    those of the further microbatches."""
    model = MODELS[run.model]
    of = kernels(run, share)
    if run.technique == "bert":
        micro_s = model.layers * (of.forward_s + of.backward_s) + of.head_s
        return run.accumulation * micro_s + of.optimizer_s + _all_reduce_s(run)
    compute_s = of.forward_s + of.backward_s
    deep_s = _layers_s(run, of, DEEP)
    exposed_s = deep_s - DEEP * compute_s
    micro_s = model.layers * compute_s + exposed_s
    if exposed_s > EXPOSED * deep_s:
        each_s = (deep_s - _layers_s(run, of, SHALLOW)) / (DEEP - SHALLOW)
        micro_s = deep_s + (model.layers - DEEP) * each_s
    return run.accumulation * (micro_s + of.head_s) + of.optimizer_s


def rate(run: Run, share: float) -> float:
    """Tokens or sequences a second of a GPU."""
    sequences = run.microbatch * run.accumulation / run.tensor / run.context
    each = 1 if run.unit.startswith("sequences") else run.sequence
    return sequences * each / step_s(run, share)


def _layers_s(run: Run, of: Kernels, count: int) -> float:
    """Seconds of one microbatch of so many layers."""
    model, scale = MODELS[run.model], SCALE
    groups = run.tensor * run.context
    shards = run.gpus // groups
    parameters = model.layer_parameters // run.tensor
    gathered = max(2, 2 * parameters // scale // shards // 2 * 2)
    # llm-foundry's PURE rows reduce gradients in 16 bits, all others in 32.
    reduced = 2 if "PURE" in run.measured_on else 4
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
            # Keys and values of all are gathered before attention, and their gradients come back.
            pairs = 4 * run.tokens * model.key_value // scale
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
            size = gathered * shards * reduced // 2 // halves // shards // 4 * 4 * shards
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
def _all_reduce_s(run: Run) -> float:
    """Seconds of the all-reduce of all gradients in 16 bits, after the last microbatch."""
    model = MODELS[run.model]
    parameters = model.layers * model.layer_parameters + model.vocabulary * model.hidden
    size = 2 * parameters // SCALE // 1024 * 1024
    layer = {"name": "all", "weight_gradient": {"collective": "all_reduce", "size": size}}
    workload = {
        "kind": "layers",
        "ranks": run.gpus,
        "parallelism": "data",
        "passes": 1,
        "dtype": "bfloat16",
        "layers": [layer],
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
        "collectives": {"backend": "nccl"},
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


def fitted_share(run: Run) -> float:
    """The share of the peak with which a row comes out, to a thousandth of the rate. Raises
    RuntimeError where none does."""
    low, high = 0.5, 0.6
    at_low = rate(run, low) / run.value - 1
    for _ in range(6):
        at_high = rate(run, high) / run.value - 1
        if abs(at_high) < 1e-3:
            return high
        following = high - at_high * (high - low) / (at_high - at_low)
        low, at_low, high = high, at_high, min(1.0, max(0.05, following))
    raise RuntimeError(f"{run.id}: no share of the peak gives {run.value}")


def runs() -> tuple[Run, ...]:
    """All rows, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Run(
                row["id"],
                row["source"],
                row["measured_on"],
                row["model"],
                row["gpu"],
                int(row["gpus"]),
                row["technique"],
                row["recompute"],
                int(row["sequence"]),
                int(row["microbatch"]),
                int(row["accumulation"]),
                int(row["tensor"]),
                int(row["context"]),
                int(row["nic_gbps"]),
                row["unit"],
                float(row["value"]),
                row["role"] == "fitted",
                row["compared_with"],
                row["not_stated"],
            )
            for row in csv.DictReader(file)
        )


def main() -> None:
    """Predict all rows, and keep what they give."""
    found: dict[str, dict[str, float]] = {}
    shares: dict[str, float] = {}
    for run in sorted(runs(), key=lambda one: not one.fitted):
        if run.fitted:
            shares[run.source] = fitted_share(run)
        value = rate(run, shares[run.source])
        found[run.id] = {"value": round(value, 4), "share": round(shares[run.source], 4)}
        print(run.id, run.value, found[run.id], f"{value / run.value - 1:+.1%}", flush=True)
    ordered = {run.id: found[run.id] for run in runs()}
    KEPT.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
