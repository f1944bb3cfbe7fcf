"""Training on FRED's wafer, end to end: iterations on a mesh, and on the fabrics C and D.

    .venv/bin/python -m benchmarks.fred_models [--runs DIR] [--only "GPT-3"] [--json]

Models are layer tables with the shares of bytes that the models have, made small (systems.md, part
5, names the strategies). The fabrics are those of `benchmarks.fred`; endpoints are placed as FRED
has them: model-parallel neighbours, then the pipeline, then data-parallel ones.

What the paper's endpoints compute is not known here. A table's computing is set so that, with the
effective bandwidths of the paper's text, an iteration on C would be as much faster than on the mesh
as is published. So C's ratio measures how near wires come to these bandwidths, and D's is free.
All in the virtual kernel. Runs are kept in DIR; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fred import AGGREGATION, IN_SWITCH, MESH_GBPS, fabric
from testing.kept_runs import kept_run

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("mesh", "C", "D")
GROUP_MESH_GBPS = MESH_GBPS
WAFER_MESH_GBPS = 2 * MESH_GBPS
"""Effective bandwidths of an endpoint on the mesh: of groups, and of all (the corners have two
links), as the paper has 0.75 and 1.5 TB/s."""


@dataclass(frozen=True)
class Model:
    """A model's strategy, and the bytes of its layers: of all a stage's layers together, for a
    microbatch those that are model-parallel.

    `layers` are name, part of the computing, bytes of gradients. `forward_bytes` are reduced in the
    model-parallel group in the forward and again in the backward pass."""

    model: int
    data: int
    stages: int
    microbatches: int
    layers: tuple[tuple[str, float, int], ...]
    forward_bytes: int
    activation_bytes: int
    wafer: bool
    published: dict[str, float]
    gain_of_c: float
    """How many times the mesh's bandwidth C has for these groups, in the paper's text."""

    @property
    def ranks(self) -> int:
        return self.model * self.data * self.stages

    @property
    def mesh_us(self) -> float:
        """Communication of a rank on the mesh at the paper's effective bandwidths."""
        gbps = WAFER_MESH_GBPS if self.wafer else GROUP_MESH_GBPS
        # Nobody needs the gradient of a stage's first input.
        reduced = self.microbatches * (2 * len(self.layers) - 1) * self.forward_bytes
        gradients = sum(size for _, _, size in self.layers)
        sent = 2 * (self.model - 1) / self.model * reduced
        sent += 2 * (self.data - 1) / self.data * gradients
        sent += 2 * self.microbatches * self.activation_bytes * (self.stages > 1)
        return sent * 8 / 1000 / gbps

    @property
    def compute_us(self) -> float:
        """Of an iteration: with it, (compute + mesh) / (compute + mesh / gain) is C's ratio."""
        ratio = self.published["C"]
        return self.mesh_us * (1 - ratio / self.gain_of_c) / (ratio - 1)


MODELS = {
    # 60 million parameters in half precision, a 60th of them; blocks of 3, 8, 36 and 3.
    "ResNet-152": Model(
        model=1,
        data=20,
        stages=1,
        microbatches=1,
        layers=(
            ("conv2-3", 0.23, 84_000),
            ("conv4", 0.70, 1_350_000),
            ("conv5-fc", 0.07, 566_000),
        ),
        forward_bytes=0,
        activation_bytes=0,
        wafer=True,
        published={"C": 1.41, "D": 1.76},
        gain_of_c=2.0,
    ),
    # 78 layers of 4,256; 16 sequences of 1,024: 139 MB are reduced four times a layer, gradients
    # are 12 * 4256^2 / 3 * 2 = 145 MB. A layer a stage, all by 35 smaller; activations, of which a
    # stage of 39 layers has one, by 39 smaller again.
    "Transformer-17B": Model(
        model=3,
        data=3,
        stages=2,
        microbatches=2,
        layers=(("first", 0.5, 2_070_000), ("second", 0.5, 2_070_000)),
        forward_bytes=2_000_000,
        activation_bytes=51_000,
        wafer=False,
        published={"C": 1.75, "D": 1.87},
        gain_of_c=4.0,
    ),
    # 96 layers of 12,288: weights are streamed in, so that no gradients are reduced on the wafer's
    # own account here. Model-parallel groups and the pipeline, in the same measure.
    "GPT-3": Model(
        model=2,
        data=5,
        stages=2,
        microbatches=2,
        layers=(("first", 0.5, 0), ("second", 0.5, 0)),
        forward_bytes=2_000_000,
        activation_bytes=42_000,
        wafer=False,
        published={"C": 1.34, "D": 1.34},
        gain_of_c=4.0,
    ),
}


def spec(model: Model, variant: str) -> str:
    """Two iterations of a model on a fabric."""
    if variant in IN_SWITCH:
        program = "{algorithm: aggregation}"
    elif not model.wafer:
        program = "{algorithm: ring, chunks: 4}"
    elif variant == "mesh":
        program = "{algorithm: torus, ring: ring, chunks: 8}"
    else:
        program = "{algorithm: hierarchical, inside: ring, across: ring, chunks: 8}"
    return f"""
name: fred-model
fabric: {fabric(variant)}
placement: {{{placement(model)}}}
workload:
  kind: layers
  ranks: {model.ranks}
  iterations: 2
  passes: 1
{strategy(model)}
  layers:
{layers(model)}
capture: {{points: []}}
transport: {{congestion_control: dctcp}}
virtual: {{ranks_per_process: {model.ranks}}}
predict: [flow]
collectives: {{backend: programs, all_reduce: {program}}}
{AGGREGATION if variant in IN_SWITCH else ""}"""


def strategy(model: Model) -> str:
    """Of the spec's workload. ResNet's gradients are awaited where they are posted, so that they
    are exposed, as the published ratios have them."""
    if model.model == 1:
        return "  parallelism: data\n  overlap: false"
    lines = ["parallelism: hybrid-data-model", f"innermost: {model.model}"]
    lines += [f"stages: {model.stages}", f"microbatches: {model.microbatches}"]
    lines += [f"activation: {model.activation_bytes}"]
    return "\n".join(f"  {line}" for line in lines)


def layers(model: Model) -> str:
    """A third of the computing is forward, as usual; a microbatch has its part of it. None runs
    beside a collective."""
    lines = []
    for name, part, gradient in model.layers:
        nanoseconds = round(model.compute_us * 1000 * part / 3 / model.microbatches)
        reduced = f", collective: all_reduce, size: {model.forward_bytes}"
        passes = {
            "forward": reduced if model.forward_bytes else "",
            "input_gradient": reduced if model.forward_bytes else "",
            "weight_gradient": f", collective: all_reduce, size: {gradient}" if gradient else "",
        }
        thirds = {"forward": 1, "input_gradient": 2, "weight_gradient": 0}
        cells = [
            f"{key}: {{compute: {thirds[key] * nanoseconds}ns{rest}}}"
            for key, rest in passes.items()
        ]
        lines.append(f"    - {{name: {name}, {', '.join(cells)}}}")
    return "\n".join(lines)


def placement(model: Model) -> str:
    """Ranks are numbered by stage, then data, then model; hosts by data, stage, model."""
    at = {}
    for stage in range(model.stages):
        for data in range(model.data):
            for inner in range(model.model):
                rank = (stage * model.data + data) * model.model + inner
                at[rank] = (data * model.stages + stage) * model.model + inner
    return ", ".join(f"{rank}: h{host}" for rank, host in at.items())


def measured(directory: Path) -> dict[str, float]:
    """Microseconds of the last iteration, measured and by `flow`."""
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result
    last: dict[str, Any] = max(result["iterations"], key=lambda row: row["index"])
    flow = last["predicted"]["flow"]["duration_ns"]
    return {"us": last["duration_ns"] / 1000, "flow us": flow / 1000}


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """In Markdown."""
    lines = [
        "| model | fabric | us | flow | computing | of the mesh | published | ours / published |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, by_variant in found.items():
        model = MODELS[name]
        for variant, row in by_variant.items():
            cells = ["", "", ""]
            if variant != "mesh":
                ratio, published = by_variant["mesh"]["us"] / row["us"], model.published[variant]
                cells = [f"{ratio:.2f}", f"{published:.2f}", f"{ratio / published - 1:+.0%}"]
            times = f"{row['us']:.0f} | {row['flow us']:.0f} | {model.compute_us:.0f}"
            lines.append(f"| {name} | {variant} | {times} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fred")
    parser.add_argument("--only", default=";".join(MODELS), help="models, divided by ;")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        name: {v: measured(kept_run(spec(MODELS[name], v), options.runs)) for v in VARIANTS}
        for name in options.only.split(";")
    }
    print(json.dumps(found) if options.json else table(found))


if __name__ == "__main__":
    main()
