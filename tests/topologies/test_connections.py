"""How messages go by several connections of two ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topologies.spec.transports.connections import Connections


@given(
    count=st.integers(1, 64),
    splits=st.booleans(),
    grain=st.sampled_from([1, 1024, 4096]),
    size=st.integers(0, 1 << 22),
    slot=st.integers(0, (1 << 31) - 1),
)
def test_parts_are_the_message(count: int, splits: bool, grain: int, size: int, slot: int) -> None:
    connections = Connections(count, splits, grain)
    parts = connections.parts(size, slot)
    assert sum(part for _, part in parts) == size
    numbers = [number for number, _ in parts]
    assert len(set(numbers)) == len(numbers)
    assert all(number in range(count) for number in numbers)
    if splits or count == 1:
        assert numbers == list(range(len(parts)))
        assert all(part % grain == 0 for _, part in parts[:-1]) or count == 1
    else:
        assert len(parts) == 1


def test_whole_messages_take_all_connections() -> None:
    connections = Connections(8, splits=False)
    taken = {connections.parts(1, slot)[0][0] for slot in range(200)}
    assert taken == set(range(8))
