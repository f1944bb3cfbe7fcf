"""The predictor `tcp`: exact where theory is, nothing lost, the same each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from analysis.predict.engines.joint_programs import GroupedCall, JointPrograms
from analysis.predict.engines.paths import paths_of
from analysis.predict.interface import (
    PredictorError,
    Setting,
    Transport,
    group_key,
    load_predictor,
)
from analysis.predict.models.tcp import LinuxTcp
from analysis.predict.planned import setting_of_spec
from analysis.predict.whole_run import predict_run
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from tests.predict.settings import make_setting
from topologies.spec.spec import Spec, parse_spec

_FRAME_NS = (8948 + 66 + 24) * 8 // 100
"""A full segment at 100 Gb/s with an MTU of 9000."""


def _spec(hosts: int, queue: str = "{kind: droptail}", control: str = "cubic") -> Spec:
    return parse_spec(
        f"""
name: test
fabric:
  kind: flat
  hosts: {hosts}
  link: {{rate: 100Gbps, delay: 1us, mtu: 9000}}
  queue: {queue}
transport: {{congestion_control: {control}}}
workload: {{kind: collectives, ranks: {hosts}, operations: [{{kind: barrier}}]}}
"""
    )


def _setting(hosts: int, queue: str = "{kind: droptail}", control: str = "cubic") -> Setting:
    return setting_of_spec(_spec(hosts, queue, control))


def _send(size_bytes: int) -> CollectiveCall:
    return CollectiveCall(Kind.SEND_RECV, size_bytes, (0, 1), peer=1)


def test_a_message_within_the_window_takes_its_rendezvous_and_its_bytes() -> None:
    size = 8 * 8948 - 48
    invitation = 2 * (138 * 8 // 100 + 1000)
    last_bit = 8 * _FRAME_NS + _FRAME_NS + 2 * 1000
    found = LinuxTcp().predict(_setting(2), _send(size))
    # Fractions of a nanosecond are carried, and the sender's own notice goes first.
    assert found == pytest.approx(invitation + last_bit, abs=30)


def test_slow_start_waits_for_acknowledgements() -> None:
    """With a window of 1 the notice's acknowledgement opens it to 2, and 14 segments take rounds of
    2, 4 and 8, each as long as the first one's acknowledgement takes."""
    size = 14 * 8948 - 48
    took = {}
    for window in (1, 2, 4, 8, 16, 100):
        setting = _setting(2)
        transport = replace(setting.transport, initial_window=window)
        took[window] = LinuxTcp().predict(replace(setting, transport=transport), _send(size))
    assert list(took.values()) == sorted(took.values(), reverse=True)
    assert took[16] == took[100]
    bare, small = 90 * 8 // 100, 138 * 8 // 100
    notice = 2 * (1000 + small) + 2 * (1000 + bare)
    invitation = 2 * (1000 + small)
    round_trip = 2 * (1000 + _FRAME_NS) + 2 * (1000 + bare)
    waits = (round_trip - 2 * _FRAME_NS) + (round_trip - 4 * _FRAME_NS)
    assert took[1] - took[100] == pytest.approx(notice - invitation + waits, abs=50)


@given(
    size=st.integers(1, 3_000_000),
    hosts=st.integers(2, 5),
    kind=st.sampled_from([Kind.ALL_REDUCE, Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.INCAST]),
    control=st.sampled_from(["cubic", "dctcp", "reno"]),
)
@hypothesis_settings(max_examples=15, deadline=None)
def test_every_byte_arrives_once_and_the_same_way_each_time(
    size: int, hosts: int, kind: Kind, control: str
) -> None:
    size = size // (8 * hosts) * 8 * hosts
    setting = _setting(hosts, "{kind: dctcp, k: 50KB, buffer: 4MB}", control)
    call = CollectiveCall(kind, size, tuple(range(hosts)))
    predictor = LinuxTcp()
    first = predictor.predict(setting, call)
    if size:
        assert predictor.last is not None
        ends = predictor.last.endpoints
        assert all(ends[b, a].rcv_nxt >= ends[a, b].snd_una for a, b in ends)
        assert sum(end.retransmitted for end in ends.values()) == 0
    assert LinuxTcp().predict(setting, call) == first


def test_dctcp_keeps_queues_short_where_cubic_fills_them() -> None:
    call = CollectiveCall(Kind.INCAST, 4_000_000, tuple(range(5)))
    queue = "{kind: dctcp, k: 50KB, buffer: 32MB}"
    worst = {}
    for control in ("cubic", "dctcp"):
        setting = _setting(5, queue, control)
        setting = replace(setting, transport=replace(setting.transport, ecn=control == "dctcp"))
        predictor = LinuxTcp()
        predictor.predict(setting, call)
        assert predictor.last is not None
        worst[control] = max(end.srtt_us for end in predictor.last.endpoints.values())
    assert worst["dctcp"] < worst["cubic"] / 2


def test_what_a_full_buffer_drops_is_sent_again() -> None:
    call = CollectiveCall(Kind.INCAST, 2_000_000, tuple(range(5)))
    lossy = LinuxTcp()
    took = lossy.predict(_setting(5, "{kind: droptail, buffer: 100KB}"), call)
    assert lossy.last is not None
    ends = lossy.last.endpoints
    assert sum(end.retransmitted for end in ends.values()) > 0
    assert all(ends[0, a].rcv_nxt == ends[a, 0].write_seq for a in range(1, 5))
    assert took > LinuxTcp().predict(_setting(5), call)


def test_it_is_named_and_refuses_what_it_does_not_follow() -> None:
    predictor = load_predictor("tcp")
    setting = _setting(2)
    with pytest.raises(PredictorError, match="bbr"):
        predictor.predict(replace(setting, transport=Transport("bbr")), _send(1000))
    with pytest.raises(PredictorError, match=r"found sndbuf 1,000,000 bytes, allowed rcvbuf's"):
        few = Transport(sndbuf_bytes=1_000_000)
        predictor.predict(replace(setting, transport=few), _send(1000))


@pytest.mark.parametrize(
    ("queue", "named"),
    [
        ("{kind: voq}", "kind voq"),
        ("{kind: codel}", "kind codel"),
        ("{kind: fq_codel}", "kind fq_codel"),
        ("{kind: classes, classes: {a: {priority: 1}}}", "kind classes"),
        ("{kind: lossless, lossy_priorities: [1]}", "lossy_priorities"),
    ],
)
def test_queues_that_it_does_not_follow_are_refused_by_name(queue: str, named: str) -> None:
    with pytest.raises(PredictorError, match=named):
        load_predictor("tcp").predict(_setting(2, queue), _send(1000))


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("faults", "[{kind: loss, link: h0-s0, at: 1ms, value: 1%}]", "faults"),
        ("virtual.receive_coalescing", "10us", "receive_coalescing"),
    ],
)
def test_what_befalls_a_run_is_refused_by_name(key: str, value: str, named: str) -> None:
    spec = _spec(2).with_overrides({key: value})
    with pytest.raises(PredictorError, match=named):
        predict_run(spec, setting_of_spec(spec), LinuxTcp())


def test_connections_of_a_group_take_the_paths_of_their_own_ports() -> None:
    """Ranks of different pods: their group's ports decide, not those of all ranks' connections."""
    plain = make_setting("fat-tree")
    ways = set()
    for port in range(40_000, 40_020):
        ports = {(0, 12): (port, 50_000)}
        of_all = paths_of(replace(plain, ports=ports)).hashed([0], [12])
        ours = replace(plain, ports={(0, 12): (1, 2)}, group_ports={"data.1": ports})
        found = paths_of(ours).hashed([0, 0], [12, 12], groups=["data.1", None])
        assert found[0].tolist() == of_all[0].tolist()
        assert found[1].tolist() == paths_of(ours).hashed([0], [12])[0].tolist()
        ways.add(tuple(found[0].tolist()))
    assert len(ways) == 4  # two spines of the pod, two cores of each


def test_a_step_s_groups_have_the_ports_that_the_run_gave_them() -> None:
    """By the group's name where a run's collectives are followed, by its ranks where the spec's."""
    calls = [
        GroupedCall(CollectiveCall(Kind.ALL_REDUCE, 8, tuple(range(4))), "default"),
        GroupedCall(CollectiveCall(Kind.ALL_REDUCE, 8, (0, 2)), "data.0"),
        GroupedCall(CollectiveCall(Kind.ALL_REDUCE, 8, (1, 3)), group_key((1, 3))),
    ]
    joint = JointPrograms(calls, {}, seed=1)
    setting = make_setting("fat-tree")
    own = ["data.0"] * 2 + [group_key((1, 3))] * 2
    assert joint.groups(setting) == [None] * 4 + own
    ports = {(0, 1): (1, 2)}
    recorded = replace(setting, ports=ports, group_ports={"data.0": ports})
    assert joint.groups(recorded) == [None] * 4 + ["data.0"] * 2 + [None] * 2
