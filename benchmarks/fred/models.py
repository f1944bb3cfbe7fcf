"""Training end to end: iterations on a mesh, and on the fabrics C and D.

Models are layer tables with the shares of bytes that the models have, made small (systems.md, part
5, names the strategies). Endpoints are placed as FRED has them: model-parallel neighbours, then the
pipeline, then data-parallel ones. Collectives that are under way together have FRED's priorities.

The computing of the paper's endpoints is not known here. A table's computing is set so that, with
the effective bandwidths of the paper's text, an iteration on C would be as much faster than on the
mesh as is published. So C's ratio measures how near wires come to these bandwidths, and D's is
free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.fred.fabrics import MESH_GBPS, fabric, group_program, settings, wafer_program
from benchmarks.fred.streams import (
    CHANNEL_MBPS,
    CONTROLLERS,
    MESH_SHARE,
    RANKS,
    fabric_with_controllers,
    stream_program,
    stream_section,
)
from benchmarks.fred.table import Case

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
        """The computing of an iteration: with it, (compute + mesh) / (compute + mesh / gain) is C's
        ratio."""
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


STREAMED = "Transformer-1T"
STREAMED_GAIN = 1.40
"""The gain of C and D, as published."""
STREAMED_LAYERS, STREAMED_LAYER_BYTES = 2, 4_500_000
"""Two layers for 128 layers of 25,600 with 15.7 GB each, 3,500 times smaller. Data-parallel over
the wafer."""
STREAMED_LINE_US = 3 * STREAMED_LAYERS * STREAMED_LAYER_BYTES * 8 / (CONTROLLERS * CHANNEL_MBPS)
"""In, in again for the backward pass, and out, at the controllers' rate."""
STREAMED_COMPUTE_US = STREAMED_LINE_US * (1 / MESH_SHARE - STREAMED_GAIN) / (STREAMED_GAIN - 1)
"""With it the mesh, at its share of that rate, would take 1.40 times as long."""
NAMES = (*MODELS, STREAMED)


def cases(name: str) -> Iterator[Case]:
    """A model on its fabrics."""
    if name == STREAMED:
        for variant in VARIANTS:
            spec = streamed_spec(variant)
            columns = {"computing": f"{STREAMED_COMPUTE_US:.0f}"}
            yield Case(name, variant, spec, STREAMED_GAIN, columns, whole=True)
        return
    model = MODELS[name]
    for variant in VARIANTS:
        columns = {"computing": f"{model.compute_us:.0f}"}
        published = model.published.get(variant)
        yield Case(name, variant, spec_of(model, variant), published, columns, whole=True)


def spec_of(model: Model, variant: str) -> str:
    """Two iterations of a model on a fabric."""
    program, section = wafer_program(variant) if model.wafer else (group_program(variant), "")
    if model.stages > 1:
        section = "classes: {model: 3, pipeline: 2, data: 1}"
    section = f", {section}" if section else ""
    return f"""
name: fred-model
fabric: {fabric(variant)}
placement: {"linear" if model.wafer else "model-stage-data"}
workload:
  kind: layers
  ranks: {model.ranks}
  iterations: 2
  passes: 1
{strategy(model)}
  layers:
{layers(model)}
collectives: {{backend: programs, all_reduce: {program}{section}}}
{settings(variant, model.ranks)}"""


def strategy(model: Model) -> str:
    """The keys of the spec's workload that say how ranks share the work. ResNet's gradients are
    awaited where they are posted, so that they are exposed, as the published ratios have them."""
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


def streamed_spec(
    variant: str,
    count: int = STREAMED_LAYERS,
    layer_bytes: int = STREAMED_LAYER_BYTES,
    compute_us: float = STREAMED_COMPUTE_US,
) -> str:
    """Weights that do not fit come in layer by layer, twice; gradients go out. Nothing is sent
    beside computing, as published ratios have it."""
    nanoseconds = round(compute_us * 1000 / 3 / count)
    passes = f"forward: {{compute: {nanoseconds}ns}}, input_gradient: {{compute: {nanoseconds}ns}}"
    passes += f", weight_gradient: {{compute: {nanoseconds}ns}}"
    rows = "".join(
        f"\n    - {{name: layer{i}, weights: {layer_bytes}, {passes}}}" for i in range(count)
    )
    program, section = stream_program(variant), stream_section(variant)
    section = f", {section}" if section else ""
    return f"""
name: fred-model
{fabric_with_controllers(variant)}
workload:
  kind: layers
  ranks: {RANKS}
  iterations: 2
  passes: 1
  parallelism: weight-streaming
  overlap: false
  layers:{rows}
collectives: {{backend: programs, broadcast: {program}, reduce: {program}{section}}}
{settings(variant, RANKS)}"""
