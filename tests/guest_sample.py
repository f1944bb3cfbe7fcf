"""Tests for test_guest_mark.py to run; this file's name keeps them out of all other runs."""

import time
from collections.abc import Iterator

import pytest


@pytest.mark.guest
@pytest.mark.long
def test_in_virtual_time() -> None:
    time.sleep(0.001)  # pytest's many calls at one instant count as polling, and would be rested
    before = time.monotonic_ns()
    sum(range(1_000_000))
    assert time.monotonic_ns() == before


@pytest.mark.guest
def test_without_end_in_virtual_time() -> None:
    while True:
        time.sleep(1)


@pytest.fixture
def torn_down() -> Iterator[None]:
    yield
    print("torn down")


def test_without_end(torn_down: None) -> None:
    while True:
        time.sleep(1)
