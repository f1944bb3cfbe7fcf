"""The chunks of a collective that ran as programs, each with its phases over all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.runs.collectives import collectives_of
from analysis.runs.run import Run


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase of a chunk, from its first rank's begin to its last one's end, on the clock of the
    logs, in nanoseconds. `dimension` is the one that it goes along, the innermost being 0; None
    where its algorithm has none."""

    chunk: int
    name: str
    dimension: int | None
    start_ns: int
    end_ns: int


def chunk_spans(run: Run) -> dict[tuple[str, str], tuple[PhaseSpan, ...]]:
    """(group, collective) -> its phases, by chunk and begin; nothing for what ran by Gloo's own
    algorithms. Raises RunError."""
    measured = {(c.group, c.id): c for c in collectives_of(run) if c.schedule.chunks}
    ends: dict[tuple[str, str], dict[tuple[int, str], tuple[int, int]]] = {}
    for record in (record for log in run.ranks for record in log.chunks):
        if (key := (record.group, record.id)) not in measured:
            continue
        own = ends.setdefault(key, {})
        for name, start_ns, end_ns in record.phases:
            first_ns, last_ns = own.get((record.chunk, name), (start_ns, end_ns))
            own[record.chunk, name] = min(first_ns, start_ns), max(last_ns, end_ns)
    found = {}
    for key, own in ends.items():
        chunks = measured[key].schedule.chunks
        dimensions = [{phase.name: phase.dimension for phase in c.program.phases} for c in chunks]
        spans = [
            PhaseSpan(chunk, name, dimensions[chunk].get(name), *span)
            for (chunk, name), span in own.items()
        ]
        found[key] = tuple(sorted(spans, key=lambda span: (span.chunk, span.start_ns)))
    return found
