"""TCP's options against a reader of one packet, whatever is in their bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.decode.tcp.multipath_options import multipath_options
from analysis.decode.tcp.options import Int64, UInt8, timestamp_options

_ROOM = 40
_STAMP = bytes([8, 10, 1, 2, 3, 4, 5, 6, 7, 8])


def _options(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The place of each option and its bytes, as RFC 9293 (section 3.2) has a receiver read them;
    one that is cut off ends the list."""
    at = 0
    while at < len(text) and text[at] != 0:
        length = 1 if text[at] == 1 else text[at + 1] if at + 1 < len(text) else 0
        if length < 1 or (text[at] != 1 and length < 2) or at + length > len(text):
            return
        yield at, text[at : at + length]
        at += length


# Options as they are sent, and bytes that are none, so that both ways of reading are taken.
_sent = st.sampled_from(
    [b"\x01", b"\x00", b"\x02\x04\x05\xb4", b"\x04\x02", _STAMP, b"\x1e\x0c\x00\x81" + bytes(8)]
    + [bytes([30, 4, subtype << 4, 0]) for subtype in range(4)]
)
_lists = st.lists(st.one_of(_sent, st.binary(max_size=6)), max_size=12).map(
    lambda parts: b"".join(parts)[:_ROOM]
)


def _columns(texts: list[bytes]) -> tuple[UInt8, Int64]:
    padded = b"".join(text.ljust(_ROOM, b"\x02") for text in texts)
    options = np.frombuffer(padded, dtype=np.uint8).reshape(len(texts), _ROOM)
    return options, np.array([len(text) for text in texts], dtype=np.int64)


@given(st.lists(_lists, min_size=1, max_size=20))
def test_time_stamps_are_the_first_of_a_list(texts: list[bytes]) -> None:
    present, value, echo = timestamp_options(*_columns(texts))
    for row, text in enumerate(texts):
        found = [each for _, each in _options(text) if each[0] == 8 and len(each) == 10]
        assert bool(present[row]) == bool(found), text
        if found:
            assert value[row] == int.from_bytes(found[0][2:6], "big")
            assert echo[row] == int.from_bytes(found[0][6:10], "big")


@given(st.lists(_lists, min_size=1, max_size=20))
def test_multipath_options_are_the_last_of_their_kind(texts: list[bytes]) -> None:
    found = multipath_options(*_columns(texts))
    for row, text in enumerate(texts):
        last = {0: -1, 1: -1, 2: -1}
        for at, each in _options(text):
            if each[0] == 30 and len(each) >= 4 and each[2] >> 4 in last:
                last[each[2] >> 4] = at
        told = (found.capable[row], found.join[row], found.dss[row])
        assert told == tuple(last.values()), text


@pytest.mark.parametrize("cut", range(1, len(_STAMP)))
def test_an_option_that_is_cut_off_is_none(cut: int) -> None:
    present, _, _ = timestamp_options(*_columns([b"\x04\x02" + _STAMP[:cut]]))
    assert not present[0]
