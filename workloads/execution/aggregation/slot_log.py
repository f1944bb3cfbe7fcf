"""When operations held slots of an aggregation node: `switches/NAME.jsonl` in the run directory."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock

from workloads.execution.programs.engine import ChunkTimes


class SlotLog:
    """Collects the operations of a node in memory and writes them once, as ranks do theirs.

    Operations of several trees end in threads of their own, hence the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, int]] = []
        self._lock = Lock()

    def operation(self, tree: int, number: int, times: ChunkTimes) -> None:
        """An operation of the `number`th collective of the node's `tree`th tree is over. It held
        its slot from the start of its program here to the end."""
        line = {"tree": tree, "collective": number, "operation": times.chunk}
        line |= {"start_ns": times.start_ns, "end_ns": times.end_ns}
        with self._lock:
            self._lines.append(line)

    def write(self) -> None:
        """Write what there is, by time. Raises OSError."""
        with self._lock:
            lines = sorted(self._lines, key=lambda line: (line["start_ns"], *line.values()))
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        self._path.write_text(text)
