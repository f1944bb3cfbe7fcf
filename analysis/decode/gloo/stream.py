"""One direction of a Gloo connection, cut into messages as far as preambles were captured.

A preamble gives the place of the next one, so a stream is walked from its beginning. Where
the snap length cut a preamble (it often lies in the middle of a segment, behind the end of
the message before), the walk goes on at the next one that can be read, and leaves a gap for
`analysis.decode.gloo.rendezvous` to fill.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from analysis.decode.gloo.wire_format import (
    HELLO_BYTES,
    MAX_BOUND_SLOT,
    MAX_MESSAGE_BYTES,
    Opcode,
    is_preamble,
    is_slot,
)
from analysis.decode.tcp.stream import Direction, TcpConnection
from collectives.schedule.gloo import PREAMBLE_BYTES

MAX_GROUP_RANKS: Final = 1 << 31

# Places where a preamble may begin: a notification of 48 bytes, or a message of opcode 1 or 0.
_CANDIDATE = re.compile(
    rb"(?=\x30\0{7}[\x02\x03]\0{7}.{7}[\0-\x08\x40]\0{8}"
    rb"|.{6}\0\0\x01\0{7}.{7}[\0-\x08\x40]\0{8}"
    rb"|(?!\0{8}).{6}\0{10}.{4}\0{4}.{6}\0\0)",
    re.DOTALL,
)


@dataclass(slots=True)
class StreamMessage:
    """One message as it lies in the stream; what could not be read is None.

    `length` is the preamble's: of the data behind it, or of the buffer announced. `step` counts the
    messages of one opcode and slot in this direction; -1 until known.
    """

    position: int
    nbytes: int
    opcode: Opcode | None = None
    slot: int | None = None
    length: int | None = None
    inferred: bool = False
    step: int = -1

    @property
    def end(self) -> int:
        return self.position + self.nbytes


@dataclass(frozen=True)
class Gap:
    """A part of the stream whose messages start where nothing was captured."""

    position: int
    end: int


@dataclass
class MessageStream:
    """The walk of one direction: messages and gaps, ascending, without holes between them."""

    direction: Direction
    hello: int | None
    """The connecting side's rank in the group; None in the other direction."""
    parts: list[StreamMessage | Gap]

    @property
    def messages(self) -> list[StreamMessage]:
        return [part for part in self.parts if isinstance(part, StreamMessage)]

    @property
    def gaps(self) -> list[Gap]:
        return [part for part in self.parts if isinstance(part, Gap)]


def is_gloo(connection: TcpConnection) -> bool:
    """Whether a connection is one of Gloo's, by the first bytes of its two directions.

    The connecting side writes 8 bytes (its rank); after them, and at the start of the other
    direction, only a preamble can follow.
    """
    forward, backward = connection.directions
    hello = forward.read(0, HELLO_BYTES)
    if not forward.origin_known:
        return any(
            _next_preamble(side, 0, most_runs=64) is not None for side in connection.directions
        )
    if len(hello) < HELLO_BYTES:
        # An idle pair whose hello was not captured yet has no bytes in either direction.
        return False
    if int.from_bytes(hello, "little") >= MAX_GROUP_RANKS:
        return False
    for direction, start in ((forward, HELLO_BYTES), (backward, 0)):
        if direction.length_bytes > start:
            first = direction.read(start, PREAMBLE_BYTES)
            if len(first) == PREAMBLE_BYTES and not is_preamble(first):
                return False
            if len(first) < PREAMBLE_BYTES and _partial(first, start) is None and first:
                return False
    return True


def walk(direction: Direction, begins_with_hello: bool) -> MessageStream:
    """Cut one direction into messages and gaps."""
    position = 0
    hello = None
    if begins_with_hello and direction.origin_known:
        first = direction.read(0, HELLO_BYTES)
        if len(first) == HELLO_BYTES:
            hello = int.from_bytes(first, "little")
        position = min(HELLO_BYTES, direction.length_bytes)
    parts: list[StreamMessage | Gap] = []
    while position < direction.length_bytes:
        data = direction.read(position, PREAMBLE_BYTES)
        message = _whole(data, position) or _partial(data, position)
        if message is None:
            # Behind it, whatever stands there: copies of one segment may disagree.
            found = _next_preamble(direction, position + 1)
            end = direction.length_bytes if found is None else found
            parts.append(Gap(position, end))
            position = end
            continue
        parts.append(message)
        position = message.end
    return MessageStream(direction, hello, parts)


def _whole(data: bytes, position: int) -> StreamMessage | None:
    if not is_preamble(data):
        return None
    nbytes, opcode, slot, _, length, _ = struct.unpack("<6Q", data)
    return StreamMessage(position, nbytes, Opcode(opcode), slot, length)


def _partial(data: bytes, position: int) -> StreamMessage | None:
    """A preamble of which at least size, opcode and slot were captured (24 of 48 bytes)."""
    if not 24 <= len(data) < PREAMBLE_BYTES:
        return None
    nbytes, opcode, slot = struct.unpack_from("<3Q", data)
    if opcode == Opcode.SEND_BUFFER:
        known = PREAMBLE_BYTES <= nbytes <= MAX_MESSAGE_BYTES and slot < MAX_BOUND_SLOT
        length = nbytes - PREAMBLE_BYTES
        return StreamMessage(position, nbytes, Opcode(opcode), slot, length) if known else None
    notification = opcode in (Opcode.NOTIFY_SEND_READY, Opcode.NOTIFY_RECV_READY)
    if not (notification and nbytes == PREAMBLE_BYTES) and opcode != Opcode.SEND_UNBOUND_BUFFER:
        return None
    if not PREAMBLE_BYTES <= nbytes <= MAX_MESSAGE_BYTES or not is_slot(slot):
        return None
    if any(data[24:32]):
        return None
    announced = None if notification else nbytes - PREAMBLE_BYTES
    return StreamMessage(position, nbytes, Opcode(opcode), slot, announced)


def _next_preamble(direction: Direction, position: int, most_runs: int = 0) -> int | None:
    """Stream position of the first preamble captured at or behind `position`.

    A preamble cut by the snap length is taken only where a segment begins with it, and not one of
    a bound buffer, which much data looks like.
    """
    for number, (start, data) in enumerate(direction.runs_from(position)):
        if most_runs and number >= most_runs:
            break
        cut = _partial(data, start) if start > position else None
        if cut is not None and cut.opcode is not Opcode.SEND_BUFFER:
            return start
        for match in _CANDIDATE.finditer(data):
            at = match.start()
            if is_preamble(data[at : at + PREAMBLE_BYTES]):
                return start + at
    return None
