"""Collectives that are in flight together share their ranks' ports."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict import overlap
from analysis.predict.interface import PredictorError
from analysis.predict.link_load import LinkLoad
from analysis.predict.models.flow import Flow
from analysis.predict.overlap import InFlight, overlapped_durations_ns
from tests.predict.settings import make_call, make_setting

_EVERYBODY = (0, 1, 2, 3)
_posted = st.lists(
    st.builds(
        InFlight,
        st.sampled_from(["default", "pipeline"]),
        st.integers(0, 10**7),
        st.floats(1, 1e7),
        st.builds(
            LinkLoad.of_ports,
            st.sampled_from([_EVERYBODY, (0, 1), (2, 3)]),
            st.floats(0.01, 1),
        ),
    ),
    max_size=12,
)


@given(_posted)
def test_nobody_is_faster_than_alone_nor_slower_than_one_after_another(
    posted: list[InFlight],
) -> None:
    total = sum(p.alone_ns for p in posted)
    for p, duration_ns in zip(posted, overlapped_durations_ns(posted), strict=True):
        assert p.alone_ns - 1 <= duration_ns <= total + 1


@given(_posted, st.integers(1, 4))
def test_full_ports_are_never_idle_while_there_is_work(
    posted: list[InFlight], workers: int
) -> None:
    """With one set of ranks and full ports, the last end is that of a single server."""
    full = LinkLoad.of_ports(_EVERYBODY, 1.0)
    same = [replace(p, group="default", load=full) for p in posted]
    clock = 0.0
    for p in sorted(same, key=lambda p: p.start_ns):
        clock = max(clock, p.start_ns) + p.alone_ns
    durations = overlapped_durations_ns(same, workers)
    ends = [p.start_ns + d for p, d in zip(same, durations, strict=True)]
    assert max(ends, default=0) == pytest.approx(clock, abs=1)


def _at(start_ns: int, alone_ns: float, share: float = 1.0, group: str = "g") -> InFlight:
    return InFlight(group, start_ns, alone_ns, LinkLoad.of_ports(_EVERYBODY, share))


def test_disjoint_ranks_do_not_share() -> None:
    posted = [
        InFlight("a", 0, 100, LinkLoad.of_ports((0, 1), 1.0)),
        InFlight("b", 0, 50, LinkLoad.of_ports((2, 3), 1.0)),
    ]
    assert overlapped_durations_ns(posted) == [100, 50]


def test_two_at_once_take_turns_fairly() -> None:
    """300 and 100 alone from 0: the short one ends at 200, the long one at 400."""
    assert overlapped_durations_ns([_at(0, 300), _at(0, 100)]) == [400, 200]


def test_the_third_waits_for_a_thread() -> None:
    """Two latency-bound ones do not slow each other down; the third starts when one has ended."""
    posted = [_at(0, 100, 0.1), _at(10, 100, 0.1), _at(20, 100, 0.1)]
    assert overlapped_durations_ns(posted) == pytest.approx([100, 100, 180])


def test_another_group_has_threads_of_its_own() -> None:
    posted = [_at(0, 100, 0.1), _at(0, 100, 0.1), _at(0, 100, 0.1, group="other")]
    assert overlapped_durations_ns(posted) == pytest.approx([100, 100, 100])


def test_messages_need_no_thread() -> None:
    """Both threads are busy until 100; a message of 10 between is not kept waiting."""
    posted = [_at(0, 100, 0.1), _at(0, 100, 0.1), replace(_at(20, 10, 0.1), takes_worker=False)]
    assert overlapped_durations_ns(posted) == pytest.approx([100, 100, 10])


def test_four_times_as_many_take_about_four_times_as_long() -> None:
    def takes_s(count: int) -> float:
        posted = [_at(100 * i, 150, 0.1) for i in range(count)]
        begun = process_time()
        assert overlapped_durations_ns(posted) == pytest.approx([150] * count)
        return process_time() - begun

    takes_s(100)
    assert takes_s(8000) < 8 * takes_s(2000)


def test_too_many_at_once_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_MOST_WORK", 1000)
    posted = [replace(_at(i, 10**6, 0.1), takes_worker=False) for i in range(100)]
    with pytest.raises(PredictorError, match="in flight together, too many to follow"):
        overlapped_durations_ns(posted)


def test_latency_bound_collectives_overlap_for_free_until_the_port_is_full() -> None:
    """Utilisations of 0.75 add up to 1.5, so both advance at two thirds of their speed."""
    assert overlapped_durations_ns([_at(0, 100, 0.75), _at(0, 100, 0.75)]) == pytest.approx(
        [150, 150]
    )


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


def test_what_is_known_to_be_over_holds_nobody_up() -> None:
    """Alone the first takes 100; the run shows that it was over when the second one began."""
    first = replace(_at(0, 100), over_ns=10)
    assert overlapped_durations_ns([first, _at(10, 50)]) == [100, 50]
    # What waited for a thread of its group is over as well, and has had one for all of its time.
    posted = [replace(_at(0, 100), over_ns=10) for _ in range(3)]
    assert overlapped_durations_ns([*posted, _at(10, 50)])[-1] == 50


@given(_posted)
def test_from_its_known_end_on_a_collective_is_alone(posted: list[InFlight]) -> None:
    known = [replace(p, over_ns=p.start_ns + 1000) for p in posted]
    for p, duration_ns in zip(known, overlapped_durations_ns(known), strict=True):
        assert p.alone_ns - 1 <= duration_ns <= p.alone_ns + 1001
