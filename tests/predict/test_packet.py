"""The predictor `packet`: exact where theory is, nothing lost, the same each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.programs import EncodedPrograms
from analysis.predict.engines.paths import paths_of
from analysis.predict.interface import (
    PredictorError,
    Setting,
    Transport,
    group_key,
    load_predictor,
)
from analysis.predict.models.packet import Packet, scenario_of
from analysis.predict.planned_run import PredictedIteration, predict_workload
from analysis.predict.scenario import GroupedCall, PostCall, WaitForCall
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule.exchange import ExchangeSchedule
from collectives.schedule.observed import ObservedSchedule
from collectives.schedule.operations import Exchange
from groundwire.driving import drive
from groundwire.forecast import predict
from simulation.engine_process import run_engine
from testing.kept_runs import ROOT
from tests.predict.settings import make_setting
from topologies.spec.spec import Spec, load_spec, parse_spec
from workloads.models.planned import planned_calls

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
    found = Packet().predict(_setting(2), _send(size))
    # Fractions of a nanosecond are carried, and the sender's own notice goes first.
    assert found == pytest.approx(invitation + last_bit, abs=30)


def test_segments_are_as_long_as_the_mtu_of_their_own_path_lets_them_be() -> None:
    fabric = """{kind: rails, servers: 2, hosts_per_server: 2, link: {mtu: 9000, rate: 400Gbps},
        links: {scale-up: {rate: 100Gbps, delay: 1us, mtu: 65535}}}"""
    workload = "{kind: collectives, ranks: 4, operations: [{kind: barrier}]}"
    spec = parse_spec(f"{{name: test, fabric: {fabric}, workload: {workload}}}")
    frame_ns = (65_483 + 66 + 24) * 8 // 100
    found = Packet().predict(setting_of_spec(spec), _send(8 * 65_483 - 48))
    invitation = 2 * (138 * 8 // 100 + 1000)
    assert found == pytest.approx(invitation + 9 * frame_ns + 2 * 1000, abs=30)


def test_a_message_that_nobody_announces_takes_its_bytes_alone() -> None:
    size = 8 * 8948 - 48
    alone = ObservedSchedule(((0, 1, size),), ((0,), (~0,)), 1 << 62, 48)
    found = Packet().predict(_setting(2), replace(_send(size), schedule=alone))
    assert found == pytest.approx(8 * _FRAME_NS + _FRAME_NS + 2 * 1000, abs=30)


def test_a_message_that_waits_in_the_middle_of_others_is_not_announced_either() -> None:
    """One there, its answer back, and a last one there: three ways of one frame each."""
    size = 8948 - 22
    acts = ((0, ~1, 2), (~0, 1, ~2))
    seen = ObservedSchedule(((0, 1, size), (1, 0, size), (0, 1, size)), acts, 1 << 62, 22)
    found = Packet().predict(_setting(2), replace(_send(size), schedule=seen))
    assert found == pytest.approx(3 * (2 * _FRAME_NS + 2 * 1000), abs=30)


def _sent_with_buffer(segments: int, sndbuf_bytes: int, asks: bool = False) -> float:
    setting = _setting(2)
    transport = replace(setting.transport, initial_window=100, sndbuf_bytes=sndbuf_bytes)
    size = segments * 8948 - 48
    alone = ObservedSchedule(((0, 1, size),), ((0,), (~0,)), 1 << 62, 48, asks)
    return Packet().predict(
        replace(setting, transport=transport), replace(_send(size), schedule=alone)
    )


def test_a_send_buffer_holds_what_is_not_acknowledged() -> None:
    """Segments count 8948 + 832 bytes, so 200,000 hold 21."""
    line = {n: (n + 1) * _FRAME_NS + 2 * 1000 for n in (21, 40)}
    assert _sent_with_buffer(21, 200_000) == pytest.approx(line[21], abs=30)
    assert _sent_with_buffer(40, 16_000_000) == pytest.approx(line[40], abs=50)
    # 4 are less than the wire holds: two more are written when two are acknowledged.
    assert _sent_with_buffer(40, 30_000) > 1.5 * line[40]


def test_who_asks_for_a_send_buffer_gets_what_the_kernel_allows() -> None:
    """425,984 bytes, which hold 44 segments, of 16 MB."""
    wire = 45 * _FRAME_NS + 2 * 1000
    assert _sent_with_buffer(44, 16_000_000, asks=True) == pytest.approx(wire, abs=50)
    assert _sent_with_buffer(2, 10_000, asks=True) == _sent_with_buffer(2, 16_000_000)


def test_slow_start_waits_for_acknowledgements() -> None:
    """With a window of 1 the notice's acknowledgement opens it to 2, and 14 segments take rounds of
    2, 4 and 8, each as long as the first one's acknowledgement takes."""
    size = 14 * 8948 - 48
    took = {}
    for window in (1, 2, 4, 8, 16, 100):
        setting = _setting(2)
        transport = replace(setting.transport, initial_window=window)
        took[window] = Packet().predict(replace(setting, transport=transport), _send(size))
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
    control=st.sampled_from(["cubic", "dctcp", "reno", "bbr"]),
    queue=st.sampled_from(
        ["{kind: dctcp, k: 50KB, buffer: 12MB}", "{kind: voq}", "{kind: fq_codel, buffer: 12MB}"]
    ),
)
@hypothesis_settings(max_examples=15, deadline=None)
def test_every_byte_arrives_once_and_the_same_way_each_time(
    size: int, hosts: int, kind: Kind, control: str, queue: str
) -> None:
    size = size // (8 * hosts) * 8 * hosts
    setting = _setting(hosts, queue, control)
    call = CollectiveCall(kind, size, tuple(range(hosts)))
    predictor = Packet()
    first = predictor.predict(setting, call)
    if size:
        assert predictor.last is not None
        ends = predictor.last.ends
        assert all(ends[b, a].received >= ends[a, b].acknowledged for a, b in ends)
        assert sum(end.retransmitted for end in ends.values()) == 0
    assert Packet().predict(setting, call) == first


def test_dctcp_keeps_queues_short_where_cubic_fills_them() -> None:
    call = CollectiveCall(Kind.INCAST, 4_000_000, tuple(range(5)))
    queue = "{kind: dctcp, k: 50KB, buffer: 32MB}"
    worst = {}
    for control in ("cubic", "dctcp"):
        setting = _setting(5, queue, control)
        setting = replace(setting, transport=replace(setting.transport, ecn=control == "dctcp"))
        predictor = Packet()
        predictor.predict(setting, call)
        assert predictor.last is not None
        worst[control] = max(end.srtt_us for end in predictor.last.ends.values())
    assert worst["dctcp"] < worst["cubic"] / 2


def test_what_a_full_buffer_drops_is_sent_again() -> None:
    call = CollectiveCall(Kind.INCAST, 2_000_000, tuple(range(5)))
    lossy = Packet()
    took = lossy.predict(_setting(5, "{kind: droptail, buffer: 100KB}"), call)
    assert lossy.last is not None
    ends = lossy.last.ends
    assert sum(end.retransmitted for end in ends.values()) > 0
    assert all(ends[0, a].received == ends[a, 0].written for a in range(1, 5))
    assert took > Packet().predict(_setting(5), call)


_MEASURED_NS = {
    ("{kind: droptail}", "bbr"): (188_075, 79_438, 297_063, 155_025),
    ("{kind: voq, buffer: 800KB}", "cubic"): (194_683, 78_722, 328_775, 147_410),
    ("{kind: codel, target: 30us, interval: 500us}", "cubic"): (186_932, 78_693, 328_667, 147_410),
}
"""Times that ranks in the virtual kernel measured, in a run of four operations."""


@pytest.mark.parametrize(("queue", "control"), _MEASURED_NS)
def test_a_run_takes_what_it_took_in_the_virtual_kernel(queue: str, control: str) -> None:
    """BBR's pace and filter, and queues that choose at the head: 8 hosts, Linux's windows."""
    operations = (
        "[{kind: all_reduce, size: 1MB}, {kind: all_to_all, size: 1MB}, "
        "{kind: all_gather, size: 4MB}, {kind: broadcast, size: 300KB}]"
    )
    spec = _spec(8, queue, control).with_overrides({"workload.operations": operations, "seed": "5"})
    whole = predict_workload(spec, setting_of_spec(spec), Packet())
    found = [one.duration_ns for one in whole.collectives.values()]
    assert found == pytest.approx(_MEASURED_NS[queue, control], rel=1e-3)


_MESH_NS = {"20KB": 609_375, "64KB": 518_320}
"""Iterations that ranks in the virtual kernel measured, by the places of a neighbour."""


@pytest.mark.parametrize("places", _MESH_NS)
def test_a_mesh_with_credits_takes_what_it_took_in_the_virtual_kernel(places: str) -> None:
    spec = load_spec(ROOT / "topologies" / "mesh-credits.yaml")
    spec = spec.with_overrides({"fabric.queue.buffer": places})
    whole = predict_workload(spec, setting_of_spec(spec), Packet())
    assert whole.iterations[0].duration_ns == pytest.approx(_MESH_NS[places], rel=1e-3)


_CELLS_NS = {2: 622_664, 5: 1_398_436}
"""Iterations that ranks in the virtual kernel measured, by how many hosts the switch had."""


@pytest.mark.parametrize("hosts", _CELLS_NS)
def test_a_fabric_of_cells_takes_what_it_took_in_the_virtual_kernel(hosts: int) -> None:
    spec = load_spec(ROOT / "topologies" / "cells.yaml")
    spec = spec.with_overrides({"fabric.hosts": str(hosts), "workload.ranks": str(hosts)})
    whole = predict_workload(spec, setting_of_spec(spec), Packet())
    assert whole.iterations[0].duration_ns == pytest.approx(_CELLS_NS[hosts], rel=2e-3)


@given(size=st.integers(1, 8_900), links=st.integers(5, 40), cell=st.integers(64, 1024))
@hypothesis_settings(max_examples=8, deadline=None)
def test_a_packet_takes_as_much_longer_as_its_cells_do(size: int, links: int, cell: int) -> None:
    """A message and its invitation take a request, a grant and two links each; and the cells of the
    link that has most of them, with one more at the element."""
    call = _send(size)
    queue = f"{{kind: cells, ports: 1, links: {links}, cell: {cell}B, link_delay: 300ns}}"
    more = Packet().predict(_setting(2, queue), call) - Packet().predict(_setting(2), call)
    cells = [-(-frame // cell) for frame in (114, size + 48 + 66)]
    on_a_link = sum(-(-each // links) for each in cells)
    cell_ns = (cell + 8) * 8 / 100
    # The last cell of each is shorter, and may be that on the link with most of them.
    assert on_a_link * cell_ns - 2 <= more - 12 * 300 + 2 * cell_ns
    assert more - 12 * 300 <= (on_a_link + 2) * cell_ns + 10


@given(places=st.integers(1, 20), frames=st.integers(30, 300))
@hypothesis_settings(max_examples=15, deadline=None)
def test_credits_let_a_link_send_so_many_frames_a_round(places: int, frames: int) -> None:
    """A place is taken when a frame's first bit leaves, and known to be free a delay after its last
    has come; acknowledgements go the other way."""
    call = _send(frames * 8948 - 48)
    free = Packet().predict(_setting(2), call)
    took = Packet().predict(_setting(2, f"{{kind: credits, buffer: {places * 9014 + 100}}}"), call)
    rounds_ns = (frames - 1) // places * (_FRAME_NS + 2 * 1000)
    assert took >= max(rounds_ns, free)
    # A window that grows holds frames back meanwhile, as it does without credits.
    assert took <= rounds_ns + free
    if places * _FRAME_NS > _FRAME_NS + 2 * 1000:
        assert took == free


def test_traffic_of_one_class_waits_in_its_own_queue() -> None:
    call = CollectiveCall(Kind.INCAST, 2_000_000, tuple(range(5)))
    small = "{kind: droptail, buffer: 100KB}"
    classes = (
        "{kind: classes, classes: {a: {priority: 1, queue: " + small + "}, "
        "b: {priority: 2, queue: {kind: droptail, buffer: 8MB}}}}"
    )
    took = {}
    for priority in (1, 2):
        setting = replace(_setting(5, classes), priorities=((priority,) * 5, ()))
        took[priority] = Packet().predict(setting, call)
    assert took[1] == Packet().predict(_setting(5, small), call)
    assert took[2] == Packet().predict(_setting(5), call) < took[1]


def test_a_step_s_collectives_begin_and_end_within_its_iteration() -> None:
    spec = parse_spec(
        """
name: test
fabric: {kind: flat, hosts: 4, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
workload: {kind: dlrm, ranks: 4, iterations: 2, sparse_features: 8, batch_size: 64}
predict: [flow]
"""
    )
    forecast = predict(spec, predictors=["packet", "flow"])
    whole = forecast.iterations["packet"]
    assert isinstance(whole, PredictedIteration)
    answers = [each.predicted["packet"] for each in forecast.collectives]
    starts = [answer.start_ns for answer in answers if answer.start_ns is not None]
    assert len(starts) == len(answers) > 3
    assert starts == sorted(starts)
    assert starts[0] > 0  # what comes before it is computed
    ends = [answer.end_ns for answer in answers if answer.end_ns is not None]
    assert len(ends) == len(answers)
    assert whole.duration_ns * 0.9 < max(ends) <= whole.duration_ns
    assert answers[0].as_dict().keys() == {"duration_ns", "start_ns", "end_ns"}
    assert forecast.collectives[0].predicted["flow"].start_ns is None


def test_it_is_named_and_refuses_what_it_does_not_follow() -> None:
    predictor = load_predictor("packet")
    setting = _setting(2)
    with pytest.raises(PredictorError, match="vegas; allowed: bbr, cubic, dctcp, reno"):
        predictor.predict(replace(setting, transport=Transport("vegas")), _send(1000))


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("faults", "[{kind: freeze, rank: 0, at: 1ms, duration: 1ms}]", "kind freeze"),
        ("virtual.receive_coalescing", "10us", "receive_coalescing"),
    ],
)
def test_what_befalls_a_run_is_refused_by_name(key: str, value: str, named: str) -> None:
    spec = _spec(2).with_overrides({key: value})
    with pytest.raises(PredictorError, match=named):
        predict_workload(spec, setting_of_spec(spec), Packet())


def test_ports_that_hold_what_they_receive_are_refused_beside_a_run_and_from_outside() -> None:
    """As before a run: a collective is asked about with the setting of its run."""
    spec = _spec(2).with_overrides({"virtual.receive_coalescing": "10us"})
    with pytest.raises(PredictorError, match=r"virtual\.receive_coalescing"):
        Packet().predict(setting_of_spec(spec), _send(1000))
    with pytest.raises(PredictorError, match=r"virtual\.receive_coalescing"):
        drive(spec)


def test_an_aggregation_node_that_dies_is_refused_by_name() -> None:
    spec = parse_spec(
        """
name: test
fabric: {kind: flat, hosts: 4}
workload: {kind: collectives, ranks: 4, operations: [{kind: all_reduce, size: 1MB}]}
collectives: {backend: programs, all_reduce: {algorithm: aggregation}}
aggregation: {when_lost: fall-back, fall_back: {algorithm: gloo-ring}}
faults: [{kind: node-dies, switch: s0, at: 50us}]
"""
    )
    with pytest.raises(PredictorError, match="kind node-dies are not followed"):
        predict_workload(spec, setting_of_spec(spec), Packet())


def test_messages_within_a_host_take_no_time_and_those_between_share_its_port() -> None:
    """Loopback is free. Two ranks of a host that each send to one of another host take as long as
    one that sends twice as much."""
    setting = _setting(2)
    together = replace(setting, hosts=(setting.hosts[0],) * 2)
    assert Packet().predict(together, _send(1_000_000)) == 0
    by_two = replace(setting, hosts=tuple(host for host in setting.hosts for _ in range(2)))
    sends = tuple((rank, rank + 2, 4_000_000) for rank in range(2))
    call = CollectiveCall("exchange", 4_000_000, (0, 1, 2, 3), schedule=ExchangeSchedule(sends))
    found_ns = Packet().predict(by_two, call)
    assert found_ns == pytest.approx(Packet().predict(setting, _send(8_000_000)), rel=0.01)


def test_ranks_that_share_a_host_over_roce_pass_no_port() -> None:
    """A device's packets to itself take no time of a link."""
    setting = setting_of_spec(
        parse_spec(
            "name: test\nfabric: {kind: flat, hosts: 2, link: {rate: 100Gbps}}\n"
            "transport: {kind: roce}\ncollectives: {backend: programs, all_reduce: "
            "{algorithm: ring}}\nworkload: {kind: collectives, ranks: 2, operations: "
            "[{kind: all_reduce, size: 1MB}]}\n"
        )
    )
    call = replace(_send(1000), schedule=ExchangeSchedule(((0, 1, 1000),)))
    shared = replace(setting, hosts=(setting.hosts[0],) * 2)
    within, between = (Packet().predict(each, call) for each in (shared, setting))
    assert 0 <= within < between


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


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.EXCHANGE])
@pytest.mark.parametrize("ranks", [2, 5])
def test_steps_that_ranks_go_through_together_are_what_each_of_them_does(
    kind: Kind, ranks: int
) -> None:
    """The engine is told of Gloo's steps once, or of every rank's operations."""
    setting = _setting(ranks)
    call = CollectiveCall(kind, 400_000, tuple(range(ranks)), root=ranks - 1)
    acts = {rank: (PostCall(0), PostCall(1), WaitForCall(0)) for rank in range(ranks)}
    found = []
    for follows_steps in (False, True):
        joint = JointPrograms(
            [GroupedCall(call, "")] * 2, acts, seed=1, follows_steps=follows_steps
        )
        assert bool(joint.compiled.steps) == follows_steps
        columns = EncodedPrograms(joint).columns() | scenario_of(setting, joint)
        answer = dict(run_engine(columns).columns)
        answer.pop("processor_s")
        found.append({name: column.tolist() for name, column in answer.items()})
    assert found[0] == found[1]
    assert min(found[0]["stamps"]) >= 0


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        ("all_reduce", "{algorithm: ring, chunks: 3}"),
        ("all_reduce", "{algorithm: hierarchical, dimensions: [2, 3]}"),
        ("reduce_scatter", "{algorithm: ring}"),
        ("all_to_all", "{algorithm: direct, in_flight: 2}"),
        ("all_gather", "{algorithm: direct}"),
    ],
)
def test_a_program_that_was_met_before_is_what_each_of_its_ranks_does(
    kind: str, section: str
) -> None:
    """A program is packed when it is compiled for the second time, and that is what the third one
    is; numbers of messages move."""
    spec = parse_spec(
        f"""
name: test
fabric: {{kind: flat, hosts: 6}}
workload:
  {{kind: collectives, ranks: 6, operations: [{{kind: {kind}, size: 600KB}}]}}
collectives: {{backend: programs, {kind}: {section}}}
"""
    )
    setting, (planned,) = setting_of_spec(spec), planned_calls(spec)
    calls = [GroupedCall(planned.call, "") for _ in range(3)]
    acts = {rank: (PostCall(0), PostCall(1), PostCall(2), WaitForCall(0)) for rank in range(6)}
    found, packed = [], []
    for follows_steps in (False, True):
        joint = JointPrograms(calls, acts, seed=1, follows_steps=follows_steps)
        operations = [each for program in joint.compiled.programs for each in program]
        packed.append(sum(isinstance(each, Exchange) for each in operations))
        columns = EncodedPrograms(joint).columns() | scenario_of(setting, joint)
        answer = dict(run_engine(columns).columns)
        answer.pop("processor_s")
        found.append({name: column.tolist() for name, column in answer.items()})
    assert packed[0] == 0
    assert packed[1] >= 6
    assert found[0] == found[1]
    assert max(found[0]["stamps"]) > 0


def test_what_a_host_s_own_port_has_no_room_for_was_not_sent() -> None:
    """A port takes three of ten segments at once: one to transmit and two that wait. The window
    falls, and nothing has to be sent again."""
    spec = parse_spec(
        """
name: test
fabric:
  kind: torus
  dims: [4, 2]
  link: {rate: 10Gbps, delay: 1us, mtu: 9000}
  queue: {kind: droptail, buffer: 20KB}
workload: {kind: collectives, ranks: 8, operations: [{kind: barrier}]}
"""
    )
    predictor = Packet()
    call = CollectiveCall(Kind.SEND_RECV, 80_000, (0, 1), peer=1)
    took = predictor.predict(setting_of_spec(spec), call)
    assert predictor.last is not None
    end = predictor.last.ends[0, 1]
    assert predictor.last.drops.sum() > 0
    assert end.ssthresh < 10
    assert end.retransmitted == 0
    assert took < 1_000_000
