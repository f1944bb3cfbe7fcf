"""A guest's memory is allocated ahead of its use, within bounds, and no content is ever touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.virtual import boot
from emulator.virtual.host.core import Core
from emulator.virtual.memory.reserve import (
    Reserve,
    Window,
    blocks_with_data,
    kept_reserve,
    wanted_bytes,
)
from tests.virtual.conftest import Guest

_MB = 2**20
_FILL = """
held = [bytearray(b"x") * 2**20 for _ in range(400)]
print(len(held))
import time
for _ in range(2000): time.sleep(0.001)  # time for the other core, too
"""


@pytest.fixture
def block_file(tmp_path: Path) -> Iterator[int]:
    """A sparse file of two huge pages in the host's memory."""
    file = os.memfd_create("guest")
    os.ftruncate(file, 4 * _MB)
    yield file
    os.close(file)


@pytest.fixture
def window() -> Iterator[Window]:
    window = Window()
    yield window
    window.close()


def test_a_block_is_allocated_whole_and_its_neighbour_is_not(
    block_file: int, window: Window
) -> None:
    assert window.allocate(block_file, 2 * _MB)
    assert os.fstat(block_file).st_blocks * 512 == 2 * _MB
    assert os.lseek(block_file, 0, os.SEEK_DATA) == 2 * _MB


def test_what_a_block_holds_stays(block_file: int, window: Window) -> None:
    os.pwrite(block_file, b"guest", 3 * 4096)
    assert window.allocate(block_file, 0)
    assert os.pread(block_file, 2 * _MB, 0).strip(b"\0") == b"guest"
    assert os.pread(block_file, 5, 3 * 4096) == b"guest"


def test_blocks_without_huge_pages_are_allocated_page_by_page(
    block_file: int, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_such_advice = 10_000  # as on hosts before Linux 6.1: EINVAL
    monkeypatch.setattr("emulator.virtual.memory.reserve._MADV_COLLAPSE", no_such_advice)
    assert window.allocate(block_file, 0)
    assert os.fstat(block_file).st_blocks * 512 == 2 * _MB


def test_a_host_without_room_is_no_error(window: Window, tmp_path: Path) -> None:
    file = os.open(tmp_path / "short", os.O_RDWR | os.O_CREAT)
    assert not window.allocate(file, 0)  # the block lies beyond the file's end: SIGBUS, if touched
    os.close(file)


def test_blocks_that_have_a_page_are_found(block_file: int) -> None:
    assert list(blocks_with_data(block_file)) == []
    os.pwrite(block_file, b"x", 4 * _MB - 1)
    assert list(blocks_with_data(block_file)) == [2 * _MB]
    os.pwrite(block_file, b"x", 5 * 4096)
    assert list(blocks_with_data(block_file)) == [0, 2 * _MB]


@given(st.integers(0, 2**38), st.integers(2**26, 2**38))
def test_the_reserve_is_never_more_than_a_guest_is_known_to_use(
    used_bytes: int, memory_bytes: int
) -> None:
    wanted = wanted_bytes(used_bytes, memory_bytes)
    assert 16 * _MB <= wanted <= max(256 * _MB, used_bytes)
    assert wanted <= 256 * _MB or used_bytes + wanted <= memory_bytes // 2


def test_half_of_a_guests_memory_is_had_early() -> None:
    assert wanted_bytes(1000 * _MB, 5000 * _MB) == 1000 * _MB
    assert wanted_bytes(2000 * _MB, 5000 * _MB) == 500 * _MB
    assert wanted_bytes(2400 * _MB, 5000 * _MB) == 256 * _MB


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processor cores")
def test_a_guest_that_fills_memory_finds_some_of_it_allocated(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Reserve] = []

    @contextmanager
    def recorded(pid: int, symbols: Path, core: Core) -> Iterator[Reserve]:
        with kept_reserve(pid, symbols, core) as reserve:
            kept.append(reserve)
            yield reserve

    monkeypatch.setattr(boot, "kept_reserve", recorded)
    ended = guest(sys.executable, "-c", _FILL, memory_bytes=10**9)
    assert ended.lines == ["400"]
    # The least that any guest gets, and no more than all that was used and the largest reserve.
    assert 16 * _MB <= kept[0].allocated_bytes <= 800 * _MB
