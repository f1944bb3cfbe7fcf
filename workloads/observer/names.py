"""The names of collectives and messages, alike at all ranks.

A collective is named by its group, its number in the group and its kind, a message by its ends.
`observer.py` beside this file loads it; it imports nothing but the module beside it.
"""

from __future__ import annotations

import threading
from typing import Any

from .operations import bytes_of, collectives, first_tensor


class Names:
    """Counts what groups have done. Operations may come from several threads, hence the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tags: dict[str, int] = {}
        self._programs: dict[str, int] = {}
        self._sent: dict[tuple[Any, ...], int] = {}

    def next_tag(self, label: str, count: int = 1) -> int:
        """The number of a group's next collective, as Gloo counts; of `count`, the first one's."""
        with self._lock:
            tag = self._tags.get(label, 0)
            self._tags[label] = tag + count
        return tag

    def program(self, label: str, kind: str) -> str:
        """The name of a group's next collective that runs as a program."""
        with self._lock:
            number = self._programs.get(label, 0)
            self._programs[label] = number + 1
        return f"{label}.{number}.{kind}"

    def collectives(
        self, name: str, args: Any, label: str, ranks: list[int]
    ) -> list[dict[str, Any]]:
        """The records of an operation of `OPERATIONS` so far."""
        found = []
        for each in collectives(name, args, len(ranks)):
            tag = self.next_tag(label)
            own = {"event": "collective", "id": f"{label}.{tag}.{each['kind']}", "tag": tag}
            found.append(own | each)
        return found

    def message(
        self, name: str, args: Any, label: str, ranks: list[int], rank: int
    ) -> dict[str, Any]:
        """The record so far of a message that `rank` sends or gets; of one from anybody, the sender
        is known when it has come."""
        me = ranks.index(rank)
        record = {
            "event": "collective",
            "kind": "send_recv",
            "tag": None,
            "size_bytes": bytes_of(args[0]),
            "element_bytes": first_tensor(args).element_size(),
            "root": 0,
            "peer": 1,
        }
        if name == "recv_any_source_":
            return record | {"from_anybody": (label, ranks, args[2])}
        ends = (me, args[2]) if name == "send" else (args[2], me)
        return record | self.ends(label, ranks, ends, args[3])

    def ends(self, label: str, ranks: list[int], ends: tuple[int, int], tag: int) -> dict[str, Any]:
        """The name and the ranks of the next message between two members of a group."""
        source, destination = (ranks[end] for end in ends)
        key = label, source, destination, tag
        with self._lock:
            number = self._sent.get(key, 0)
            self._sent[key] = number + 1
        name = f"{label}.{source}to{destination}.{tag}.{number}"
        return {"id": name, "ranks": [source, destination]}
