"""The ports that copies take: latency, rate, and who goes first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.network.samples import CarriedSpan, with_copies
from emulator.ports.port_qdisc import PortSample
from emulator.ranks.copies.ports import Copy, CopyPorts
from topologies.fabrics.copies import NO_LINK

RATE_BPS, DELAY_NS = 800_000_000_000, 100
"""100 bytes a nanosecond."""


def copy(source: int, destination: int, size_bytes: int, ready_ns: int = 0, slot: int = 0) -> Copy:
    """From one host to another: link 2 * host leads out of it, 2 * host + 1 into it. Host -1 is the
    switch."""
    links = (
        NO_LINK if source < 0 else 2 * source,
        NO_LINK if destination < 0 else 2 * destination + 1,
    )
    return Copy("g", slot, *links, size_bytes, ready_ns)


def run(copies: Sequence[Copy]) -> list[Copy]:
    """Has them take their time, as the broker does: it wakes when the ports say so."""
    ports = CopyPorts(RATE_BPS, DELAY_NS)
    found: list[Copy] = []
    left = sorted(copies, key=lambda each: each.ready_ns)
    while left or ports.next_ns() is not None:
        wakes = ports.next_ns()
        if left and (wakes is None or left[0].ready_ns <= wakes):
            now = left[0].ready_ns
            # All that was posted before is asked about first, and then comes what is new.
            found += ports.complete(now)
            while left and left[0].ready_ns == now:
                ports.add(left.pop(0))
            continue
        assert wakes is not None
        over = ports.complete(wakes)
        assert all(each.ends_ns == wakes for each in over), "it wakes in time"
        found += over
    return found


def test_an_idle_copy_takes_its_latency_and_its_bytes_at_the_rate() -> None:
    (found,) = run([copy(0, 1, 12_345, ready_ns=7)])
    assert (found.begins_ns, found.ends_ns) == (7, 7 + 2 * DELAY_NS + 124)


def test_of_two_senders_to_one_receiver_the_lower_link_goes_first() -> None:
    found = run([copy(2, 0, 10_000), copy(1, 0, 10_000)])
    assert [(each.first, each.ends_ns) for each in found] == [(2, 300), (4, 400)]


def test_of_two_receivers_of_one_sender_the_lower_link_goes_first() -> None:
    found = run([copy(0, 2, 10_000), copy(0, 1, 10_000)])
    assert [(each.second, each.ends_ns) for each in found] == [(3, 300), (5, 400)]


def test_a_copy_that_waits_for_a_port_keeps_no_others_from_it() -> None:
    """Sender 0's second copy goes while its first one waits for its receiver's port."""
    found = run([copy(1, 2, 100_000), copy(0, 2, 10_000, 1, 0), copy(0, 3, 10_000, 1, 1)])
    assert {(each.first, each.second): each.ends_ns for each in found} == {
        (0, 7): 401,  # out of host 0 from 101 on
        (2, 5): 1200,
        (0, 5): 1300,
    }


def test_a_switch_has_no_port_of_its_own() -> None:
    found = run([copy(0, -1, 10_000), copy(-1, 1, 10_000), copy(-1, 2, 10_000)])
    assert [each.ends_ns for each in found] == [DELAY_NS + 100] * 3


COPIES = st.lists(
    st.builds(
        lambda ends, size, ready: (*ends, size, ready),
        st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda ends: ends[0] != ends[1]),
        st.integers(1, 5_000),
        st.integers(0, 60),
    ),
    min_size=1,
    max_size=30,
)


@given(COPIES, st.randoms(use_true_random=False))
def test_a_port_carries_one_after_the_other_whatever_the_order_of_posting(
    drawn: list[tuple[int, int, int, int]], random: Random
) -> None:
    made = [copy(*each, slot=slot) for slot, each in enumerate(drawn)]
    ends = {each.slot: each.ends_ns for each in run(made)}
    assert len(ends) == len(drawn)
    for slot, (_, _, size, ready) in enumerate(drawn):
        assert ends[slot] >= ready + 2 * DELAY_NS + -(-size // 100)
    for host in range(4):
        # The last bytes of those into a host are a port's rate apart.
        into = sorted(
            (ends[s], -(-size // 100)) for s, (_, to, size, _) in enumerate(drawn) if to == host
        )
        for (before, _), (after, took) in pairwise(into):
            assert after - before >= took
    again = [copy(*each, slot=slot) for slot, each in enumerate(drawn)]
    random.shuffle(again)
    assert {each.slot: each.ends_ns for each in run(again)} == ends


def test_samples_of_a_port_count_what_copies_it_carried_by_then() -> None:
    """A copy of 2,000 bytes from 150 to 350, of which a quarter has gone at 200."""
    sample = PortSample(1, 100, 100, 5, 9, 40, 0, 0, 0)
    later = PortSample(1, 100, 600, 0, 5, 90, 0, 0, 0)
    found = with_copies([sample, later], [CarriedSpan(150, 350, 2_000)])
    told = [(each.time_ns, each.sent_bytes) for each in found]
    assert told == [(100, 40), (200, 540), (300, 1540), (400, 2040), (600, 2090)]
    assert [each.peak_bytes for each in found] == [9, 5, 5, 5, 5]


@pytest.mark.parametrize("spans", [[], [CarriedSpan(10, 20, 1)]])
def test_samples_before_a_copy_and_without_one_stay(spans: list[CarriedSpan]) -> None:
    sample = PortSample(1, 100, 100, 5, 9, 40, 0, 0, 0)
    found = with_copies([sample], spans)
    assert [each.sent_bytes for each in found] == [40 + len(spans)]
