"""Trains of packets: FIFO queues, small queues, corked ends; and what a port never exceeds."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.predict.engines.ports.small_queues import LIMIT_BYTES, queued_segments
from analysis.predict.engines.trains import Cut, PacketTrains, Stream
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from collectives.schedule.gloo_steps import Step, Wait, add_steps
from collectives.schedule.operations import CompiledPrograms
from collectives.schedule.schedule import Post
from tests.predict.settings import make_call, make_setting

_MSS, _FRAME = 8948, 9038.0
_BYTES_PER_NS = 12.5
_DELAY_NS = 500.0


def _cut(segments: int, rest_bytes: float = 0.0) -> Cut:
    return Cut(segments, _FRAME, rest_bytes)


def _compiled(steps: list[Step], members: int) -> CompiledPrograms:
    compiled = CompiledPrograms()
    add_steps(steps, compiled, range(members))
    return compiled


def _fan_out(cuts: list[Cut], far: int = 0) -> list[float]:
    """Member 0 sends a message to each of the others over one switch, all posted at once; when each
    has it. The way to the last `far` members is three links longer."""
    members = len(cuts) + 1
    links = 2 * members + 6
    streams = {}
    for peer in range(1, members):
        detour = tuple(range(2 * members, links, 2)) if peer >= members - far else ()
        back = tuple(link + 1 for link in detour)
        streams[0, peer] = Stream((0, *detour, 2 * peer + 1))
        streams[peer, 0] = Stream((2 * peer, *back, 1))
    source, destination = np.zeros(members - 1, dtype=np.int64), np.arange(1, members)
    steps: list[Step] = [Post(source, destination, np.ones(members - 1, dtype=np.int64)), Wait(0)]
    trains = PacketTrains(
        _compiled(steps, members),
        cuts,
        streams,
        [_BYTES_PER_NS] * links,
        [_DELAY_NS] * links,
        notice_bytes=138.0,
        queued_segments=[queued_segments(_MSS, _BYTES_PER_NS)] * links,
    )
    trains.run()
    return trains.completed_ns[1:]


def test_a_message_that_is_posted_earlier_is_through_earlier() -> None:
    """Fair sharing would hold up the near receiver's message for as long as the others'."""
    (alone,) = _fan_out([_cut(28)])
    near, far, further = _fan_out([_cut(28)] * 3, far=2)
    assert near == pytest.approx(alone, abs=50)  # the others' notifications go first
    assert sorted([far, further])[0] - near > 20 * _FRAME / _BYTES_PER_NS


def test_the_short_end_of_a_message_goes_behind_what_is_queued_by_then() -> None:
    """Auto corking: without it, the first would end a whole message before the second."""
    frame_ns = _FRAME / _BYTES_PER_NS
    whole = sorted(_fan_out([_cut(28)] * 4))
    assert whole[-1] - whole[0] == pytest.approx(3 * 28 * frame_ns)
    ended = sorted(_fan_out([_cut(28, 1000.0)] * 4))
    assert ended[-1] - ended[0] < frame_ns


def _in_turn(*posts: list[tuple[int, int, Cut]]) -> PacketTrains:
    """Four members on one switch. Each post has (source, destination, cut) of its messages; a
    member posts the next one when it has received what the first one brings it."""
    members = 4
    streams = {
        (a, b): Stream((2 * a, 2 * b + 1)) for a in range(members) for b in range(members) if a != b
    }
    steps: list[Step] = []
    for number, messages in enumerate(posts):
        source, destination = (np.array([m[end] for m in messages]) for end in (0, 1))
        steps.append(Post(source, destination, np.ones(len(messages), dtype=np.int64)))
        if number == 0:
            steps.append(Wait(0, sends=False))
    trains = PacketTrains(
        _compiled(steps, members),
        [cut for messages in posts for _, _, cut in messages],
        streams,
        [_BYTES_PER_NS] * 2 * members,
        [_DELAY_NS] * 2 * members,
        notice_bytes=138.0,
        queued_segments=[queued_segments(_MSS, _BYTES_PER_NS)] * 2 * members,
    )
    trains.run()
    return trains


@pytest.mark.parametrize("teller", [1, 3])
def test_what_comes_from_the_other_end_lets_a_short_end_go(teller: int) -> None:
    """Member 0's message to 1 waits behind 20 segments for 2, and its short end for a packet of its
    own to leave, or for one of member 1's to come. Then 20 segments for 3 follow."""
    trains = _in_turn(
        [(0, 2, _cut(20)), (0, 1, _cut(5, 1000.0)), (teller, 0, _cut(0, 200.0))],
        [(0, 3, _cut(20))],
    )
    before_the_last_message = trains.completed_ns[1] < 28 * _FRAME / _BYTES_PER_NS + 3 * _DELAY_NS
    assert before_the_last_message == (teller == 1)


def test_what_full_segments_follow_is_not_held_back() -> None:
    """Member 0 announces a message to 1 while its own RECV_READY is behind 20 segments: the
    announcement travels in the message's first segment, and the message goes before the next."""
    trains = _in_turn(
        [(0, 2, _cut(20)), (3, 0, _cut(0, 200.0))],
        [(0, 1, _cut(5)), (1, 0, _cut(5))],
        [(0, 3, _cut(20))],
    )
    assert trains.completed_ns[1] < 28 * _FRAME / _BYTES_PER_NS + 3 * _DELAY_NS


def test_a_connection_has_a_limited_share_of_its_port() -> None:
    """Messages of many times the limit take turns, and end within about one turn of each other."""
    times = sorted(_fan_out([_cut(1000)] * 4))
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


@pytest.mark.parametrize("kind", ["all_to_all", "broadcast", "scatter", "gather", "all_reduce"])
@pytest.mark.parametrize("fabric", ["flat", "fat-tree"])
def test_no_port_sends_faster_than_it_can(fabric: str, kind: str) -> None:
    """The root's, or every rank's, own port has all of its payload to carry."""
    setting = make_setting(fabric)
    call = make_call(setting, kind, 4_000_000)
    world = call.world
    payload = {
        "all_to_all": call.size_bytes * (world - 1) / world,
        "broadcast": call.size_bytes * (world - 1).bit_length(),
        "scatter": call.size_bytes * (world - 1) / world,
        "gather": call.size_bytes * (world - 1) / world,
        "all_reduce": 2 * call.size_bytes * (world - 1) / world,
    }[kind]
    assert Flow().predict(setting, call) > payload / _BYTES_PER_NS


def test_an_all_to_all_on_one_switch_loses_nothing() -> None:
    """Every sender starts with another receiver, so that no port ever has to wait."""
    setting = make_setting("flat")
    call = make_call(setting, "all_to_all", 4_000_000)
    ideal = AlphaBeta().predict(setting, call)
    assert Flow().predict(setting, call) == pytest.approx(ideal, rel=0.02)
