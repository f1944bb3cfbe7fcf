"""All gaps of one direction at once, where a log says every message that there must be.

The missing part is then known: data messages of known sizes, and a number of notifications of 48
bytes. Together they fill the gaps exactly, each once. A gap alone can often be filled in several
ways (two messages and 100 notifications are as long as three messages); all gaps together rarely.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from analysis.decode.gloo.gap_tiling import Key
from collectives.schedule.gloo import PREAMBLE_BYTES

_MOST_OPTIONS: Final = 2_000
_MOST_STEPS: Final = 50_000
NEVER_NS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class OpenGap:
    """A stretch of a stream without captured preambles, and when its ends were on the wire."""

    size_bytes: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Hidden:
    """A data message that was not captured, and when its slot was in use (0, 0: not known)."""

    key: Key
    size_bytes: int
    first_ns: int
    last_ns: int

    def may_be_in(self, gap: OpenGap) -> bool:
        """Whether its slot was in use when the gap was."""
        return self.first_ns <= gap.end_ns and (self.last_ns or NEVER_NS) >= gap.begin_ns


Filling = tuple[int, list[Hidden]]
"""How many notifications a gap has, and its data messages."""


def partition(
    gaps: Sequence[OpenGap], hidden: Sequence[Hidden], notifications: int
) -> list[Filling] | None:
    """The contents of each gap, with every hidden message in one of them; None where that is
    impossible, or not found within bounds."""
    total = sum(PREAMBLE_BYTES + one.size_bytes for one in hidden) + PREAMBLE_BYTES * notifications
    if total != sum(gap.size_bytes for gap in gaps):
        return None
    by_size: dict[int, list[Hidden]] = defaultdict(list)
    for one in hidden:
        by_size[one.size_bytes].append(one)
    options = []
    for gap in gaps:
        most = {s: sum(one.may_be_in(gap) for one in alike) for s, alike in by_size.items()}
        found = list(_options(gap.size_bytes, most, notifications))
        if not found:
            return None
        options.append(found)
    for chosen in _choices(options, Counter({s: len(alike) for s, alike in by_size.items()})):
        placed = _place(gaps, chosen, by_size)
        if placed is not None:
            return placed
    return None


def _options(size_bytes: int, most: dict[int, int], notifications: int) -> Iterator[Counter[int]]:
    """The data sizes that a gap can have, with as many notifications as there are at most; those
    with the fewest notifications first."""
    sizes = sorted((size for size, count in most.items() if count), reverse=True)
    left_over = PREAMBLE_BYTES * notifications
    # The most that the sizes from each index on can fill.
    room = [0] * (len(sizes) + 1)
    for index in reversed(range(len(sizes))):
        room[index] = room[index + 1] + most[sizes[index]] * (PREAMBLE_BYTES + sizes[index])
    found = 0

    def search(left: int, index: int) -> Iterator[Counter[int]]:
        nonlocal found
        if left > room[index] + left_over or found >= _MOST_OPTIONS:
            return
        if index == len(sizes):
            if left % PREAMBLE_BYTES == 0:
                found += 1
                yield Counter()
            return
        one = PREAMBLE_BYTES + sizes[index]
        for count in range(min(most[sizes[index]], left // one), -1, -1):
            for rest in search(left - count * one, index + 1):
                yield rest + Counter({sizes[index]: count})

    yield from search(size_bytes, 0)


def _choices(
    options: Sequence[Sequence[Counter[int]]], left: Counter[int]
) -> Iterator[list[Counter[int]]]:
    """One option for each gap, such that all data messages are used. Notifications then add up by
    themselves. Gaps with the fewest options are decided first."""
    order = sorted(range(len(options)), key=lambda gap: len(options[gap]))
    chosen: list[Counter[int]] = [Counter()] * len(options)
    steps = 0
    if not order:
        if not left.total():
            yield []
        return
    # A stack, as there may be more gaps than calls within calls.
    levels = [(left, iter(options[order[0]]))]
    while levels:
        at = len(levels) - 1
        left, others = levels[-1]
        for option in others:
            steps += 1
            if steps > _MOST_STEPS:
                return
            if any(left[size] < count for size, count in option.items()):
                continue
            chosen[order[at]] = option
            after = left - option
            if at + 1 < len(order):
                levels.append((after, iter(options[order[at + 1]])))
                break
            if not after.total():
                yield list(chosen)
        else:
            levels.pop()


def _place(
    gaps: Sequence[OpenGap], chosen: Sequence[Counter[int]], by_size: dict[int, list[Hidden]]
) -> list[Filling] | None:
    """The message of a size in each gap: that whose slot went out of use first, of those in
    use. If any order fits into all times, this one does. None where none does."""
    left = {size: sorted(alike, key=lambda one: one.last_ns) for size, alike in by_size.items()}
    found: list[Filling] = []
    for gap, option in zip(gaps, chosen, strict=True):
        data = []
        for size, count in option.items():
            for _ in range(count):
                one = next((one for one in left[size] if one.may_be_in(gap)), None)
                if one is None:
                    return None
                left[size].remove(one)
                data.append(one)
        rest = gap.size_bytes - sum(PREAMBLE_BYTES + one.size_bytes for one in data)
        found.append((rest // PREAMBLE_BYTES, data))
    return found
