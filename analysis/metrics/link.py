"""Every egress port of a run: how busy it was and what happened in its queue."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.metrics.spans import length_ns, union
from analysis.runs.collectives import collectives_of
from analysis.runs.records import LinkRecord
from analysis.runs.run import Run
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES


@dataclass(frozen=True)
class PortMetrics:
    """One direction of one link. `utilisation` is the share of the time in which any collective
    was in flight that the port spent sending, L1 overhead and copies of memory included, and
    `mean_backlog_bytes` the mean of its queue over that time; None without collectives, or where
    the queue does not count.
    The counters hold the set-up as well (rendezvous of the ranks, alignments), which makes both a
    little too high in short runs; `utilisation` never exceeds 1."""

    record: LinkRecord
    rate_bps: int
    wire_bytes: int
    utilisation: float | None
    mean_backlog_bytes: float | None

    @property
    def sent_bytes(self) -> int:
        """The bytes of packets, without L1 overhead, and of copies of memory."""
        return self.record.bytes + self.record.copied_bytes

    @property
    def name(self) -> str:
        return f"{self.record.node} → {self.record.peer}"


def communicating_spans(run: Run) -> tuple[tuple[int, int], ...]:
    """The times, in the clock of the logs, in which at least one collective was in flight."""
    return union(
        (min(r.start_ns for r in c.by_rank.values()), c.end_ns) for c in collectives_of(run)
    )


def port_metrics(run: Run) -> tuple[PortMetrics, ...]:
    """The ports in the order of links.jsonl; rates are the target fabric's."""
    busy_ns = length_ns(communicating_spans(run))
    found = []
    for record in run.port_counters:
        wire_bytes = record.bytes + L1_OVERHEAD_BYTES * record.packets + record.copied_bytes
        could_bits = record.rate_bps * busy_ns / 1e9
        waited = record.backlog_byte_us
        found.append(
            PortMetrics(
                record,
                record.rate_bps * run.environment.scale,
                wire_bytes,
                min(1.0, 8 * wire_bytes / could_bits) if could_bits else None,
                1000 * waited / busy_ns if waited is not None and busy_ns else None,
            )
        )
    return tuple(found)
