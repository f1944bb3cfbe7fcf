"""OpenMPI's messages in a stream: greeting, frames, and what the captured part leaves out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.decode.mpi.frames import envelopes, rank_of_greeting
from analysis.decode.mpi.messages import kind_of_tag
from analysis.runs.mpi_messages import (
    MpiMessage,
    described,
    load_mpi_messages,
    unseen,
    write_mpi_messages,
)

_GREETING = struct.pack("<II16s", 0xBE580001, 3, b"OPAL-TCP-BTL")


@dataclass(frozen=True)
class _Stream:
    """A stream of which the first `kept` bytes of each segment were captured."""

    data: bytes
    segment: int = 1 << 30
    kept: int = 1 << 30

    @property
    def length_bytes(self) -> int:
        return len(self.data)

    def read(self, position: int, count: int) -> bytes:
        parts = b""
        for start, data in self.runs_from(position):
            if start != position + len(parts):
                break
            parts += data
        return parts[:count]

    def runs_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        for start in range(0, len(self.data), self.segment):
            end = min(start + self.kept, start + self.segment, len(self.data))
            if end > position:
                begin = max(start, position)
                yield begin, self.data[begin:end]


def _frame(kind: int, content: bytes) -> bytes:
    return struct.pack("<BBHI", kind, 1, 0, len(content)) + content


def _eager(tag: int, number: int, size_bytes: int) -> bytes:
    return _frame(0x41, struct.pack("<BBHiiH", 0x41, 0, 5, 3, tag, number) + bytes(size_bytes))


def _long(tag: int, number: int, size_bytes: int) -> bytes:
    announced = struct.pack("<BBHiiHHQQ", 0x42, 0x2C, 5, 3, tag, number, 0, size_bytes, 0)
    put = struct.pack("<BBHIQQ", 0x20, 2, 1, size_bytes, 0, size_bytes) + bytes(size_bytes)
    return _frame(0x42, announced) + put


def test_messages_are_read_from_the_greeting_on() -> None:
    stream = _Stream(_GREETING + _eager(-12, 1, 8) + _long(-17, 2, 70_000) + _eager(7, 3, 100))
    assert rank_of_greeting(stream) == 3
    found = [
        (e.context, e.source, e.tag, e.number, e.size_bytes, e.eager) for e in envelopes(stream)
    ]
    assert found == [
        (5, 3, -12, 1, 8, True),
        (5, 3, -17, 2, 70_000, False),
        (5, 3, 7, 3, 100, True),
    ]


def test_of_a_message_without_data_nothing_follows_its_announcement() -> None:
    announced = struct.pack("<BBHiiHHQQ", 0x42, 0x2C, 5, 3, -16, 1, 0, 0, 0)
    stream = _Stream(_GREETING + _frame(0x42, announced) + _long(7, 2, 70_000))
    ends = [(each.size_bytes, each.end) for each in envelopes(stream)]
    assert ends == [(0, len(_GREETING) + 8 + len(announced)), (70_000, stream.length_bytes)]


def test_another_program_is_none_of_openmpi() -> None:
    assert rank_of_greeting(_Stream(b"GET / HTTP/1.1\r\n" + bytes(100))) is None
    assert rank_of_greeting(_Stream(b"")) is None


def test_behind_a_header_that_was_cut_the_walk_goes_on() -> None:
    """The capture keeps the first 60 bytes of segments of 1,000. The second message's header lies
    at 838, the third begins at byte 2,000."""
    first, second = _eager(-12, 1, 792), _eager(-12, 2, 1_140)
    third = _eager(-12, 3, 8)
    assert len(_GREETING + first) == 838 and len(_GREETING + first + second) == 2_000
    stream = _Stream(_GREETING + first + second + third, segment=1_000, kept=60)
    assert [each.number for each in envelopes(stream)] == [1, 3]


def _message(number: int, context: int = 0, tag: int = -12) -> MpiMessage:
    return MpiMessage(context, 0, 1, tag, kind_of_tag(tag), number, 8, 1, 1, 2)


def test_what_is_missing_is_told_by_the_numbers() -> None:
    assert unseen([_message(1), _message(2), _message(1, context=1), _message(3)]) == 0
    assert unseen([_message(1), _message(4), _message(5)]) == 2
    assert unseen([_message(65_535), _message(0)]) == 0
    said = described([_message(1), _message(3), _message(4, tag=9)])
    assert said == "2 of all_reduce, 1 of send_recv; the headers of 1 more were not captured"


def test_a_run_directory_keeps_them(tmp_path: Path) -> None:
    assert load_mpi_messages(tmp_path) == []
    messages = [_message(1), MpiMessage(0, 2, 3, 4, "send_recv", 1, 0, None, None, None)]
    write_mpi_messages(tmp_path, messages)
    assert load_mpi_messages(tmp_path) == messages
