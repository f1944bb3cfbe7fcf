"""The models whose training a design is for, by their shapes, and what a host has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from topologies.spec.design.choices import Choices, word_or_list
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_section import Width
from topologies.spec.workload_types import Dtype
from topologies.units import BytesPerSecond, FlopsPerSecond, SizeBytes

Degree = Annotated[Integer, Field(ge=1, le=4096)]


class ClosedModel(SpecSection):
    """A workload whose ranks follow from the dimensions, and that only a design can have."""

    @property
    def listed(self) -> None:
        """No list of collectives."""


class TransformerModel(ClosedModel):
    """A transformer, trained on `batch_size` samples of `sequence` tokens in an iteration.
    `recompute` keeps only the inputs of layers and computes the rest again."""

    kind: Literal["transformer"]
    layers: Width = 128
    hidden: Width = 25_600
    heads: Width = 160
    sequence: Width = 2048
    vocabulary: Width = 51_200
    batch_size: Width = 1024
    dtype: Dtype = "float16"
    recompute: bool = Field(default=True, strict=True)


class RecommenderModel(ClosedModel):
    """A DLRM: `batch_size` samples in an iteration of all ranks, tables spread over the ranks, MLPs
    data-parallel. `interaction` cat joins the tables' vectors and the dense one."""

    kind: Literal["recommender"]
    batch_size: Width = 65_536
    sparse_features: Width = 64
    rows: Annotated[Integer, Field(ge=1, le=10**12)] = 1_000_000
    embedding_dimension: Width = 64
    pooling: Width = 60
    dense_features: Width = 1600
    bottom_mlp: tuple[Width, ...] = Field(default=(*[1024] * 6, 64), min_length=1)
    top_mlp: tuple[Width, ...] = Field(default=(*[2048] * 11, 1), min_length=1)
    dtype: Dtype = "float16"


AllOrDegrees = Annotated[
    Annotated[Choices[Degree], Tag("<list>")] | Annotated[Literal["all"], Tag("<word>")],
    Discriminator(word_or_list),
]
"""A word for all that there are, or degrees to choose from."""


class StrategySection(SpecSection):
    """Degrees from which the search chooses. For tensor parallelism, `all` are the powers of two.
    The data degree is what the others leave of the ranks; `data` keeps points that leave one of its
    degrees. `zero` is the stage of ZeRO."""

    tensor: AllOrDegrees = "all"
    data: AllOrDegrees = "all"
    pipeline: Choices[Degree] = (1,)
    microbatches: Choices[Degree] = (1,)
    zero: Choices[Annotated[Integer, Field(ge=0, le=3)]] = (0,)


class HostSection(SpecSection):
    """The parts of a host, each a value or a list to choose from. `expansion` is a second tier of
    memory. `efficiency` is the share of both peaks that is reached."""

    flops_per_s: Choices[Annotated[FlopsPerSecond, Field(gt=0)]] = Field(
        default=(312 * 10**12,), alias="flops"
    )
    memory_bytes: Choices[Annotated[SizeBytes, Field(gt=0)]] = Field(
        default=(80 * 10**9,), alias="memory"
    )
    memory_bytes_per_s: Choices[Annotated[BytesPerSecond, Field(gt=0)]] = Field(
        default=(2039 * 10**9,), alias="memory_bandwidth"
    )
    expansion_bytes: Choices[SizeBytes] = Field(default=(0,), alias="expansion")
    expansion_bytes_per_s: Choices[Annotated[BytesPerSecond, Field(gt=0)]] | None = Field(
        default=None, alias="expansion_bandwidth"
    )
    efficiency: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _tiers(self) -> HostSection:
        if any(self.expansion_bytes) and self.expansion_bytes_per_s is None:
            raise ValueError("expected expansion_bandwidth with an expansion")
        return self
