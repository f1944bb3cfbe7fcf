"""How a switch chooses among equal next hops: the kernel's own functions, in user space."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from testing.next_hops import (
    ADAPTIVE,
    FLOWLET,
    LEAST,
    LEAST_OF_TWO,
    RANDOM,
    REST_NS,
    ROUND_ROBIN,
    SOURCE,
    SPRAY,
    Chooser,
)


@given(st.integers(2, 64), st.integers(0, 2**64 - 1))
def test_round_robin_gives_each_hop_its_turn(hops: int, seed: int) -> None:
    switch = Chooser(kind=SPRAY, by=ROUND_ROBIN, hops=range(10, 10 + hops), seed=seed)
    taken = [switch.take(key=n % 3, now_ns=n) for n in range(3 * hops)]
    assert taken == [(taken[0] + n) % hops for n in range(3 * hops)]


@given(st.integers(2, 8), st.integers(0, 2**64 - 1))
def test_chance_gives_each_hop_its_share(hops: int, seed: int) -> None:
    """Five standard deviations of a binomial distribution, of 2,000 packets."""
    switch = Chooser(kind=SPRAY, by=RANDOM, hops=range(hops), seed=seed)
    taken = Counter(switch.take(now_ns=n) for n in range(2_000))
    share = 1 / hops
    bound = 5 * (2_000 * share * (1 - share)) ** 0.5
    assert all(abs(taken[hop] - 2_000 * share) <= bound for hop in range(hops))


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=64), st.integers(0, 2**64 - 1))
def test_least_takes_one_of_the_shortest_queues(loads: list[int], seed: int) -> None:
    switch = Chooser(kind=SPRAY, by=LEAST, hops=range(len(loads)), seed=seed, loads=lambda: loads)
    assert all(loads[switch.take(now_ns=n)] == min(loads) for n in range(20))


@given(st.integers(2, 16), st.integers(0, 2**64 - 1))
def test_least_of_two_never_takes_the_longest_queue(hops: int, seed: int) -> None:
    loads = list(range(hops))
    switch = Chooser(kind=SPRAY, by=LEAST_OF_TWO, hops=range(hops), seed=seed, loads=lambda: loads)
    assert all(switch.take(now_ns=n) != hops - 1 for n in range(50))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), min_size=1, max_size=100),
    st.integers(0, 2**64 - 1),
)
def test_a_flow_keeps_its_hop_until_it_pauses(packets: list[tuple[int, int]], seed: int) -> None:
    """Held against a dictionary of flows: within the gap, the hop of the packet before."""
    gap_ns, now_ns = 100, 1
    switch = Chooser(kind=FLOWLET, by=RANDOM, hops=range(5), seed=seed, gap_ns=gap_ns)
    last: dict[int, tuple[int, int]] = {}
    moved = 0
    for key, pause_ns in packets:
        now_ns += pause_ns
        hop = switch.take(key, now_ns)
        if key in last:
            then_ns, before = last[key]
            assert hop == before or now_ns - then_ns > gap_ns
            moved += hop != before
        last[key] = now_ns, hop
    assert switch.moves == moved


def test_a_flow_moves_where_its_queue_is_longer_by_the_threshold() -> None:
    loads = [0, 0]
    switch = Chooser(
        kind=ADAPTIVE, hops=(7, 9), threshold_bytes=1000, hold_ns=100, loads=lambda: loads
    )
    hop = switch.take(now_ns=1)
    loads[hop] = 1000
    assert [switch.take(now_ns=n) for n in (50, 101, 150)] == [hop] * 3  # not longer by more
    loads[hop] = 1001
    assert switch.take(now_ns=200) == 1 - hop
    loads[:] = [0, 0]
    loads[1 - hop] = 5000
    assert switch.take(now_ns=250) == 1 - hop  # it has not been there for long
    assert switch.take(now_ns=300) == hop
    assert switch.moves == 2


def test_a_flow_that_has_paused_goes_to_the_shortest_queue() -> None:
    loads = [0, 0]
    switch = Chooser(
        kind=ADAPTIVE, hops=(7, 9), threshold_bytes=10**6, hold_ns=100, loads=lambda: loads
    )
    hop = switch.take(now_ns=1)
    loads[hop] = 1
    assert switch.take(now_ns=102) == 1 - hop


@given(st.sampled_from([RANDOM, ROUND_ROBIN]), st.integers(1, 40), st.integers(1, 40))
def test_a_switch_that_has_rested_does_the_same_again(by: int, before: int, more: int) -> None:
    """Whatever it chose before: what ranks said before a collective does not change its draws."""
    taken = []
    for count in (before, before + more):
        switch = Chooser(kind=SPRAY, by=by, hops=range(4))
        for n in range(count):
            switch.take(now_ns=n)
        taken.append([switch.take(now_ns=count + REST_NS + n) for n in range(20)])
    assert taken[0] == taken[1]


@given(st.integers(2, 8), st.integers(2, 8), st.integers(0, 2**16 - 1))
def test_numbers_in_a_row_take_all_paths_by_turns(lower: int, upper: int, first: int) -> None:
    """A switch of the lower layer reads the last digit, one above it the next."""
    switches = [
        Chooser(kind=SOURCE, hops=range(lower)),
        Chooser(kind=SOURCE, hops=range(upper), stride=lower),
    ]
    paths = Counter(
        tuple(switch.take(now_ns=1, number=first + n) for switch in switches)
        for n in range(2 * lower * upper)
    )
    assert set(paths.values()) == {2} and len(paths) == lower * upper
