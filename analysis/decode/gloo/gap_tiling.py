"""The messages that a gap of known length can consist of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from collectives.schedule.gloo import PREAMBLE_BYTES

_MOST_TILINGS: Final = 4_000
_MOST_NOTIFICATIONS: Final = 512  # in a row without data; more means that the sizes are not known

Key = tuple[int, int]
"""(side that sends the data, slot)."""


def tile(gap_bytes: int, due: dict[tuple[Key, int], int]) -> tuple[int, list[int]] | None:
    """Notifications and data messages that add up to a gap, or None.

    Returns the number of 48-byte messages and the sizes of the data messages. A size is
    rarely a multiple of 48, so most gaps have one solution. One made of data that is due
    comes first; of several that with the fewest messages, where data that no preamble
    announced counts as the three messages that its exchange would have had to hide.
    """
    available: Counter[int] = Counter()
    for (_, size), count in due.items():
        available[size] += max(count, 0)
    sizes = sorted(available, reverse=True)
    bounded = [available[size] for size in sizes]
    free = [gap_bytes // (PREAMBLE_BYTES + size) for size in sizes]
    for most in (bounded, free):
        best: tuple[int, int, dict[int, int]] | None = None
        for small, counts in _sums(gap_bytes, sizes, most):
            data = sum(counts.values())
            surplus = sum(max(0, counts[size] - available[size]) for size in counts)
            if small > _MOST_NOTIFICATIONS + 4 * data:
                continue
            cost = small + data + 3 * surplus
            if best is None or cost < best[0]:
                best = (cost, small, counts)
        if best is not None:
            return best[1], [size for size, count in best[2].items() for _ in range(count)]
    return None


def _sums(total: int, sizes: list[int], most: list[int]) -> Iterator[tuple[int, dict[int, int]]]:
    """Ways to write `total` as 48 a + sum of m_i (48 + size_i): (a, {size: m}), m_i > 0.

    At most `most[i]` of each size, larger numbers of larger sizes first.
    """
    tried = 0
    # The sizes from each index on can hold so much; more than that must be notifications.
    room = [0] * (len(sizes) + 1)
    for index in reversed(range(len(sizes))):
        room[index] = room[index + 1] + most[index] * (PREAMBLE_BYTES + sizes[index])

    def search(left: int, index: int, data: int) -> Iterator[tuple[int, dict[int, int]]]:
        nonlocal tried
        tried += 1
        if index == len(sizes):
            if left % PREAMBLE_BYTES == 0:
                yield left // PREAMBLE_BYTES, {}
            return
        one = PREAMBLE_BYTES + sizes[index]
        spare = PREAMBLE_BYTES * (_MOST_NOTIFICATIONS + 4 * (data + left // one))
        least = max(0, -(-(left - room[index + 1] - spare) // one))
        for count in range(min(most[index], left // one), least - 1, -1):
            if tried > _MOST_TILINGS:
                return
            for small, rest in search(left - count * one, index + 1, data + count):
                yield small, ({sizes[index]: count} | rest if count else rest)

    yield from search(total, 0, 0)
