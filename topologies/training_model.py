"""A transformer's share on each rank under tensor, pipeline and data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.step import GroupName
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
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.spec.dtype]

    @property
    def bucket_parameters(self) -> int:
        """A bucket of gradients is sent once it holds as many."""
        return -(-self.spec.bucket_bytes // self.item_bytes)

    @property
    def layer_flops(self) -> int:
        """Forward operations: two per parameter and token, and the attention scores and their
        use.
        """
        scores = 4 * self.tokens * self.spec.sequence * self.spec.hidden
        return 2 * self.tokens * self.layer_parameters + scores // self.spec.parallelism.tensor


def training_groups(spec: TrainingWorkload) -> dict[GroupName, list[list[int]]]:
    """Who reduces with whom: activations among the ranks that share a layer, gradients among those
    that hold the same parameters. Each kind of group covers all ranks.
    """
    data, tensor = spec.parallelism.data, spec.parallelism.tensor
    return {
        "tensor": [list(range(first, first + tensor)) for first in range(0, spec.ranks, tensor)],
        "data": [
            [stage * data * tensor + replica * tensor + shard for replica in range(data)]
            for stage in range(spec.parallelism.pipeline)
            for shard in range(tensor)
        ],
    }
