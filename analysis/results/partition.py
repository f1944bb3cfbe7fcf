"""The cost of splitting a network, beside what its ranks exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from analysis.runs.collectives import MeasuredCollective
from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.spec import Spec
from topologies.spec.workload_section import ITEM_BYTES


def partition_row(spec: Spec, collectives: Sequence[MeasuredCollective]) -> dict[str, Any] | None:
    """`partition` of result.json; None for workloads that split no network. `collectives` are those
    that were measured: bytes across workers are theirs."""
    workload = spec.workload
    if not isinstance(workload, PartitionedInferenceWorkload):
        return None
    # Training takes seconds and scipy: what other workloads' results do without.
    from workloads.models.partition.splitting import figures_of

    figures = asdict(figures_of(workload))
    most = figures.pop("most_crossing_elements")
    del figures["crossing_elements"]
    sample_bytes = workload.batch_size * ITEM_BYTES[workload.dtype]
    return {
        "bytes_across": sum(c.size_bytes for c in collectives) // workload.iterations,
        "messages": len(collectives) // workload.iterations,
        "most_bytes_across": most * sample_bytes,
    } | figures


def in_words(row: dict[str, Any]) -> str:
    """`partition` of result.json as a sentence."""
    most = row["most_bytes_across"]
    share = f" ({row['bytes_across'] / most:.1%} of what could)" if most else ""
    return (
        f"{row['bytes_across']:,} bytes cross between workers for each batch, in "
        f"{row['messages']} messages{share}; {row['kept_weights']:.1%} of the weights stay; "
        f"accuracy {row['accuracy']:.2%}, unsplit {row['unsplit_accuracy']:.2%}"
    )
