"""The calls of ranks that were seen while a run went, for who looks at it meanwhile."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from emulator.ranks.failures.calls import Call, read_calls

LIVE = "live"
"""The folder in the directory of a run that says how far it is (emulator/live_notes.py)."""
_CALLS = "calls.json"
_KEPT = 512
"""The last calls of a rank that are kept."""


class SeenCalls:
    """Collects what ranks have noted of their calls (workloads/observer/posts.py), which goes back
    a few of them alone."""

    def __init__(self, places: Sequence[tuple[str, Path]]) -> None:
        """`places` are the jobs by name, with the folders of their ranks' logs."""
        self._places = places
        self._calls: dict[tuple[str, int], deque[Call]] = {}
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Collect what is noted now. Raises OSError."""
        for job, ranks in self._places:
            found = read_calls(ranks)
            for rank, calls in found.by_rank.items():
                kept = self._calls.setdefault((job, rank), deque(maxlen=_KEPT))
                own = {(call.group, call.kind, call.number): call for call in (*kept, *calls)}
                kept.clear()
                kept.extend(sorted(own.values(), key=lambda call: call.posted_ns))
                self._counts[job, rank] = found.counts[rank]

    def write(self, folder: Path) -> None:
        """Write what was collected into `calls.json` of a folder. Raises OSError."""
        found = [
            {
                "job": job,
                "rank": rank,
                "posted": self._counts[job, rank][0],
                "over": self._counts[job, rank][1],
                "calls": [
                    {
                        "group": call.group,
                        "number": call.number,
                        "kind": call.kind,
                        "size_bytes": max(0, call.size_bytes),
                        "state": call.state,
                        "posted_ns": call.posted_ns,
                        "at_ns": call.at_ns,
                    }
                    for call in calls
                ],
            }
            for (job, rank), calls in sorted(self._calls.items())
        ]
        write_whole(folder / _CALLS, json.dumps(found, separators=(",", ":")))


def write_whole(path: Path, text: str) -> None:
    """Write a file that is whole at any time for who reads it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)
