"""The `layers` workload: a model as a table of layers, trained as ASTRA-sim 1 does."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from topologies.layer_file import read_layer_file
from topologies.spec.fabric_section import Integer
from topologies.spec.foreign_files import keys_with_file
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_types import (
    MAX_SIZE_BYTES,
    Dtype,
    GroupName,
    Iterations,
    PlainCollective,
    Ranks,
)
from topologies.spec.workloads import WorkloadSection
from topologies.units import SizeBytes, TimeNs


class LayerPass(SpecSection):
    """A pass at a layer: computing, then a collective in which each rank brings `size`
    bytes: its buffer, and its shard in an all_gather. One of no bytes is none."""

    compute_ns: TimeNs = Field(default=0, alias="compute")
    collective: PlainCollective | None = None
    size_bytes: SizeBytes = Field(default=0, alias="size", ge=0, le=MAX_SIZE_BYTES)

    @model_validator(mode="after")
    def _sized(self) -> LayerPass:
        if self.collective is None and self.size_bytes:
            raise ValueError("expected a collective and its size, or neither")
        if self.collective is not None and "size_bytes" not in self.model_fields_set:
            raise ValueError("expected a collective and its size, or neither")
        if not self.size_bytes:
            object.__setattr__(self, "collective", None)  # past what makes it immutable
        return self


class LayerSpec(SpecSection):
    """A layer. `update` is the time to use its gradients, when they are reduced. `parameter_shard`
    are a rank's bytes of the layer's parameters, which are gathered before each forward and each
    backward pass, a layer ahead, where they are spread over the ranks that reduce its gradients
    (ZeRO's third stage). `weights` are its bytes, where they are streamed in."""

    name: str = Field(min_length=1, max_length=64)
    forward: LayerPass = LayerPass()
    input_gradient: LayerPass = LayerPass()
    weight_gradient: LayerPass = LayerPass()
    update_ns: TimeNs = Field(default=0, alias="update")
    parameter_shard_bytes: SizeBytes = Field(
        default=0, alias="parameter_shard", ge=0, le=MAX_SIZE_BYTES
    )
    weights_bytes: SizeBytes = Field(default=0, alias="weights", ge=0, le=MAX_SIZE_BYTES)

    @property
    def passes(self) -> tuple[LayerPass, LayerPass, LayerPass]:
        return self.forward, self.input_gradient, self.weight_gradient


Strategy = Literal[
    "data",
    "model",
    "hybrid-data-model",
    "hybrid-model-data",
    "hybrid-dlrm",
    "weight-streaming",
]


class LayersWorkload(WorkloadSection):
    """Passes over a table of layers: given in `layers`, or read from an ASTRA-sim 1 file at `path`.

    An iteration is all `passes`, as a pass waits for gradients of the one before. `innermost` are
    the ranks of the innermost dimension, over which `hybrid-data-model` is model-parallel and
    `hybrid-model-data` data-parallel. Layer 0 of `hybrid-dlrm` is the embedding, and layers 1 to
    `last_bottom_layer` the bottom MLP. Without `overlap` every collective is awaited where it is
    posted, and nothing is computed meanwhile: LIBRA's `no_overlap`.

    With `weight-streaming` rank 0 is outside and computes nothing: it broadcasts each layer's
    `weights` before the forward and before the backward pass, and their gradients are reduced to
    it, which then takes `update`.

    A pass goes through all layers for each of `microbatches`; gradients are reduced behind the last
    one. With `stages` above 1 ranks are divided among the stages of a pipeline, the first ranks to
    the first; `layers` are those of a stage, and a stage hands on `activation` bytes of a
    microbatch, from each rank to its like. With `virtual_stages` above 1 a stage's layers are as
    many parts of the model, the first part of all stages before the second.
    """

    kind: Literal["layers"]
    ranks: Ranks
    iterations: Iterations = 1
    passes: Integer = Field(default=2, ge=1, le=1000)
    path: str | None = Field(default=None, min_length=1)
    parallelism: Strategy
    innermost: Integer | None = Field(default=None, ge=1, le=1024)
    last_bottom_layer: Integer | None = Field(default=None, ge=1)
    overlap: bool = Field(default=True, strict=True)
    microbatches: Integer = Field(default=1, ge=1, le=1024)
    stages: Integer = Field(default=1, ge=1, le=1024)
    virtual_stages: Integer = Field(default=1, ge=1, le=64)
    activation_bytes: SizeBytes = Field(default=0, alias="activation", ge=0, le=MAX_SIZE_BYTES)
    dtype: Dtype = "float32"
    layers: tuple[LayerSpec, ...] = Field(min_length=1, max_length=10_000)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        """The keys of a file, for keys that are not given; a resolved spec has no `path`."""
        if not isinstance(data, dict) or not isinstance(data.get("path"), str):
            return data
        if "layers" in data:
            raise ValueError("expected either path or layers")
        return keys_with_file(data, "workload", read_layer_file)

    @model_validator(mode="after")
    def _shape(self) -> LayersWorkload:
        if self.parallelism.startswith("hybrid-") and self.parallelism != "hybrid-dlrm":
            if self.innermost is None:
                raise ValueError(
                    f"expected innermost, the ranks of the innermost dimension, "
                    f"with parallelism: {self.parallelism}"
                )
            if self.ranks % (self.innermost * self.stages):
                each = "innermost" if self.stages == 1 else "innermost x stages"
                raise ValueError(f"expected ranks to be a multiple of {each}")
        elif self.innermost is not None:
            raise ValueError(f"expected no innermost with parallelism: {self.parallelism}")
        if self.parallelism == "hybrid-dlrm":
            last = len(self.layers) - 1
            if self.last_bottom_layer is None or self.last_bottom_layer >= last:
                raise ValueError(f"expected last_bottom_layer from 1 to {last - 1}")
        elif self.last_bottom_layer is not None:
            raise ValueError(f"expected no last_bottom_layer with parallelism: {self.parallelism}")
        streams = self.parallelism == "weight-streaming"
        if any((layer.weights_bytes > 0) != streams for layer in self.layers) or (
            streams and self.ranks < 2
        ):
            raise ValueError(
                "expected weights of every layer and 2 ranks or more with parallelism: "
                "weight-streaming, and no weights with another one"
            )
        if streams and any(part.collective for layer in self.layers for part in layer.passes):
            raise ValueError("expected no collective in a pass with parallelism: weight-streaming")
        spread = any(layer.parameter_shard_bytes for layer in self.layers)
        if self.microbatches > 1 or self.stages > 1 or spread:
            hybrid = ("hybrid-data-model", "hybrid-model-data")
            if self.parallelism not in hybrid or not self.overlap:
                raise ValueError(
                    "expected parallelism hybrid-data-model or hybrid-model-data, and overlap, "
                    "with microbatches, stages or a parameter_shard"
                )
        if (self.stages > 1) != (self.activation_bytes > 0):
            raise ValueError("expected stages above 1 and their activation, or neither")
        if self.virtual_stages > 1:
            self._check_virtual_stages()
        return self

    def _check_virtual_stages(self) -> None:
        if self.stages < 3:
            # Messages of a pair are matched by their order: of two stages each is both behind and
            # before the other.
            raise ValueError("expected stages of 3 and more with virtual_stages")
        if self.microbatches % self.stages:
            raise ValueError("expected microbatches to be a multiple of stages with virtual_stages")
        if len(self.layers) % self.virtual_stages:
            raise ValueError("expected layers to be a multiple of virtual_stages")

    @property
    def degrees(self) -> tuple[int, int, int] | None:
        """Those of `hybrid-data-model`, whose innermost dimension is model-parallel."""
        if self.parallelism != "hybrid-data-model":
            return None
        assert self.innermost is not None, "checked"
        return self.innermost, self.stages, self.ranks // (self.innermost * self.stages)

    @property
    def whole(self) -> str | None:
        """As all ranks are parallel, or the pipeline where it has stages."""
        if self.parallelism in ("data", "model"):
            return self.parallelism
        return "pipeline" if self.stages > 1 else None

    def groups_of_ranks(self) -> dict[GroupName, list[list[int]]]:
        """The groups of ranks that exchange activations and those that reduce gradients, where
        these are not all ranks. Neighbours are in the innermost dimension."""
        ranks, inner = self.ranks, self.innermost
        if inner is None:
            return {}
        each = ranks // self.stages
        inside = [list(range(first, first + inner)) for first in range(0, ranks, inner)]
        across = [
            list(range(stage + first, stage + each, inner))
            for stage in range(0, ranks, each)
            for first in range(inner)
        ]
        if self.parallelism == "hybrid-data-model":
            return {"model": inside, "data": across}
        return {"model": across, "data": inside}
