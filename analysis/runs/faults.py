"""The faults of a run as they happened: from when, until when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from analysis.runs.records import FaultEventRecord
from analysis.runs.run import Run


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """A fault, by the words of its effect ("link-down leaf0-spine1"), from `start_ns` to `end_ns`
    (monotonic clock). One that nothing ended has no end."""

    what: str
    start_ns: int
    end_ns: int | None

    def touches(self, start_ns: int, end_ns: int) -> bool:
        """Whether any of it is between two times."""
        return self.start_ns < end_ns and (self.end_ns is None or self.end_ns > start_ns)


def fault_events(run: Run) -> list[FaultEventRecord]:
    """The begins and ends of faults that reached this run or job, in order."""
    return [each for each in run.environment.faults if each.job in (None, run.spec.name)]


def fault_spans(run: Run) -> list[FaultSpan]:
    """The faults that reached this run or job, by their begin. Links that one fault takes away
    together are one."""
    events: dict[str, list[FaultEventRecord]] = defaultdict(list)
    for event in fault_events(run):
        events[event.what].append(event)
    found = []
    for what, of_fault in events.items():
        active, since_ns = 0, 0
        for event in of_fault:
            if event.began and active == 0:
                since_ns = event.at_ns
            active += 1 if event.began else -1
            if not event.began and active == 0:
                found.append(FaultSpan(what, since_ns, event.at_ns))
        if active > 0:
            found.append(FaultSpan(what, since_ns, None))
    return sorted(found, key=lambda span: (span.start_ns, span.what))
