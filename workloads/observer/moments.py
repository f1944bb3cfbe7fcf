"""The moments of this rank at which a fault of the spec begins: iterations, and operations that it
posts.

`observer.py` beside this file loads it; it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import socket
from typing import Any

_ANSWER_BYTES = 64


class Moments:
    """Counts what a rank does, and waits where a fault is to begin first. Numbers count from 0."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """`plan` is that of emulator/ranks/moments.py."""
        self._socket, self._job = plan["socket"], plan["job"]
        self._of_ranks = plan["of_ranks"]
        self._operations = 0

    def posting(self, rank: int) -> None:
        """The rank is about to post a collective or a message."""
        number, self._operations = self._operations, self._operations + 1
        self._come(rank, "operation", number)

    def beginning(self, rank: int, iteration: int) -> None:
        """An iteration of the rank begins."""
        self._come(rank, "iteration", iteration)

    def _come(self, rank: int, kind: str, number: int) -> None:
        if [kind, number] not in self._of_ranks.get(str(rank), ()):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as told:
            told.connect(self._socket)
            told.send(json.dumps({"job": self._job, "rank": rank, kind: number}).encode())
            told.recv(_ANSWER_BYTES)
