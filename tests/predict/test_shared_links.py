"""Waits in queues that can be told by hand."""

from __future__ import annotations

import pytest

from analysis.predict.queue_waits import QueueWaits


def test_who_comes_to_an_empty_port_waits_for_nobody() -> None:
    waits = QueueWaits([0, 1])
    waits.passes(0, 0, 0.0, 0.0, 10.0)
    waits.passes(0, 1, 10.0, 10.0, 20.0)
    assert waits.by_link() == {}


def test_a_wait_is_divided_over_those_in_front() -> None:
    """Owner 1 comes at 4: 6 ns are left of owner 0's first, then 10 of its own, then 5 of 0's."""
    waits = QueueWaits([0, 1, 0, 1])
    waits.passes(7, 0, 0.0, 0.0, 10.0)
    waits.passes(7, 1, 1.0, 10.0, 20.0)
    waits.passes(7, 2, 2.0, 20.0, 25.0)
    waits.passes(7, 3, 4.0, 25.0, 30.0)
    assert waits.by_link() == pytest.approx({(7, 1, 0): 9.0 + 11.0, (7, 0, 1): 10.0})


def test_of_a_message_its_longest_wait_counts() -> None:
    waits = QueueWaits([0, 1])
    waits.passes(0, 0, 0.0, 0.0, 10.0)
    waits.passes(0, 1, 2.0, 10.0, 11.0)
    waits.passes(0, 1, 5.0, 11.0, 12.0)
    assert waits.by_link() == {(0, 1, 0): 8.0}


def test_ports_are_told_apart() -> None:
    waits = QueueWaits([0, 1])
    waits.passes(0, 0, 0.0, 0.0, 10.0)
    waits.passes(1, 1, 2.0, 2.0, 12.0)
    assert waits.by_link() == {}
