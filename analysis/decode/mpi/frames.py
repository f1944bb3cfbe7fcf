"""OpenMPI's frames in one direction of a TCP connection, as far as their headers were captured.

Formats are those of OpenMPI 4.1 on little-endian machines of one kind: `btl_tcp_hdr.h`
(`mca_btl_tcp_hdr_t`), `btl_tcp_endpoint.c` (the greeting) and `pml_ob1_hdr.h`.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

GREETING: Final = b"OPAL-TCP-BTL"
"""Behind the process's name (job and rank, of 4 bytes each)."""
_GREETING_AT = 8
_GREETING_BYTES = 24
_HEADER = struct.Struct("<BBHI")  # tag, type, segments, bytes behind header and segments
_SEGMENT_BYTES = 16
_SEND, _PUT = 1, 2
_MATCH = struct.Struct("<BBHiiH")  # type, flags, context, source, tag, number
_LENGTH = struct.Struct("<Q")
_MATCH_BYTES = _MATCH.size
_LENGTH_AT = 16
MATCH, RENDEZVOUS, GET, FRAGMENT = 0x41, 0x42, 0x43, 0x46
_ANNOUNCED_BYTES = 32
"""The bytes of the header of a rendezvous, and of a fragment, before their data."""
# A frame that is sent begins with its own tag again, which is the type of what is in it.
_CANDIDATE = re.compile(rb"(?=([\x41-\x49])\x01\0\0.{4}\1)", re.DOTALL)


class Stream(Protocol):
    """A direction of a connection (`analysis.decode.tcp.stream.Direction`)."""

    @property
    def length_bytes(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """The captured bytes from `position` on: `count` of them, or fewer where cut."""

    def runs_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Every captured run that ends behind `position`: (start, bytes), ascending."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The announcement of a message, with or without its data: `context` is the communicator's
    number, `source` the sender's rank in it, `number` counts messages of a sender to a receiver
    there (16 bits). `end` is the position behind the last of its data; None where not all of it
    came, or some of its frames could not be read."""

    position: int
    end: int | None
    context: int
    source: int
    tag: int
    number: int
    size_bytes: int
    eager: bool
    """Whether the data is in this frame."""


def rank_of_greeting(stream: Stream) -> int | None:
    """The rank of the process that sends, in its job; None where it is no stream of OpenMPI."""
    head = stream.read(0, _GREETING_BYTES)
    if head[_GREETING_AT : _GREETING_AT + len(GREETING)] != GREETING:
        return None
    return int.from_bytes(head[4:8], "little")


def envelopes(stream: Stream) -> list[Envelope]:
    """The messages that are announced, in order. Where a header was cut, the walk goes on at the
    next one that was captured. Data of long messages follows in frames that do not name theirs; it
    comes in order."""
    position: int | None = _GREETING_BYTES
    found: list[Envelope] = []
    missing: deque[list[int]] = deque()  # (place in `found`, bytes that are to come)
    while position is not None and position < stream.length_bytes:
        head = stream.read(position, _HEADER.size)
        if len(head) < _HEADER.size:
            position = _next(stream, position)
            continue
        tag, kind, segments, size_bytes = _HEADER.unpack(head)
        end = position + _HEADER.size + size_bytes
        data_bytes = 0
        if kind == _PUT:
            end += _SEGMENT_BYTES * segments
            data_bytes = size_bytes
        elif kind == _SEND and tag == FRAGMENT:
            data_bytes = max(0, size_bytes - _ANNOUNCED_BYTES)
        elif kind == _SEND and tag in (MATCH, RENDEZVOUS, GET):
            content = stream.read(position + _HEADER.size, _LENGTH_AT + _LENGTH.size)
            envelope = _envelope(position, end, content, size_bytes)
            if envelope is not None:
                if envelope.end is None:
                    missing.append([len(found), envelope.size_bytes])
                    data_bytes = max(0, size_bytes - _ANNOUNCED_BYTES)
                found.append(envelope)
        elif kind != _SEND:
            end = -1
        while data_bytes and missing:
            taken = min(data_bytes, missing[0][1])
            data_bytes -= taken
            missing[0][1] -= taken
            if not missing[0][1]:
                place, _ = missing.popleft()
                found[place] = replace(found[place], end=end)
        position = end if end > position else _next(stream, position)
    return found


def _envelope(position: int, end: int, content: bytes, size_bytes: int) -> Envelope | None:
    if len(content) < _MATCH_BYTES:
        return None
    kind, _, context, source, tag, number = _MATCH.unpack_from(content)
    eager = kind == MATCH
    if eager:
        length = size_bytes - _MATCH_BYTES
    elif len(content) < _LENGTH_AT + _LENGTH.size:
        return None
    else:
        (length,) = _LENGTH.unpack_from(content, _LENGTH_AT)
    # Nothing follows the announcement of a message without data, as that of MPI_Ssend.
    whole = end if eager or not length else None
    return Envelope(position, whole, context, source, tag, number, length, eager)


def _next(stream: Stream, position: int) -> int | None:
    """The position of the next frame whose header was captured; None where there is no more."""
    for start, data in stream.runs_from(position + 1):
        found = _CANDIDATE.search(data)
        if found is not None:
            return start + found.start()
    return None
