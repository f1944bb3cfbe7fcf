"""A published ratio of two schedules of a pipeline: 1F1B and interleaved 1F1B, of one model.

pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md, table 5: Llama 3.1 405B on 512 H100
(FSDP 8, TP 8, PP 8), a local batch of 32, full recompute, float8: 100 and 128 tokens/s/GPU. By the
code at the commit that it names (torchtitan/parallelisms/pipelining_utils.py) a batch is as many
microbatches as there are ranks in a pipeline, and a rank of the interleaved one has two stages,
16 and 2 x 8 layers in the middle.

A step is a table of layers of 8 stages, one rank each, which stands for the 64 of its stage. The
traffic of tensor-parallel ranks and of FSDP is left out: both schedules send it alike, and how much
of it AsyncTP hides the source does not tell. So there is a ratio, and no rate.

`python -m benchmarks.hardware.pipelines` writes the kept result.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.hardware.kernels import MODELS, kernels
from benchmarks.hardware.training import KEPT as TRAINED
from benchmarks.hardware.training import SCALE
from benchmarks.hardware.training_runs import runs
from groundwire.forecast import predict
from topologies.spec.spec import parse_dict

KEPT = Path(__file__).parents[1] / "results" / "2026-11-28-hardware-pipelines.json"

MEASURED = 128 / 100
STAGES, LAYERS, TENSOR, MICROBATCH = 8, 16, 8, 4


def step_ns(virtual_stages: int) -> int:
    """A step of the pipeline by `packet`, in ns; all of it is a SCALE-th."""
    like = next(run for run in runs() if run.id == "t1.7")
    run = replace(like, model="llama3-405b", gpus=64, sequence=8192)
    run = replace(run, tensor=TENSOR, microbatch=MICROBATCH)
    slower = json.loads(TRAINED.read_text(encoding="utf-8"))["t1.1"]["slower"]
    of = kernels(run, slower)
    part = LAYERS / virtual_stages / SCALE
    layer: dict[str, Any] = {
        "forward": {"compute": _ns(of.forward_s * part)},
        "input_gradient": {"compute": _ns(of.backward_s * part)},
    }
    activation = 2 * run.tokens * MODELS[run.model].hidden // TENSOR // SCALE
    raw = {
        "name": "pipeline",
        "fabric": {
            "kind": "rails",
            "server": "dgx-h100",
            "servers": STAGES,
            "hosts_per_server": 1,
            "links": {"nic": {"rate": f"{run.nic_gbps}Gbps"}},
        },
        "workload": {
            "kind": "layers",
            "ranks": STAGES,
            "parallelism": "hybrid-data-model",
            "innermost": 1,
            "passes": 1,
            "dtype": "bfloat16",
            "microbatches": STAGES,
            "stages": STAGES,
            "virtual_stages": virtual_stages,
            "activation": activation,
            "layers": [{"name": f"part{number}", **layer} for number in range(virtual_stages)],
        },
        "transport": {"initial_window": 1000},
        "payload": "timing",
        "predict": ["packet"],
    }
    answer = predict(parse_dict(raw, "pipeline")).iterations["packet"]
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer.duration_ns


def ratio() -> float:
    """How many times as many tokens a second the interleaved schedule does."""
    return step_ns(1) / step_ns(2)


def _ns(seconds: float) -> str:
    return f"{max(1, round(seconds * 1e9))}ns"


if __name__ == "__main__":
    KEPT.write_text(json.dumps({"ratio": round(ratio(), 4)}, indent=1) + "\n", encoding="utf-8")
