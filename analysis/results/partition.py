"""The cost of splitting a network, beside what its ranks exchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from analysis.results.rows import Predicted, ResultRow, RowFigure
from analysis.runs.collectives import MeasuredCollective
from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.spec import Spec


class PartitionRow(ResultRow):
    """`partition` of result.json. Bytes across workers are those of the measured messages."""

    key: ClassVar[str] = "partition"

    def row(
        self,
        spec: Spec,
        collectives: Sequence[MeasuredCollective],
        predicted: Sequence[Predicted],
    ) -> dict[str, Any]:
        """Its figures."""
        # Training takes seconds and scipy: what other workloads' results do without.
        from workloads.models.partition.splitting import figures_of

        workload = spec.workload
        assert isinstance(workload, PartitionedInferenceWorkload)
        figures = asdict(figures_of(workload))
        most = figures.pop("most_crossing_elements")
        del figures["crossing_elements"]
        sample_bytes = workload.batch_size * workload.item_bytes
        return {
            "bytes_across": sum(c.size_bytes for c in collectives) // workload.iterations,
            "messages": len(collectives) // workload.iterations,
            "most_bytes_across": most * sample_bytes,
        } | figures

    def in_words(self, row: Mapping[str, Any]) -> str:
        """The bytes that cross, and the cost of splitting."""
        most = row["most_bytes_across"]
        share = f" ({row['bytes_across'] / most:.1%} of what could)" if most else ""
        return (
            f"{row['bytes_across']:,} bytes cross between workers for each batch, in "
            f"{row['messages']} messages{share}; {row['kept_weights']:.1%} of the weights stay; "
            f"accuracy {row['accuracy']:.2%}, unsplit {row['unsplit_accuracy']:.2%}"
        )

    def figures(self, row: Mapping[str, Any]) -> tuple[RowFigure, ...]:
        """The bytes that cross, and the share of inputs that are told right."""
        most, unsplit = row["most_bytes_across"], row["unsplit_accuracy"]
        told = "for each batch; {} if all did"
        return (
            RowFigure("bytes across workers", row["bytes_across"], "bytes", told, most),
            RowFigure("accuracy", row["accuracy"], "share", "unsplit {}", unsplit),
        )


PART = PartitionRow()
"""The part of `partitioned_inference`."""
