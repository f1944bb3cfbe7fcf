"""How much this rank is to send, told while it goes: a virtual GPU's host posts an iteration's
collectives long before they are carried, so it can be said beforehand how long it will take.

`observer.py` beside this file loads it; it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress

_FIRST_BYTES = 16 << 20
"""Told as soon as so much is posted, whenever that has doubled, and at the end of a step."""
_SHARES = {
    "all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0, "all_to_all": 1.0,
    "broadcast": 1.0, "reduce": 1.0, "gather": 1.0, "scatter": 1.0,
}  # fmt: skip


def sent_bytes(kind: str, size_bytes: int, ranks: int) -> int:
    """The bytes that one of so many ranks sends of a collective as Gloo carries it, on the mean, by
    its size as nccl-tests counts it: all-reduces go round a ring twice, the others bring each byte
    to where it belongs. Each of the two ends of a message counts for half."""
    if kind in ("send_recv", "send", "recv"):
        return size_bytes // 2
    share = _SHARES.get(kind, 0.0)
    return int(share * size_bytes * (ranks - 1) / ranks) if ranks else 0


class Traffic:
    """Counts what a rank posts, by iteration, and tells the place that `plan` names."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._bytes = 0
        self._next_bytes = _FIRST_BYTES

    def posted(self, kind: str, size_bytes: int, ranks: int, rank: int, iteration: int) -> None:
        """An operation has been posted."""
        self._bytes += sent_bytes(kind, size_bytes, ranks)
        if self._bytes >= self._next_bytes:
            self._next_bytes = 2 * self._bytes
            self._tell(rank, iteration, False)

    def launched(self, rank: int, iteration: int) -> None:
        """All of an iteration has been posted."""
        self._tell(rank, iteration, True)
        self._bytes, self._next_bytes = 0, _FIRST_BYTES

    def _tell(self, rank: int, iteration: int, whole: bool) -> None:
        said = {"rank": rank, "iteration": iteration, "bytes": self._bytes, "whole": whole}
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.sendto(json.dumps(said).encode(), self._place)
