"""The order of chunks of several collectives: one on all ranks, and no rank waits for ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.start_order import CollectiveOrder, Start, StartOrder


@dataclass(frozen=True)
class Post:
    """A rank posts the next collective."""

    priority: int
    chunks: int


@dataclass(frozen=True)
class Wait:
    """A rank waits for a collective, by its number."""

    collective: int


@dataclass
class Rank:
    """A rank with its own pace: what it has done of the actions that all ranks go through."""

    order: StartOrder
    place: int = 0
    posted: int = 0
    started: list[Start] = field(default_factory=list)
    complete: set[Start] = field(default_factory=set)
    agreed: set[int] = field(default_factory=set)


class Ranks:
    """Ranks that do what they may in any order: whatever the times of machines and networks are.

    A chunk completes at a rank once all ranks have started it; a rank hears of an agreement once
    all have posted the collective.
    """

    def __init__(
        self, actions: list[Post | Wait], ranks: int, order: CollectiveOrder, in_flight: int
    ) -> None:
        self.actions = actions
        self.ranks = [Rank(StartOrder(order, in_flight)) for _ in range(ranks)]
        self.proposals: dict[int, list[int]] = {}
        self.chunks = [action.chunks for action in actions if isinstance(action, Post)]

    def run(self, random: Random) -> None:
        """Until nothing is left to do."""
        while choices := self._choices():
            rank, what, subject = random.choice(choices)
            getattr(self, f"_{what}")(rank, subject)
            while (start := rank.order.next()) is not None:
                rank.started.append(start)

    def _choices(self) -> list[tuple[Rank, str, object]]:
        found: list[tuple[Rank, str, object]] = []
        for rank in self.ranks:
            if self._may_act(rank):
                found.append((rank, "act", None))
            for start in rank.started:
                everywhere = all(start in other.started for other in self.ranks)
                if everywhere and start not in rank.complete:
                    found.append((rank, "complete", start))
            for collective, proposals in self.proposals.items():
                if len(proposals) == len(self.ranks) and collective not in rank.agreed:
                    found.append((rank, "agree", collective))
        return found

    def _may_act(self, rank: Rank) -> bool:
        if rank.place == len(self.actions):
            return False
        action = self.actions[rank.place]
        if isinstance(action, Post):
            return True
        chunks = range(self.chunks[action.collective])
        return all(Start(action.collective, chunk) in rank.complete for chunk in chunks)

    def _act(self, rank: Rank, _: object) -> None:
        action = self.actions[rank.place]
        rank.place += 1
        if isinstance(action, Post):
            proposal = rank.order.post(action.priority, action.chunks)
            if rank.order.agrees:
                self.proposals.setdefault(rank.posted, []).append(proposal)
            rank.posted += 1

    def _complete(self, rank: Rank, start: Start) -> None:
        rank.complete.add(start)
        rank.order.complete()

    def _agree(self, rank: Rank, collective: int) -> None:
        rank.agreed.add(collective)
        rank.order.agree(collective, max(self.proposals[collective]))


@st.composite
def actions(draw: st.DrawFn) -> list[Post | Wait]:
    """Posts, and waits for what was posted before."""
    found: list[Post | Wait] = []
    for number in range(draw(st.integers(1, 6))):
        found.append(Post(draw(st.integers(-2, 2)), draw(st.integers(1, 5))))
        found += [Wait(n) for n in draw(st.lists(st.integers(0, number), max_size=2, unique=True))]
    return found


@given(
    actions(),
    st.integers(1, 4),
    st.sampled_from(CollectiveOrder),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_all_ranks_start_all_chunks_in_one_order_at_any_pace(
    drawn: list[Post | Wait], ranks: int, order: CollectiveOrder, in_flight: int, seed: int
) -> None:
    world = Ranks(drawn, ranks, order, in_flight)
    world.run(Random(seed))
    everything = {Start(n, chunk) for n, count in enumerate(world.chunks) for chunk in range(count)}
    for rank in world.ranks:
        assert rank.place == len(drawn)
        assert rank.complete == everything
        assert rank.started == world.ranks[0].started
        assert len(rank.started) == len(everything)


def started(order: StartOrder) -> list[tuple[int, int]]:
    """The chunks that start until the slots are full."""
    found = []
    while (start := order.next()) is not None:
        found.append((start.collective, start.chunk))
    return found


def post(order: StartOrder, priority: int, chunks: int, collective: int) -> None:
    """Post a collective where all ranks are alike."""
    order.agree(collective, order.post(priority, chunks))


@pytest.mark.parametrize(
    ("order", "priorities", "following"),
    [
        (CollectiveOrder.FIFO, (0, 0, 0), [0, 1, 1, 2, 2]),
        (CollectiveOrder.LIFO, (0, 0, 0), [2, 2, 1, 1, 0]),
        (CollectiveOrder.LIFO, (0, 9, 0), [1, 1, 2, 2, 0]),
        (CollectiveOrder.PRIORITY, (0, 0, 5), [2, 2, 0, 1, 1]),
    ],
)
def test_the_next_chunk_is_of_the_order_and_started_ones_stay(
    order: CollectiveOrder, priorities: tuple[int, ...], following: list[int]
) -> None:
    found = StartOrder(order, 1)
    post(found, priorities[0], 2, 0)
    assert started(found) == [(0, 0)]
    for number, priority in enumerate(priorities[1:], 1):
        post(found, priority, 2, number)
    assert started(found) == []
    later = []
    for _ in following:
        found.complete()
        later += [collective for collective, _ in started(found)]
    assert later == following


def test_slots_are_bounded_and_start_at_once_where_nothing_waits() -> None:
    order = StartOrder(CollectiveOrder.LIFO, 3)
    order.post(0, 5)
    assert started(order) == [(0, 0), (0, 1), (0, 2)]
    order.complete()
    assert started(order) == [(0, 3)]


def test_a_rank_starts_some_chunks_before_it_knows_when_a_collective_counts() -> None:
    order = StartOrder(CollectiveOrder.LIFO, 4)
    order.post(0, 100)
    assert len(started(order)) == 4
    assert order.post(0, 100) == 6
    for _ in range(4):
        order.complete()
    assert started(order) == [(0, 4), (0, 5)]
    order.agree(1, 7)
    assert started(order) == [(0, 6), (1, 0)]
