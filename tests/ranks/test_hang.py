"""The waits of a hang, told from the calls of ranks."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from collectives.waiting_ranks import named_ranks
from emulator.ranks.failures.calls import Call, Calls, read_calls
from emulator.ranks.failures.hang import Doing, Frame, find_hang
from workloads.observer import POSTS
from workloads.observer.posts import SLOTS, Posts


def _waits(number: int, kind: str = "all_reduce", root: int = 0) -> Call:
    return Call(number, "default", kind, 4, root, "waits", 10, 0)


def _over(number: int) -> Call:
    return Call(number, "default", "all_reduce", 4, 0, "over", 5, 0)


def test_who_did_not_come_is_named_with_where_it_is() -> None:
    calls = Calls({0: (_over(0), _waits(1)), 1: (_over(0), _waits(1)), 2: (_over(0),)}, {})
    doing = {2: Doing((Frame("train.py", 7, "step"),))}
    hang = find_hang(calls, range(3), doing, 10**9 + 10)
    assert (hang.absent, hang.cycle) == ((2,), ())
    assert str(hang).splitlines()[:2] == [
        "ranks 0, 1 wait in all_reduce of 4 B (number 1 of group default) for rank 2, for 1.000 s "
        "by now",
        "rank 2 did not come: it is at train.py:7 in step, after all_reduce of 4 B "
        "(number 0 of group default)",
    ]


def test_a_rank_that_has_died_in_a_call_has_not_come() -> None:
    calls = Calls({0: (_over(0), _waits(1)), 1: (_over(0), _waits(1))}, {})
    hang = find_hang(calls, range(2), {1: Doing(gone=True)}, 10**9 + 10)
    assert [state.waits_for for state in hang.ranks] == [(1,), ()]
    assert hang.absent == (1,)
    assert "rank 1 did not come: it has ended, after all_reduce of 4 B (number 0" in str(hang)


def test_a_message_has_no_wait_when_its_other_end_is_there() -> None:
    receives, sends = _waits(0, "recv", 1), _waits(0, "send", 0)
    assert find_hang(Calls({0: (receives,), 1: ()}, {}), range(2), {}, 20).absent == (1,)
    both = find_hang(Calls({0: (receives,), 1: (sends,)}, {}), range(2), {}, 20)
    assert [state.waits_for for state in both.ranks] == [(), ()]


def test_a_wait_that_was_given_up_counts_as_long_as_its_rank_has_not_gone_on() -> None:
    left = Call(1, "default", "all_reduce", 4, 0, "left", 10, 0, posted_ns=9)
    later = Call(0, "default", "send", 4, 1, "over", 30, 0, posted_ns=20)
    waits = Call(2, "default", "recv", 4, 1, "waits", 40, 0, posted_ns=35)
    for calls, waited in (((left,), left), ((left, later), None), ((left, later, waits), waits)):
        hang = find_hang(Calls({0: calls}, {}), range(2), {}, 50)
        assert hang.ranks[0].waits_in == waited


@given(st.permutations(range(6)), st.integers(min_value=2, max_value=6))
def test_ranks_that_receive_from_each_other_in_a_ring_are_the_cycle(
    order: list[int], length: int
) -> None:
    ring = order[:length]
    calls = {
        rank: (_waits(0, "recv", ring[(place + 1) % length]),) for place, rank in enumerate(ring)
    }
    cycle = find_hang(Calls(calls, {}), range(6), {}, 20).cycle
    start = ring.index(cycle[0])
    assert list(cycle) == ring[start:] + ring[:start]
    assert cycle[0] == min(ring)


@given(st.sets(st.integers(min_value=0, max_value=9)))
def test_all_members_of_a_group_who_have_not_called_are_absent(come: set[int]) -> None:
    calls = Calls({rank: (_waits(3),) for rank in come}, {"default": range(8)})
    expected = set(range(8)) - come if come else set()
    assert set(find_hang(calls, range(10), {}, 20).absent) == expected


def test_what_a_rank_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / POSTS).mkdir()
    posts = Posts(str(tmp_path / POSTS / "3"))
    posts.group("part", (3, 5))
    first = posts.collective("part", "broadcast", 8, 1)
    posts.mark(first, "over")
    posts.mark(first, "waits")
    for _ in range(2):
        posts.mark(posts.message("part", "recv", 16, 5, 9), "waits")
    calls = read_calls(tmp_path)
    assert calls.members == {"part": (3, 5)}
    assert calls.counts == {3: (3, 1)}
    assert all(0 < call.posted_ns <= call.at_ns for call in calls.by_rank[3])
    shown = [(c.number, c.what, c.state, c.tag) for c in calls.by_rank[3]]
    assert shown == [
        (0, "broadcast of 8 B with root 1", "over", 0),
        (0, "recv of 16 B from rank 5", "waits", 9),
        (1, "recv of 16 B from rank 5", "waits", 9),
    ]
    for _ in range(SLOTS):
        posts.collective("part", "barrier", 0, 0)
    posts.mark(first, "over")
    assert {call.kind for call in read_calls(tmp_path).by_rank[3]} == {"barrier"}


@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(tmp_path_factory: object, text: bytes) -> None:
    place = Path(tmp_path_factory.mktemp("calls"))  # type: ignore[attr-defined]
    (place / POSTS).mkdir()
    (place / POSTS / "0").write_bytes(text)
    (place / POSTS / "0.groups").write_bytes(text)
    read_calls(place)


def test_ranks_are_named_by_ranges() -> None:
    assert named_ranks([3]) == "rank 3"
    assert named_ranks([5, 0, 1, 2, 4]) == "ranks 0-2, 4, 5"
