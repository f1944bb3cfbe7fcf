"""A rank's event log: `ranks/NNN.jsonl` in the run directory, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from workloads.execution.programs.engine import ChunkTimes
from workloads.observer.handshakes import Handshake
from workloads.observer.posts import Post, Posts

_UNDER_WAY = 16
"""So many collectives at a time are told of to whoever asks what a rank waits for."""
_ALIGNMENT = "align"
"""The phase of what ranks begin together by, which is no collective of the workload."""


class EventLog:
    """Collects a rank's events in memory and writes them once, so that logging costs no I/O on
    the way.

    Completion callbacks of Gloo run in its own threads, hence the lock. `posts` is a file that says
    at any time which collectives are under way; None: there is none.
    """

    def __init__(self, path: Path, posts: Path | None = None) -> None:
        self.posts = None if posts is None else Posts(str(posts), _UNDER_WAY)
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

    def handshakes(self, group: str, by_peer: Mapping[int, Handshake]) -> None:
        """Round trips that TCP measured when the ranks of a group connected."""
        for peer, found in sorted(by_peer.items()):
            told = {"event": "handshake", "group": group, "peer": peer}
            self._add(told | found._asdict())

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

    def begin(self, pending: Pending, members: tuple[int, ...] | None) -> None:
        """A collective is about to be posted, of `members` where that is not its whole group."""
        if self.posts is not None:
            group = pending.group if members is None else f"{pending.group}:{_joined(members)}"
            label = f"{group}/{pending.id}"
            counted = pending.phase != _ALIGNMENT
            pending.post = self.posts.collective(
                label, pending.kind, pending.size_bytes, 0, counted
            )

    def mark(self, pending: Pending, state: str) -> None:
        """A collective is in one of the states that `Posts` has."""
        if self.posts is not None and pending.post is not None:
            self.posts.mark(pending.post, state)

    def _add(self, event: dict[str, object]) -> None:
        with self._lock:
            self._lines.append(event)
            self.work_logged += event["event"] in ("compute", "collective")

    def write(self) -> None:
        """Write all events, in the order in which they were logged."""
        with self._lock, self._path.open("w") as file:
            for line in self._lines:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _joined(members: tuple[int, ...]) -> str:
    return "-".join(map(str, members))


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
    post: Post | None = None
