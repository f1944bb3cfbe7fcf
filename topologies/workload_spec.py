"""The `workload` section of a spec: what runs on the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from topologies.fabric_spec import Integer
from topologies.queue_spec import Section
from topologies.units import SizeBytes

Dtype = Literal["float16", "bfloat16", "float32"]
ITEM_BYTES: dict[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4}

Ranks = Annotated[Integer, Field(ge=2, le=1024)]
Iterations = Annotated[Integer, Field(ge=1, le=1_000_000)]
Width = Annotated[Integer, Field(ge=1, le=1_000_000)]

MAX_SIZE_BYTES = 2**36


class SizedOperation(Section):
    """A collective of `size` bytes, as nccl-tests counts them: the whole array for all_gather and
    reduce_scatter (and gather, scatter), the buffer of one rank for the others."""

    size_bytes: SizeBytes = Field(alias="size", gt=0, le=MAX_SIZE_BYTES)


class Collective(SizedOperation):
    """Collectives without a root, by torch's names."""

    kind: Literal["all_reduce", "all_to_all", "all_gather", "reduce_scatter"]


class RootedCollective(SizedOperation):
    """Collectives with a root rank."""

    kind: Literal["broadcast", "reduce", "gather", "scatter"]
    root: Integer = Field(default=0, ge=0)


class Barrier(Section):
    """torch.distributed.barrier; moves no data."""

    kind: Literal["barrier"]
    size_bytes: Literal[0] = Field(default=0, alias="size")


class SendRecv(SizedOperation):
    """Rank `root` sends to rank `peer`; the others wait."""

    kind: Literal["send_recv"]
    root: Integer = Field(default=0, ge=0)
    peer: Integer = Field(default=1, ge=0)


class Incast(SizedOperation):
    """`degree` ranks send `size` bytes each to `root` at once: the next ones after it, cyclically.
    None is every other rank."""

    kind: Literal["incast"]
    root: Integer = Field(default=0, ge=0)
    degree: Integer | None = Field(default=None, ge=1)


class Permutation(SizedOperation):
    """Every rank sends `size` bytes to one rank and receives from one. Rank r sends to
    r + shift modulo the ranks; None draws a derangement from the spec's seed."""

    kind: Literal["permutation"]
    shift: Integer | None = None


Operation = Annotated[
    Collective | RootedCollective | Barrier | SendRecv | Incast | Permutation,
    Field(discriminator="kind"),
]


class CollectivesWorkload(Section):
    """Each operation once per iteration, in order, each after a barrier."""

    kind: Literal["collectives"]
    ranks: Ranks
    iterations: Iterations = 1
    dtype: Dtype = "float32"
    operations: tuple[Operation, ...] = Field(min_length=1)


class DlrmWorkload(Section):
    """Deep learning recommendation model (Naumov et al., arXiv 1906.00091), embeddings
    model-parallel, MLPs data-parallel.

    The defaults are scaled down: per rank and pass the AlltoAll is 1.05 MB, the gradients of both
    MLPs are 7.7 MB at float32. `batch_size` is per rank. `bottom_mlp` and `top_mlp` are the widths
    of the layers; their inputs are `dense_features` and the dot interaction. `pooling` is the
    number of look-ups per table and sample. `bucket` is the size at which gradients are sent, as in
    DDP.
    """

    kind: Literal["dlrm"]
    ranks: Ranks
    iterations: Iterations = 3
    batch_size: Width = 128
    sparse_features: Width = 32
    embedding_dimension: Width = 64
    pooling: Width = 20
    dense_features: Width = 256
    bottom_mlp: tuple[Width, ...] = Field(default=(512, 256, 64), min_length=1)
    top_mlp: tuple[Width, ...] = Field(default=(1024, 1024, 1), min_length=1)
    dtype: Dtype = "float32"
    bucket_bytes: SizeBytes = Field(default=4_000_000, alias="bucket", gt=0)
    overlap: bool = Field(default=True, strict=True)


class Parallelism(Section):
    """Degrees of parallelism; a rank's index is (pipeline, data, tensor), tensor fastest."""

    data: Integer = Field(default=1, ge=1, le=1024)
    tensor: Integer = Field(default=1, ge=1, le=1024)
    pipeline: Integer = Field(default=1, ge=1, le=1024)

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline


def _ranks_of_training(data: dict[str, object]) -> int:
    parallelism = data.get("parallelism")
    return parallelism.ranks if isinstance(parallelism, Parallelism) else 2


class TrainingWorkload(Section):
    """Training steps of a transformer: tensor-parallel all-reduces in each layer, pipeline
    send/recv between stages, data-parallel gradient all-reduces. `batch_size` is the samples of one
    microbatch and data-parallel replica."""

    kind: Literal["training"]
    parallelism: Parallelism
    ranks: Ranks = Field(default_factory=_ranks_of_training)
    iterations: Iterations = 3
    layers: Width = 8
    hidden: Width = 512
    sequence: Width = 128
    vocabulary: Width = 8192
    microbatches: Width = 4
    batch_size: Width = 1
    dtype: Dtype = "float32"
    bucket_bytes: SizeBytes = Field(default=4_000_000, alias="bucket", gt=0)
    overlap: bool = Field(default=True, strict=True)

    @model_validator(mode="after")
    def _shape(self) -> TrainingWorkload:
        if self.ranks != self.parallelism.ranks:
            raise ValueError(
                f"expected ranks = data * tensor * pipeline = {self.parallelism.ranks}"
            )
        if self.layers % self.parallelism.pipeline:
            raise ValueError("expected layers to be a multiple of parallelism.pipeline")
        if self.hidden % self.parallelism.tensor:
            raise ValueError("expected hidden to be a multiple of parallelism.tensor")
        return self


def _ranks_of_trace(data: dict[str, object]) -> int:
    ranks = 0
    while Path(f"{data['path']}.{ranks}.et").exists():
        ranks += 1
    return ranks


class ChakraWorkload(Section):
    """Replay of Chakra execution traces `PATH.RANK.et`, one per rank. `ranks` is the number of
    files when left out. A relative path is relative to the spec's folder."""

    kind: Literal["chakra"]
    path: str = Field(min_length=1)
    ranks: Ranks = Field(default_factory=_ranks_of_trace)
    iterations: Iterations = 1

    @model_validator(mode="after")
    def _found(self) -> ChakraWorkload:
        if self.ranks < 2:
            raise ValueError(f"expected traces {self.path}.0.et, {self.path}.1.et, ... or `ranks`")
        return self


ModelWorkload: TypeAlias = DlrmWorkload | TrainingWorkload
WorkloadSpec = Annotated[
    CollectivesWorkload | ModelWorkload | ChakraWorkload, Field(discriminator="kind")
]
