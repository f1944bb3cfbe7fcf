"""Gloo's own collectives in flight together, followed through the same ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from analysis.predict.added_up import Adapted
from analysis.predict.engines.ports.small_queues import queued_segments
from analysis.predict.interface import PredictorError, Transport
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.run_predictions import Answer, RunPredictor, as_posted
from analysis.predict.scenario import Act, Compute, GroupedCall, PostCall, Scenario, WaitForCall
from analysis.runs.collectives import MeasuredCollective
from analysis.runs.records import CollectiveRecord
from collectives.call import CollectiveCall
from tests.predict.settings import make_call, make_setting

_SIZE = 4_000_000
_RANKS = range(8)


def _together(kinds: Sequence[str], groups: Sequence[str] | None = None) -> list[float]:
    """Durations of collectives of 8 ranks that are all posted at once, or each by a group."""
    setting = make_setting("flat")
    calls = [
        GroupedCall(make_call(setting, kind, _SIZE), group)
        for kind, group in zip(kinds, groups or ["default"] * len(kinds), strict=True)
    ]
    acts = dict.fromkeys(_RANKS, tuple(PostCall(i) for i in range(len(kinds))))
    return Flow().run(Scenario(setting, calls, acts)).durations_ns()


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "broadcast", "all_gather"])
def test_one_takes_what_it_takes_alone(kind: str) -> None:
    setting = make_setting("flat")
    alone = Flow().predict(setting, make_call(setting, kind, _SIZE))
    assert _together([kind]) == pytest.approx([alone], rel=0.01)


def test_two_share_their_ports_and_a_third_waits_for_a_worker() -> None:
    (one,) = _together(["all_reduce"])
    both = _together(["all_reduce"] * 2)
    assert 1.5 * one < max(both) < 2.05 * one  # ports are idle for a part of a ring's time
    three = _together(["all_reduce"] * 3)
    assert max(both) < max(three) < 3.05 * one
    assert three[2] == max(three)


def test_other_groups_have_workers_and_connections_of_their_own() -> None:
    apart = _together(["all_reduce"] * 3, ["a", "b", "c"])
    assert max(apart) - min(apart) < 0.2 * max(apart)  # none of them waits for another


def test_neighbours_wait_for_a_late_rank() -> None:
    setting = make_setting("flat")
    call = make_call(setting, "all_reduce", _SIZE)
    acts: dict[int, list[Act]] = {
        rank: [Compute(1e6 * (rank == 3)), PostCall(0)] for rank in _RANKS
    }
    found = Flow().run(Scenario(setting, [GroupedCall(call, "")], acts))
    alone = Flow().predict(setting, call)
    assert 0.8 * alone < found.durations_ns()[0] < 1.05 * alone  # from the last rank's post


def test_a_step_computes_posts_and_waits() -> None:
    setting = make_setting("flat")
    call = make_call(setting, "all_reduce", _SIZE)
    before, beside = 2e6, 1e5
    acts: list[Act] = [Compute(before), PostCall(0), Compute(beside), WaitForCall(0)]
    found = Flow().run(Scenario(setting, [GroupedCall(call, "")], dict.fromkeys(_RANKS, acts)))
    alone = Flow().predict(setting, call)
    assert max(found.ended_ns.values()) == pytest.approx(before + alone, rel=0.01)
    assert max(found.waited_ns.values()) == pytest.approx(alone - beside, rel=0.01)


def test_predictors_without_queues_add_up_what_gloo_does() -> None:
    setting = make_setting("flat")
    calls = [GroupedCall(make_call(setting, "all_reduce", _SIZE), "")] * 2
    scenario = Scenario(setting, calls, dict.fromkeys(_RANKS, (PostCall(0), PostCall(1))))
    predictor = AlphaBeta()
    with pytest.raises(PredictorError, match="follow"):
        predictor.run(scenario)
    alone, both = predictor.predict(setting, calls[0].call), Adapted(predictor).run(scenario)
    assert alone < min(both.durations_ns()) < 2.01 * alone


def test_thousands_of_ranks_are_not_followed() -> None:
    """Told without building their millions of messages."""
    setting = make_setting("flat")
    for kind in ("all_reduce", "all_to_all"):
        call = CollectiveCall(kind, _SIZE, tuple(range(8192)))
        with pytest.raises(PredictorError, match="more messages than flow follows, 40,000,000"):
            Flow().run(Scenario(setting, [GroupedCall(call, "")], {0: [Compute(1), PostCall(0)]}))


@pytest.mark.parametrize(
    ("rate_bps", "marked_from_bytes", "segments"),
    [
        (10e6, None, 2),  # a millisecond is less than a frame
        (1e9, None, 26),  # 244 KB in 1/1024 s at twice the rate
        (100e9, None, 108),  # 1 MiB
        (100e9, 100_000, 11),
        (10e6, 100_000, 2),
    ],
)
def test_what_a_connection_has_in_its_port(
    rate_bps: float, marked_from_bytes: int | None, segments: int
) -> None:
    assert queued_segments(8948, rate_bps / 8e9, marked_from_bytes) == segments


def test_marks_bound_only_senders_that_heed_each_of_them() -> None:
    shape = "kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4"
    setting = make_setting(fabric=f"{{{shape}, queue: {{kind: dctcp, k: 50KB}}, %s}}")
    heeding = replace(setting, transport=Transport("dctcp"))
    call = make_call(setting, "all_reduce", _SIZE)
    assert Flow().predict(heeding, call) < Flow().predict(setting, call)


def _measured(
    number: int, kind: str, size: int, start_ns: int, end_ns: int, waited: bool
) -> MeasuredCollective:
    record = CollectiveRecord(
        event="collective", id=f"{number}", kind=kind, phase=kind, group="default", tag=number,
        size_bytes=size, element_bytes=4, root=0, iteration=0, start_ns=start_ns, end_ns=end_ns,
        waited_ns=(end_ns - start_ns) * waited, known=0, ranks=None,
    )  # fmt: skip
    return MeasuredCollective(
        f"{number}", kind, kind, "default", number, size, 4, 0, tuple(_RANKS), 0, None, None, None,
        start_ns, end_ns, dict.fromkeys(_RANKS, record),
    )  # fmt: skip


def test_what_is_awaited_is_not_stood_behind() -> None:
    """A barrier after an all-reduce that took half as long as flow says."""
    setting = make_setting("flat")
    alone = Flow().predict(setting, make_call(setting, "barrier", 0))
    half_ns = round(Flow().predict(setting, make_call(setting, "all_reduce", _SIZE)) / 2)
    for waited in (True, False):
        # They are at one time somewhere, else they would be looked at one by one.
        collectives = [
            _measured(0, "all_reduce", _SIZE, 0, half_ns, waited),
            _measured(1, "barrier", 0, half_ns, half_ns + 9_000, waited),
        ]
        barrier_ns = Flow().run(as_posted(setting, collectives, 1)).durations_ns()[1]
        assert (barrier_ns == pytest.approx(alone, rel=0.05)) == waited
        assert waited or barrier_ns > 10 * alone


def test_ranks_that_met_at_a_time_are_not_late_for_it() -> None:
    """The first all-reduce took half as long as flow says, and ended at each rank at another time.
    All posted the second one at 10 ms, or each at 10 ms after its own end."""
    setting = make_setting("flat")
    half_ns = round(Flow().predict(setting, make_call(setting, "all_reduce", _SIZE)) / 2)
    for at_a_time in (True, False):
        first, second = (_measured(n, "all_reduce", _SIZE, 0, half_ns, True) for n in range(2))
        ends_ns = {rank: half_ns - 1_000 * rank for rank in _RANKS}
        starts_ns = {rank: 10_000_000 + (0 if at_a_time else ends_ns[rank]) for rank in _RANKS}
        collectives = [
            replace(
                first,
                by_rank={
                    r: first.by_rank[r].model_copy(update={"end_ns": ends_ns[r]}) for r in _RANKS
                },
            ),
            replace(
                second,
                by_rank={
                    r: second.by_rank[r].model_copy(
                        update={"start_ns": starts_ns[r], "end_ns": starts_ns[r] + half_ns}
                    )
                    for r in _RANKS
                },
            ),
        ]
        posted_ns = Flow().run(as_posted(setting, collectives, 1)).posted_ns[1]
        late_ns = {round(posted_ns[rank]) - starts_ns[rank] for rank in _RANKS}
        assert (late_ns == {0}) if at_a_time else (min(late_ns) > half_ns / 2)


def test_what_a_rank_waited_past_is_not_stood_behind() -> None:
    """Two all-reduces under way at once, of which the rank had to wait for one alone."""
    setting = make_setting("flat")
    alone = Flow().predict(setting, make_call(setting, "barrier", 0))
    half_ns = round(Flow().predict(setting, make_call(setting, "all_reduce", _SIZE)) / 2)
    collectives = [
        _measured(0, "all_reduce", _SIZE, 0, half_ns, True),
        _measured(1, "all_reduce", _SIZE, 1, half_ns - 1, False),
        _measured(2, "barrier", 0, half_ns, half_ns + 9_000, True),
    ]
    found = Flow().run(as_posted(setting, collectives, 1)).durations_ns()[2]
    assert found == pytest.approx(alone, rel=0.05)


def test_a_message_waits_on_its_connection_and_for_no_thread() -> None:
    """Behind what an all-reduce of two ranks has sent when it is posted: half of its 4 MB."""
    setting = make_setting("flat")
    every = [
        replace(_measured(n, "all_reduce", _SIZE, 0, 2_000_000, waited=False), ranks=(0, 1))
        for n in range(4)
    ]
    message = _measured(4, "send_recv", 65_536, 20_000, 30_000, waited=False)
    every.append(replace(message, ranks=(0, 1), root=0, peer=1))
    every = [replace(one, by_rank={r: one.by_rank[r] for r in (0, 1)}) for one in every]
    found = {}
    for predictor in (AlphaBeta(), Flow()):
        answer = RunPredictor(setting, predictor).together(every)[-1]
        assert isinstance(answer, Answer)
        found[predictor.name] = answer.duration_ns
    assert found["alpha-beta"] == pytest.approx(found["flow"], rel=0.005)
    assert 150_000 < found["flow"] < 340_000  # two of them send 2 MB each, in 160 us


def test_who_does_not_know_links_says_nothing_beside_another_job() -> None:
    setting = make_setting("flat")
    posted = ((0, 0, "a"), (1, 500_000, "b"), (2, 9_000_000, "a"))
    every = [
        replace(_measured(n, "all_reduce", _SIZE, at, at + 10**6, waited=True), job=job)
        for n, at, job in posted
    ]
    beside, other, apart = RunPredictor(setting, AlphaBeta()).together(every)
    assert "another job's" in str(beside) and "another job's" in str(other)
    assert isinstance(apart, Answer)
    assert all(isinstance(each, Answer) for each in RunPredictor(setting, Flow()).together(every))


def test_an_all_to_all_takes_a_little_more_with_one_rank_more() -> None:
    """63 ranks have 3,906 messages, 64 have 4,032. Paths of a fat-tree collide."""
    setting = make_setting(fabric="{kind: fat-tree, k: 8, %s}")
    some, more = (
        Flow().predict(setting, make_call(setting, "all_to_all", 131_072 * ranks, ranks))
        for ranks in (63, 64)
    )
    assert some < more < 1.05 * some
