"""Messages as a fluid: FIFO ports, small queues, corked ends, waits; what a port never exceeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.predict.engines.paths import paths_of
from analysis.predict.engines.ports.small_queues import LIMIT_BYTES
from analysis.predict.interface import Setting
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.models.packet import Packet
from analysis.predict.scenario import Act, Compute, GroupedCall, PostCall, Scenario, WaitForCall
from collectives.call import CollectiveCall
from tests.predict.settings import make_call, make_setting

_MSS, _FRAME = 8948, 9038.0
_BYTES_PER_NS = 12.5
_DELAY_NS = 500.0
_PREAMBLE = 48


def _segments(full: int, rest_bytes: int = 0) -> int:
    """The bytes of a message of so many full segments, and of so many in a short one."""
    return full * _MSS + rest_bytes - _PREAMBLE


def _message(source: int, destination: int, size_bytes: int) -> GroupedCall:
    ranks = tuple(range(8))
    return GroupedCall(
        CollectiveCall("send_recv", size_bytes, ranks, root=source, peer=destination), ""
    )


def _fan_out(setting: Setting, size_bytes: int, to: Sequence[int]) -> list[float]:
    """Rank 0 sends a message to each of these, all posted at once; when each has it."""
    calls = [_message(0, rank, size_bytes) for rank in to]
    acts = dict.fromkeys(range(8), tuple(PostCall(i) for i in range(len(calls))))
    timeline = Flow().run(Scenario(setting, calls, acts))
    return [timeline.completed_ns[i][rank] for i, rank in enumerate(to)]


def test_a_message_that_is_posted_earlier_is_through_earlier() -> None:
    """Fair sharing would hold up the near receiver's message for as long as the others'."""
    setting = make_setting("leaf-spine")
    (alone,) = _fan_out(setting, _segments(28), [1])
    near, far, further = _fan_out(setting, _segments(28), [1, 6, 7])
    assert near == pytest.approx(alone, abs=50)  # the others' notifications go first
    assert min(far, further) - near > 20 * _FRAME / _BYTES_PER_NS


def test_the_short_end_of_a_message_goes_behind_what_is_queued_by_then() -> None:
    """Auto corking: without it, the first would end a whole message before the second."""
    frame_ns = _FRAME / _BYTES_PER_NS
    whole = sorted(_fan_out(make_setting("flat"), _segments(28), [1, 2, 3, 4]))
    assert whole[-1] - whole[0] == pytest.approx(3 * 28 * frame_ns, rel=0.01)
    ended = sorted(_fan_out(make_setting("flat"), _segments(28, 910), [1, 2, 3, 4]))
    assert ended[-1] - ended[0] < frame_ns


@pytest.mark.parametrize("teller", [1, 3])
def test_what_comes_from_the_other_end_lets_a_short_end_go(teller: int) -> None:
    """Rank 0's message to 1 waits behind 20 segments for 2, and its short end for a packet of its
    own to leave, or for one of rank 1's to come. Then 20 segments for 3 follow."""
    calls = [
        _message(0, 2, _segments(20)),
        _message(0, 1, _segments(5, 910)),
        _message(teller, 0, 62),
        _message(0, 3, _segments(20)),
    ]
    acts: dict[int, Sequence[Act]] = dict.fromkeys(range(8), tuple(map(PostCall, range(4))))
    acts[0] = (PostCall(0), PostCall(1), PostCall(2), WaitForCall(2), PostCall(3))
    found = Flow().run(Scenario(make_setting("flat"), calls, acts)).completed_ns[1][1]
    before_the_last_message = found < 29 * _FRAME / _BYTES_PER_NS + 5 * _DELAY_NS
    assert before_the_last_message == (teller == 1)


def test_a_connection_has_a_limited_share_of_its_port() -> None:
    """Messages of many times the limit take turns, and end within about one turn of each other."""
    times = sorted(_fan_out(make_setting("flat"), _segments(1000), [1, 2, 3, 4]))
    turn = LIMIT_BYTES / _BYTES_PER_NS
    assert 0 < times[-1] - times[0] < 3.5 * turn
    assert times[-1] == pytest.approx(4000 * _FRAME / _BYTES_PER_NS, rel=0.01)


@pytest.mark.parametrize("fabric", ["flat", "fat-tree", "torus", "mesh"])
@pytest.mark.parametrize("size", [1, 8_900, 64_000, 1_000_000, 30_000_000])
def test_a_message_alone_takes_what_latency_and_bandwidth_say(fabric: str, size: int) -> None:
    setting = make_setting(fabric)
    call = make_call(setting, "send_recv", size)
    assert Flow().predict(setting, call) == pytest.approx(
        AlphaBeta().predict(setting, call), rel=0.005, abs=25
    )


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [64_000, 200_000, 256_000])
def test_where_windows_do_not_matter_it_is_what_packets_take(kind: str, size: int) -> None:
    setting = make_setting("flat")
    call = make_call(setting, kind, size)
    assert Flow().predict(setting, call) == pytest.approx(
        Packet().predict(setting, call), rel=0.005
    )


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 3_000_000)),
        min_size=1,
        max_size=30,
    )
)
def test_no_port_sends_more_than_its_rate(messages: list[tuple[int, int, int]]) -> None:
    """And what is posted at once ends no later than if messages went one after the other."""
    setting = make_setting("flat")
    calls = [_message(a, b, size) for a, b, size in messages if a != b]
    acts = dict.fromkeys(range(8), tuple(PostCall(i) for i in range(len(calls))))
    if not calls:
        return
    timeline = Flow().run(Scenario(setting, calls, acts))
    ended = max(max(one.values()) for one in timeline.completed_ns)
    sent: dict[tuple[str, int], int] = {}
    for a, b, size in messages:
        for port in (("out", a), ("in", b)) if a != b else ():
            sent[port] = sent.get(port, 0) + size
    alone = sum(AlphaBeta().predict(setting, each.call) for each in calls)
    assert max(sent.values()) / _BYTES_PER_NS < ended < 1.01 * alone + 1000


def _waits(messages: Sequence[tuple[int, int, int]]) -> Mapping[tuple[int, int], float]:
    """By (whose, behind whose) at the port to rank 2, of messages to it: (sender, segments, when it
    is posted). Each belongs to its sender."""
    setting = make_setting("flat")
    calls = [_message(source, 2, _segments(full)) for source, full, _ in messages]
    acts: dict[int, list[Act]] = {rank: [] for rank in range(8)}
    for number, (source, _, at_ns) in enumerate(messages):
        acts[source] += [Compute(at_ns), PostCall(number)]
    for rank in range(8):
        acts[rank] += [
            PostCall(number) for number, (source, _, _) in enumerate(messages) if source != rank
        ]
    scenario = Scenario(setting, calls, acts)
    found = Flow().queue_waits(scenario, [each[0] for each in messages])
    (link,) = paths_of(setting).follow([0], [2])[0].tolist()[1:2]
    return {(own, other): ns for (at, own, other), ns in found.items() if at == link}


def test_who_comes_to_an_empty_port_waits_for_nobody() -> None:
    assert not _waits([(0, 20, 0), (1, 20, 1_000_000)])


def test_a_message_waits_for_those_in_front() -> None:
    """Both come at once and alternate: a segment waits for about as many of the other as are in
    front of it, up to all 20."""
    waits = _waits([(0, 20, 0), (1, 20, 0)])
    assert set(waits) == {(0, 1), (1, 0)}
    segment_ns = _FRAME / _BYTES_PER_NS
    assert all(5 * segment_ns < ns < 21 * segment_ns for ns in waits.values())
