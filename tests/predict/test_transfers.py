"""Collectives that are in flight together share their ranks' ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.engines import transfers
from analysis.predict.engines.transfers import Transfer, Transfers
from analysis.predict.interface import PredictorError
from analysis.predict.link_load import LinkLoad
from analysis.predict.models.flow import Flow
from analysis.predict.scenario import (
    Act,
    Compute,
    Due,
    GroupedCall,
    Meet,
    Pass,
    PostCall,
    Propose,
    Scenario,
    Timeline,
    Until,
    WaitForCall,
)
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from tests.predict.settings import make_call, make_setting

_EVERYBODY = (0, 1, 2, 3)
_SETTING = make_setting("flat")


@dataclass(frozen=True)
class _Posted:
    """A transfer that everybody posts at a time."""

    start_ns: int
    alone_ns: float
    share: float = 1.0
    group: str = "g"
    ranks: tuple[int, ...] = _EVERYBODY
    message: bool = False


def _run(posted: Sequence[_Posted], acts: dict[int, Sequence[Act]]) -> Timeline:
    kinds = {True: Kind.SEND_RECV, False: Kind.ALL_REDUCE}
    calls = [
        GroupedCall(
            CollectiveCall(kinds[p.message], 8, p.ranks, peer=1 if p.message else None), p.group
        )
        for p in posted
    ]
    found = [Transfer(p.alone_ns, LinkLoad.of_ports(p.ranks, p.share)) for p in posted]
    return Transfers(Scenario(_SETTING, calls, acts), found).run()


def _durations(posted: Sequence[_Posted]) -> list[float]:
    """Durations where nobody waits for anything."""
    order = sorted(range(len(posted)), key=lambda i: (posted[i].start_ns, i))
    acts: dict[int, list[Act]] = {rank: [] for p in posted for rank in p.ranks}
    for number in order:
        for rank in posted[number].ranks:
            acts[rank] += [Until(posted[number].start_ns), PostCall(number)]
    return _run(posted, dict(acts)).durations_ns()


_posted = st.lists(
    st.builds(
        _Posted,
        st.integers(0, 10**7),
        st.floats(1, 1e7),
        st.floats(0.01, 1),
        st.sampled_from(["default", "pipeline"]),
        st.sampled_from([_EVERYBODY, (0, 1), (2, 3)]),
    ),
    max_size=12,
)


@given(_posted)
def test_nobody_is_faster_than_alone_nor_slower_than_one_after_another(
    posted: list[_Posted],
) -> None:
    total = sum(p.alone_ns for p in posted)
    for p, duration_ns in zip(posted, _durations(posted), strict=True):
        assert p.alone_ns - 1 <= duration_ns <= total + 1


@given(_posted)
def test_full_ports_are_never_idle_while_there_is_work(posted: list[_Posted]) -> None:
    """With one set of ranks and full ports, the last end is that of a single server."""
    same = [_Posted(p.start_ns, p.alone_ns) for p in posted]
    clock = 0.0
    for p in sorted(same, key=lambda p: p.start_ns):
        clock = max(clock, p.start_ns) + p.alone_ns
    ends = [p.start_ns + d for p, d in zip(same, _durations(same), strict=True)]
    assert max(ends, default=0) == pytest.approx(clock, abs=1)


def test_disjoint_ranks_do_not_share() -> None:
    posted = [_Posted(0, 100, group="a", ranks=(0, 1)), _Posted(0, 50, group="b", ranks=(2, 3))]
    assert _durations(posted) == [100, 50]


def test_two_at_once_take_turns_fairly() -> None:
    """300 and 100 alone from 0: the short one ends at 200, the long one at 400."""
    assert _durations([_Posted(0, 300), _Posted(0, 100)]) == [400, 200]


def test_the_third_waits_for_a_thread() -> None:
    """Two latency-bound ones do not slow each other down; the third starts when one has ended."""
    posted = [_Posted(0, 100, 0.1), _Posted(10, 100, 0.1), _Posted(20, 100, 0.1)]
    assert _durations(posted) == pytest.approx([100, 100, 180])


def test_another_group_has_threads_of_its_own() -> None:
    posted = [_Posted(0, 100, 0.1), _Posted(0, 100, 0.1), _Posted(0, 100, 0.1, group="other")]
    assert _durations(posted) == pytest.approx([100, 100, 100])


def test_messages_need_no_thread() -> None:
    """Both threads are busy until 100; a message of 10 between is not kept waiting."""
    posted = [_Posted(0, 100, 0.1), _Posted(0, 100, 0.1), _Posted(20, 10, 0.1, message=True)]
    assert _durations(posted) == pytest.approx([100, 100, 10])


def test_four_times_as_many_take_about_four_times_as_long() -> None:
    def takes_s(count: int) -> float:
        posted = [_Posted(100 * i, 150, 0.1) for i in range(count)]
        begun = process_time()
        assert _durations(posted) == pytest.approx([150] * count)
        return process_time() - begun

    takes_s(100)
    assert takes_s(8000) < 8 * takes_s(2000)


def test_too_many_at_once_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_MOST_WORK", 1000)
    posted = [_Posted(i, 10**6, 0.1, message=True) for i in range(100)]
    with pytest.raises(PredictorError, match="in flight together, too many to follow"):
        _durations(posted)


def test_latency_bound_collectives_overlap_for_free_until_the_port_is_full() -> None:
    """Utilisations of 0.75 add up to 1.5, so both advance at two thirds of their speed."""
    posted = [_Posted(0, 100, 0.75), _Posted(0, 100, 0.75)]
    assert _durations(posted) == pytest.approx([150, 150])


def test_a_rank_that_waits_counts_how_long_and_goes_on_then() -> None:
    acts: list[Act] = [Pass(0), PostCall(0), Compute(30), WaitForCall(0), Pass(1), Compute(5)]
    found = _run([_Posted(0, 100)], dict.fromkeys(_EVERYBODY, acts))
    assert found.ended_ns == dict.fromkeys(_EVERYBODY, 105)
    assert found.waited_ns == dict.fromkeys(_EVERYBODY, 70)
    assert (found.passed_ns[2, 0], found.passed_ns[2, 1]) == ((0, 0), (100, 70))
    assert found.measured_ns() == [100]


def test_a_transfer_begins_with_its_last_rank() -> None:
    acts: dict[int, Sequence[Act]] = {r: [Compute(10 * r), PostCall(0)] for r in _EVERYBODY}
    found = _run([_Posted(0, 100)], acts)
    assert found.posted_ns[0] == {rank: 10 * rank for rank in _EVERYBODY}
    assert set(found.completed_ns[0].values()) == {130}


def test_what_took_longer_than_in_the_run_has_the_next_ones_later() -> None:
    """It was over at 50 in the run, and takes 100: what came at 60 comes at 110."""
    acts: list[Act] = [PostCall(0), WaitForCall(0), Due(50), Until(60), PostCall(1)]
    found = _run([_Posted(0, 100), _Posted(60, 20)], dict.fromkeys(_EVERYBODY, acts))
    assert set(found.posted_ns[1].values()) == {110}
    assert found.durations_ns() == [100, 20]


def test_ranks_meet_at_the_latest_time_that_one_proposed() -> None:
    acts: dict[int, Sequence[Act]] = {
        rank: [Compute(30 * rank), Propose(0, 10, 100), PostCall(0), WaitForCall(0), Meet(0)]
        for rank in _EVERYBODY
    }
    found = _run([_Posted(0, 5)], acts)
    assert found.ended_ns == dict.fromkeys(_EVERYBODY, 100)


def test_ranks_that_wait_for_what_nobody_posts_are_refused() -> None:
    acts: dict[int, Sequence[Act]] = {rank: [PostCall(0)] for rank in _EVERYBODY[1:]}
    with pytest.raises(PredictorError, match="rank 0 waits for ever"):
        _run([_Posted(0, 5)], acts)


def test_the_busiest_link_of_an_all_to_all_is_the_uplink() -> None:
    """8 hosts on two leaves with one spine: four senders have one uplink for 4/7 of their bytes."""
    fabric = "{kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 4, %s}"
    setting = make_setting(fabric=fabric)
    call = make_call(setting, "all_to_all", 8_000_000)
    links, busy_ns = Flow().busy_ns(setting, call)
    kinds = [setting.fabric.links[link // 2].link_class for link in links.tolist()]
    of_hosts = [ns for ns, kind in zip(busy_ns.tolist(), kinds, strict=True) if kind == "host"]
    uplinks = [ns for ns, kind in zip(busy_ns.tolist(), kinds, strict=True) if kind != "host"]
    assert (len(of_hosts), len(uplinks)) == (16, 4)
    assert of_hosts == pytest.approx([7_000_000 * 8 / 100] * 16, rel=0.02)  # 100 Gb/s, and headers
    assert uplinks == pytest.approx([of_hosts[0] * 16 / 7] * 4)
