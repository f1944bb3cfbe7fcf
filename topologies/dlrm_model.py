"""The sizes of a DLRM-like model: what each rank computes and sends, pure arithmetic on the spec.

Embedding tables are model-parallel: the columns of all tables (sparse_features *
embedding_dimension) are divided evenly among the ranks, so an all-to-all moves each rank's batch
times all columns. The MLPs are data-parallel.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.workload_spec import ITEM_BYTES, DlrmWorkload


@dataclass(frozen=True, slots=True)
class Layer:
    """A fully connected layer of an MLP."""

    name: str
    inputs: int
    outputs: int

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs + self.outputs

    def flops(self, batch: int) -> int:
        """Multiply-adds of the forward pass, counted as two operations each."""
        return 2 * batch * self.inputs * self.outputs

    def moved_bytes(self, batch: int, item_bytes: int) -> int:
        """Weights, inputs and outputs, each moved once."""
        return item_bytes * (self.parameters + batch * (self.inputs + self.outputs))


def _layers(name: str, inputs: int, widths: tuple[int, ...]) -> tuple[Layer, ...]:
    return tuple(
        Layer(f"{name}{index}", before, width)
        for index, (before, width) in enumerate(zip((inputs, *widths), widths, strict=False))
    )


@dataclass(frozen=True)
class DlrmModel:
    """The sizes that a spec implies; everything is per rank and iteration."""

    spec: DlrmWorkload

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.spec.dtype]

    @property
    def columns(self) -> int:
        """Embedding columns of all tables together."""
        return self.spec.sparse_features * self.spec.embedding_dimension

    @property
    def exchanged(self) -> int:
        """Elements that a rank sends in an all-to-all: its batch times all columns."""
        return self.spec.batch_size * self.columns

    @property
    def bottom(self) -> tuple[Layer, ...]:
        return _layers("bottom_mlp", self.spec.dense_features, self.spec.bottom_mlp)

    @property
    def top(self) -> tuple[Layer, ...]:
        """The top MLP; its input is the bottom MLP's output and the pairwise dot products."""
        vectors = self.spec.sparse_features + 1
        pairs = vectors * (vectors - 1) // 2
        return _layers("top_mlp", self.spec.bottom_mlp[-1] + pairs, self.spec.top_mlp)

    @property
    def look_up_bytes(self) -> int:
        """Rows read by a rank's share of the columns for the global batch, `pooling` per sample."""
        return self.exchanged * self.spec.pooling * self.item_bytes

    @property
    def interaction_flops(self) -> int:
        vectors = self.spec.sparse_features + 1
        pairs = vectors * (vectors - 1) // 2
        return 2 * self.spec.batch_size * pairs * self.spec.embedding_dimension

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in (*self.bottom, *self.top))

    @property
    def bucket_parameters(self) -> int:
        """A bucket of gradients is sent once it holds as many."""
        return max(self.spec.bucket_bytes // self.item_bytes, 1)
