"""A transformer's share on each rank under tensor, pipeline and data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.gradient_buckets import gradient_buckets
from topologies.workload_spec import ITEM_BYTES, TrainingWorkload


@dataclass(frozen=True)
class Stage:
    """One rank's place and share of the model. Rank = (pipeline, data, tensor), tensor fastest."""

    spec: TrainingWorkload
    rank: int

    @property
    def pipeline(self) -> int:
        return self.rank // (self.spec.parallelism.data * self.spec.parallelism.tensor)

    @property
    def first(self) -> bool:
        return self.pipeline == 0

    @property
    def last(self) -> bool:
        return self.pipeline == self.spec.parallelism.pipeline - 1

    @property
    def stride(self) -> int:
        """Distance in ranks to the same place of the neighbouring stage."""
        return self.spec.parallelism.data * self.spec.parallelism.tensor

    @property
    def layers(self) -> int:
        return self.spec.layers // self.spec.parallelism.pipeline

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.spec.batch_size * self.spec.sequence

    @property
    def activation(self) -> int:
        """Elements of a layer's output for one microbatch."""
        return self.tokens * self.spec.hidden

    @property
    def layer_parameters(self) -> int:
        """Attention 4 h^2 and feed-forward 8 h^2, divided among the tensor-parallel ranks."""
        return 12 * self.spec.hidden**2 // self.spec.parallelism.tensor

    @property
    def head_parameters(self) -> int:
        return self.spec.vocabulary * self.spec.hidden // self.spec.parallelism.tensor

    @property
    def gradient_buckets(self) -> list[int]:
        """Parameters of each bucket of gradients, last layer first; none without data
        parallelism.
        """
        if self.spec.parallelism.data == 1:
            return []
        head = [self.head_parameters] if self.last else []
        capacity = -(-self.spec.bucket_bytes // ITEM_BYTES[self.spec.dtype])
        return gradient_buckets([*head, *[self.layer_parameters] * self.layers], capacity)

    @property
    def layer_flops(self) -> int:
        """Forward operations: two per parameter and token, and the attention scores and their
        use.
        """
        scores = 4 * self.tokens * self.spec.sequence * self.spec.hidden
        return 2 * self.tokens * self.layer_parameters + scores // self.spec.parallelism.tensor


def tensor_groups(spec: TrainingWorkload) -> list[list[int]]:
    """Ranks that share a layer."""
    width = spec.parallelism.tensor
    return [list(range(first, first + width)) for first in range(0, spec.ranks, width)]


def data_groups(spec: TrainingWorkload) -> list[list[int]]:
    """Ranks that hold the same parameters."""
    data, tensor = spec.parallelism.data, spec.parallelism.tensor
    return [
        [stage * data * tensor + replica * tensor + shard for replica in range(data)]
        for stage in range(spec.parallelism.pipeline)
        for shard in range(tensor)
    ]
