"""How long trainers wait for their batches, and the power of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from analysis.results.rows import Predicted, ResultRow
from analysis.runs.collectives import MeasuredCollective
from topologies.spec.ingest_section import IngestWorkload
from topologies.spec.spec import Spec
from topologies.units import format_time
from workloads.models.ingest import BATCH, bound_ns


class IngestRow(ResultRow):
    """`ingest` of result.json. Stalls are what trainers' main threads waited for batches."""

    key: ClassVar[str] = "ingest"

    def row(
        self,
        spec: Spec,
        collectives: Sequence[MeasuredCollective],
        predicted: Sequence[Predicted],
    ) -> dict[str, Any]:
        """Its figures."""
        workload = spec.workload
        assert isinstance(workload, IngestWorkload)
        first: list[int] = []
        later: list[int] = []
        for collective in collectives:
            if collective.phase != BATCH:
                continue
            # A message's ranks are its two ends, of which the trainer has the lower number.
            record = collective.by_rank[min(collective.by_rank)]
            number = int(collective.id.split(".")[-2])
            (first if number == 0 else later).append(record.waited_ns)
        stages = {
            "trainers": workload.trainers * workload.trainer_watts,
            "preprocessors": workload.preprocessors * workload.preprocessor_watts,
            "storage": workload.storage * workload.storage_watts,
        }
        total = sum(stages.values())
        return {
            "first_stall_ns": fmean(first),
            "stall_ns": fmean(later) if later else None,
            "stalled_ns": sum(first + later) / workload.trainers / workload.iterations,
            "least_ns": bound_ns(workload),
            "watts": stages,
            "supporting_power": 1 - stages["trainers"] / total if total else None,
        }

    def in_words(self, row: Mapping[str, Any]) -> str:
        """The stalls, the slowest stage, and the share of power."""
        said = f"a trainer waits {format_time(round(row['first_stall_ns']))} for its first batch"
        if row["stall_ns"] is not None:
            said += f", {format_time(round(row['stall_ns']))} for each further one"
        least = row["least_ns"]
        slowest = max(least, key=lambda stage: least[stage])
        said += f"; the busiest host is of {slowest}, with {format_time(least[slowest])} of work"
        if row["supporting_power"] is None:
            return said
        return f"{said}; storage and preprocessing take {row['supporting_power']:.1%} of the power"


PART = IngestRow()
"""The part of `ingest`."""
