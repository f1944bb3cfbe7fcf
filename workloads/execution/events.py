"""A rank's event log: `ranks/NNN.jsonl` in the run directory, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from workloads.execution.programs.engine import ChunkTimes


class EventLog:
    """Collects a rank's events in memory and writes them once, so that logging costs no I/O on
    the way.

    Completion callbacks of Gloo run in its own threads, hence the lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, object]] = []
        self._lock = Lock()
        self.work_logged = 0
        """Lines of computations and collectives so far: what the rank knows to be over."""

    def rank(self, rank: int, host: str, address: str) -> None:
        self._add({"event": "rank", "rank": rank, "host": host, "address": address})

    def connections(self, group: str, ports: Mapping[int, tuple[int, int]]) -> None:
        """(own port, peer's port) of the group's connections, by peer; once per pair."""
        for peer, (port, peer_port) in sorted(ports.items()):
            self._add(
                {
                    "event": "connection",
                    "group": group,
                    "peer": peer,
                    "port": port,
                    "peer_port": peer_port,
                }
            )

    def end(self, event: str, group: str, peer: int, told: Mapping[str, Any]) -> None:
        """An end of this rank with another's, for a group's messages, such as a queue pair."""
        self._add({"event": event, "group": group, "peer": peer} | dict(told))

    def iteration(self, index: int, start_ns: int, end_ns: int) -> None:
        self._add({"event": "iteration", "index": index, "start_ns": start_ns, "end_ns": end_ns})

    def compute(
        self,
        name: str,
        phase: str,
        iteration: int,
        start_ns: int,
        end_ns: int,
        flops: int,
        moved: int,
    ) -> None:
        self._add(
            {
                "event": "compute",
                "name": name,
                "phase": phase,
                "iteration": iteration,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "flops": flops,
                "bytes": moved,
            }
        )

    def collective(self, done: Pending, waited_ns: int) -> None:
        self._add(
            {
                "event": "collective",
                "id": done.id,
                "kind": done.kind,
                "phase": done.phase,
                "group": done.group,
                "tag": done.tag,
                "size_bytes": done.size_bytes,
                "iteration": done.iteration,
                "ranks": done.ranks,
                "start_ns": done.start_ns,
                "end_ns": done.end_ns,
                "waited_ns": waited_ns,
                "known": done.known,
            }
            | done.details
        )

    def chunk(self, group: str, id: str, times: ChunkTimes) -> None:
        """A chunk of a collective that ran as a program; its phases are [name, start, end]."""
        self._add(
            {
                "event": "chunk",
                "id": id,
                "group": group,
                "chunk": times.chunk,
                "start_ns": times.start_ns,
                "end_ns": times.end_ns,
                "phases": times.phases,
            }
        )

    def check(self, id: str) -> None:
        self._add({"event": "check", "id": id, "ok": True})

    def _add(self, event: dict[str, object]) -> None:
        with self._lock:
            self._lines.append(event)
            self.work_logged += event["event"] in ("compute", "collective")

    def write(self) -> None:
        """Write all events, in the order in which they were logged."""
        with self._lock, self._path.open("w") as file:
            for line in self._lines:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


@dataclass
class Pending:
    """A work that `Communicator.wait` waits for, with its line in the log. `ranks` is None for
    all, `tag` for messages. `work` is torch's; `end_ns` is when it completed, as far as known."""

    group: str
    id: str
    kind: str
    phase: str
    size_bytes: int
    iteration: int
    tag: int | None
    ranks: tuple[int, ...] | None
    start_ns: int
    known: int
    details: dict[str, object]
    verify: Callable[[], None] | None
    has_future: bool
    work: Any = None
    end_ns: int | None = None
