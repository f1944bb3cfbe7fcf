"""The `workload` section of a spec: what runs on the ranks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Union

from pydantic import BeforeValidator, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from topologies.registration import named_sections
from topologies.spec.collectives_section import AlgorithmEntry
from topologies.spec.errors import Problem, SpecError
from topologies.spec.fabric_section import Integer
from topologies.spec.memory_section import MemorySpec, read_remote_memory
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_types import (
    MAX_SIZE_BYTES,
    Dtype,
    ElementType,
    GroupName,
    Iterations,
    PlainCollective,
    Ranks,
    ReduceOp,
)
from topologies.spec.workloads import WORKLOADS, WorkloadSection
from topologies.units import SizeBytes

Width = Annotated[Integer, Field(ge=1, le=1_000_000)]


class SizedOperation(SpecSection):
    """A collective of `size` bytes, as nccl-tests counts them: the whole array where each rank has
    or gets a shard of it (all_gather, gather, scatter and so on), the buffer of one rank for the
    others."""

    size_bytes: SizeBytes = Field(alias="size", gt=0, le=MAX_SIZE_BYTES)


class ProgrammedOperation(SizedOperation):
    """A collective that can run as a program: `program` is what a kind's entry in the
    `collectives` section is, for this operation alone."""

    program: AlgorithmEntry | None = None


class CollectiveOperation(ProgrammedOperation):
    """Collectives without a root, by torch's names. `op` is how those that reduce do so."""

    kind: PlainCollective
    op: ReduceOp = "sum"


class RootedCollective(ProgrammedOperation):
    """Collectives with a root rank. `op` is how a reduce does so."""

    kind: Literal["broadcast", "reduce", "gather", "scatter"]
    root: Integer = Field(default=0, ge=0)
    op: ReduceOp = "sum"


class Barrier(SpecSection):
    """torch.distributed.barrier; moves no data. With a `program` it is that program's all-reduce of
    8 bytes, whose sum says that everybody came."""

    kind: Literal["barrier"]
    size_bytes: Literal[0] = Field(default=0, alias="size")
    program: AlgorithmEntry | None = None


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
    CollectiveOperation | RootedCollective | Barrier | SendRecv | Incast | Permutation,
    Field(discriminator="kind"),
]


class CollectivesWorkload(WorkloadSection):
    """Each operation once per iteration, in order, each after a barrier."""

    kind: Literal["collectives"]
    ranks: Ranks
    iterations: Iterations = 1
    dtype: ElementType = "float32"
    operations: tuple[Operation, ...] = Field(min_length=1)

    @property
    def listed(self) -> CollectivesWorkload:
        """Itself."""
        return self

    @property
    def reductions(self) -> tuple[str, ...]:
        """The `op` of each collective."""
        collectives = (CollectiveOperation, RootedCollective)
        return tuple(each.op for each in self.operations if isinstance(each, collectives))


class DlrmWorkload(WorkloadSection):
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

    def problems(self) -> Iterator[Problem]:
        """An AlltoAll that does not split evenly."""
        elements = self.batch_size * self.sparse_features * self.embedding_dimension
        if elements % self.ranks:
            yield Problem(
                ("workload",),
                f"batch_size * sparse_features * embedding_dimension = {elements}",
                f"expected a multiple of ranks = {self.ranks}, to split the AlltoAll evenly",
            )


class Parallelism(SpecSection):
    """Degrees of parallelism; a rank's index is (pipeline, data, tensor), tensor fastest."""

    data: Integer = Field(default=1, ge=1, le=4096)
    tensor: Integer = Field(default=1, ge=1, le=4096)
    pipeline: Integer = Field(default=1, ge=1, le=4096)

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline


def _ranks_of_training(data: dict[str, object]) -> int:
    parallelism = data.get("parallelism")
    return parallelism.ranks if isinstance(parallelism, Parallelism) else 2


class TrainingWorkload(WorkloadSection):
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

    @property
    def degrees(self) -> tuple[int, int, int]:
        """Tensor, pipeline and data."""
        return self.parallelism.tensor, self.parallelism.pipeline, self.parallelism.data

    @property
    def whole(self) -> str | None:
        """The pipeline, where it has stages."""
        return "pipeline" if self.parallelism.pipeline > 1 else None

    def groups_of_ranks(self) -> dict[GroupName, list[list[int]]]:
        """The groups of ranks that reduce together: activations among the ranks that share a layer,
        gradients among those that hold the same parameters."""
        data, tensor = self.parallelism.data, self.parallelism.tensor
        return {
            "tensor": [
                list(range(first, first + tensor)) for first in range(0, self.ranks, tensor)
            ],
            "data": [
                [stage * data * tensor + replica * tensor + shard for replica in range(data)]
                for stage in range(self.parallelism.pipeline)
                for shard in range(tensor)
            ],
        }


def _ranks_of_trace(data: dict[str, object]) -> int:
    ranks = 0
    while any(Path(f"{data['path']}.{ranks}.et{packed}").exists() for packed in ("", ".gz")):
        ranks += 1
    memory = data.get("memory")
    return ranks + (memory.hosts if ranks and isinstance(memory, MemorySpec) else 0)


def _read_memory(value: object) -> object:
    """ASTRA-sim's configuration of remote memory, where a file is named."""
    if not isinstance(value, str):
        return value
    try:
        return read_remote_memory(value)
    except SpecError as error:
        raise PydanticCustomError("remote_memory", "{text}", {"text": str(error)}) from error


class ChakraWorkload(WorkloadSection):
    """Replay of Chakra execution traces `PATH.RANK.et`, one per rank. `ranks` is the number of
    files when left out, and of the hosts of `memory` behind them. `groups` is ASTRA-sim's file of
    communicator groups, for traces that name groups and do not say who is in them. `memory` is what
    memory nodes load from and store to, or ASTRA-sim's file of it. Relative paths are relative to
    the spec's folder."""

    from_files: ClassVar[bool] = True
    kind: Literal["chakra"]
    path: str = Field(min_length=1)
    groups: str | None = None
    memory: Annotated[MemorySpec | None, BeforeValidator(_read_memory)] = None
    ranks: Ranks = Field(default_factory=_ranks_of_trace)
    iterations: Iterations = 1

    @model_validator(mode="after")
    def _found(self) -> ChakraWorkload:
        if self.ranks < 1:
            raise ValueError(f"expected traces {self.path}.0.et, {self.path}.1.et, ... or `ranks`")
        return self

    @property
    def reductions(self) -> None:
        """Its groups are made as it runs."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The traces, and the groups."""
        traces = (Path(f"{self.path}.{rank}.et") for rank in range(self.ranks))
        return (*traces, *(() if self.groups is None else (Path(self.groups),)))

    @property
    def reads(self) -> str:
        """The traces."""
        return self.path


def _parse_argv(value: object) -> object:
    """A command line as a shell would split it, or a list of words, of which numbers are text."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"expected a command line as in a shell ({error})") from None
    return [_word(word) for word in value] if isinstance(value, (list, tuple)) else value


def _word(value: object) -> object:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if number else value


def _parse_env(value: object) -> object:
    return {name: _word(text) for name, text in value.items()} if isinstance(value, dict) else value


_LARGEST_SHARE = 4096


def _parse_share(value: object) -> str:
    text = str(value).replace(" ", "")
    if text == "1":
        return text
    one, _, many = text.partition("/")
    if one != "1" or not many.isdecimal() or not 2 <= int(many) <= _LARGEST_SHARE:
        raise ValueError(f"expected 1 (whole messages), or 1/2 to 1/{_LARGEST_SHARE}")
    return f"1/{int(many)}"


class CommandWorkload(WorkloadSection):
    """A program that is not ours, started once per rank, once per host, or once on the first host,
    with the environment that `torchrun` gives or takes, or `mpirun` takes (docs/exec.md).

    `argv` is the program and its arguments. Ranks r to r + `ranks_per_host` - 1 share a host. `env`
    are variables of the program's environment; `directory` is what its working directory shows,
    relative to the spec's folder. `observe` has Python ranks log their collectives, and
    `charge` has what their torch computes take the time of the spec's device. `charge_by` is a
    trace of PyTorch's profiler, relative to the spec's folder, whose operations take the time that
    they took there; those that it lacks take the device's. `gpus_per_host` has torch find so many
    virtual GPUs on each host (docs/virtual-gpu.md), a rank each: on a fabric of `rails` those of a
    server, whose hosts are GPUs. With `network: simulated` what these exchange goes through the
    compiled simulator (docs/virtual-gpu-simulated.md). `scale_payload: 1/N` has one byte in N of
    their large messages sent, over links of a rate that is as much lower. The output of the ranks
    in `tee` is
    shown as it comes, where these are not rank 0 alone with the rank before each line.
    """

    own_contents: ClassVar[bool] = True
    kind: Literal["command"]
    argv: Annotated[tuple[str, ...], BeforeValidator(_parse_argv)] = Field(min_length=1)
    ranks: Ranks
    ranks_per_host: Integer = Field(default=1, ge=1, le=1024)
    per: Literal["rank", "host", "job"] = "rank"
    env: Annotated[dict[str, str], BeforeValidator(_parse_env)] = Field(default_factory=dict)
    directory: str = Field(default=".", min_length=1)
    observe: bool = Field(default=True, strict=True)
    charge: bool = Field(default=False, strict=True)
    charge_by: str | None = Field(default=None, min_length=1)
    gpus_per_host: Integer | None = Field(default=None, ge=1, le=64)
    network: Literal["emulated", "simulated"] = "emulated"
    scale_payload: Annotated[str, PlainValidator(_parse_share)] = "1"
    tee: Literal["all"] | tuple[Annotated[Integer, Field(ge=0)], ...] = (0,)

    @property
    def program(self) -> CommandWorkload:
        """Itself."""
        return self

    @property
    def ranks_on_host(self) -> int:
        """As it says."""
        return self.ranks_per_host

    @property
    def reductions(self) -> None:
        """Its groups are made as it runs."""

    @property
    def reads(self) -> str:
        """Its working directory."""
        return self.directory

    def tees(self, first: int) -> bool:
        """Whether the output of the process that is, or starts, rank `first` is shown."""
        own = range(first, first + self.ranks_per_process)
        return self.tee == "all" or any(rank in own for rank in self.tee)

    @property
    def local_ranks(self) -> int:
        """LOCAL_WORLD_SIZE: the ranks of a server, be that one host of the fabric or several."""
        return self.ranks_per_host if self.gpus_per_host is None else self.gpus_per_host

    @property
    def payload_share(self) -> int:
        """N, where one byte in N of a large message is sent."""
        return int(self.scale_payload.rpartition("/")[2])

    @property
    def simulated(self) -> bool:
        """Whether what its virtual GPUs exchange goes through the simulator."""
        return self.network == "simulated"

    @property
    def charges(self) -> bool:
        """Whether computing on the CPU takes time."""
        return self.gpus_per_host is None and (self.charge or self.charge_by is not None)

    @property
    def iterations(self) -> int:
        """A program is one whole; what it repeats is its own affair."""
        return 1

    @property
    def hosts(self) -> int:
        """How many hosts its ranks take."""
        return self.ranks // self.ranks_per_host

    @property
    def ranks_per_process(self) -> int:
        """How many ranks are the affair of each process that is started."""
        if self.per == "job":
            return self.ranks
        return 1 if self.per == "rank" else self.local_ranks

    @model_validator(mode="after")
    def _whole_hosts(self) -> CommandWorkload:
        if self.ranks % self.ranks_per_host:
            raise ValueError(
                f"expected ranks to be a multiple of ranks_per_host = {self.ranks_per_host}"
            )
        if self.ranks % self.local_ranks:
            raise ValueError(
                f"expected ranks to be a multiple of gpus_per_host = {self.gpus_per_host}"
            )
        if self.tee != "all" and any(rank >= self.ranks for rank in self.tee):
            raise ValueError(f"expected tee to be all, or ranks from 0 to {self.ranks - 1}")
        return self


WORKLOAD_SECTIONS = named_sections(
    {kind: parts.section for kind, parts in WORKLOADS.items()}, WorkloadSection
)
"""By kind."""

if TYPE_CHECKING:
    WorkloadSpec = WorkloadSection
else:
    WorkloadSpec = Annotated[
        Union[tuple(WORKLOAD_SECTIONS.values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]
