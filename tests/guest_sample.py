"""Tests for test_guest_mark.py to run; this file's name keeps them out of all other runs."""

import time

import pytest


@pytest.mark.guest
@pytest.mark.long
def test_in_virtual_time() -> None:
    before = time.monotonic_ns()
    sum(range(1_000_000))
    assert time.monotonic_ns() == before
