"""The engine driven from outside says what it says of the same scenario, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import groundwire
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.models.packet import Packet
from analysis.predict.scenario import (
    Act,
    Compute,
    GroupedCall,
    PostCall,
    Scenario,
    WaitForCall,
)
from analysis.predict.setting import setting_of_spec
from collectives.kinds import Kind, Shape
from collectives.schedule.gloo import GLOO
from collectives.schedule.operations import Occupy
from simulation.failure import SimulationError
from simulation.parts import PartsOfRanks, part_words
from tests.simulation.system_layer import SystemLayer
from topologies.spec.spec import Spec, parse_spec
from workloads.models.planned import planned_calls

_FRAME_NS = (8948 + 66 + 24) * 8 // 100
"""A full segment at 100 Gb/s with an MTU of 9000."""

_TCP = "{congestion_control: cubic}"
_PROGRAMS = "{backend: programs, all_reduce: {algorithm: %s}}"


def _spec(
    ranks: int = 2,
    operation: str = "{kind: barrier}",
    fabric: str = "kind: flat, hosts: 8",
    queue: str = "{kind: droptail}",
    transport: str = _TCP,
    collectives: str = "{backend: gloo}",
) -> Spec:
    return parse_spec(
        f"""
name: test
fabric: {{{fabric}, link: {{rate: 100Gbps, delay: 1us, mtu: 9000}}, queue: {queue}}}
transport: {transport}
workload: {{kind: collectives, ranks: {ranks}, operations: [{operation}]}}
collectives: {collectives}
"""
    )


def _expect_the_same(spec: Spec) -> None:
    """Two collectives with computing between and after them."""
    setting = setting_of_spec(spec)
    (planned,) = planned_calls(spec)
    calls = [GroupedCall(planned.call, "")] * 2
    acts: dict[int, list[Act]] = {
        rank: [
            PostCall(0),
            Compute(3_000.0 + 70 * rank),
            WaitForCall(0),
            Compute(5_000.0),
            PostCall(1),
            WaitForCall(1),
        ]
        for rank in planned.call.ranks
    }
    expected = Packet().run(Scenario(setting, calls, acts))
    joint = JointPrograms(calls, acts, setting.seed)
    with groundwire.drive(spec) as network:
        SystemLayer(joint, network).run()
    found = joint.timeline()
    assert found.completed_ns == expected.completed_ns
    assert found.posted_ns == expected.posted_ns
    assert found.ended_ns == expected.ended_ns
    assert found.waited_ns == expected.waited_ns


@given(
    operation=st.sampled_from(["all_reduce", "all_to_all", "broadcast", "all_gather"]),
    words=st.integers(1, 6_000),
    ranks=st.integers(2, 6),
    fabric=st.sampled_from(["kind: flat, hosts: 8", "kind: fat-tree, k: 4"]),
    queue=st.sampled_from(
        ["{kind: dctcp, k: 50KB, buffer: 12MB}", "{kind: droptail, buffer: 60KB}", "{kind: voq}"]
    ),
    control=st.sampled_from(["cubic", "dctcp", "bbr"]),
)
@hypothesis_settings(max_examples=12, deadline=None)
def test_gloo_s_collectives_take_what_they_take_in_a_scenario(
    operation: str, words: int, ranks: int, fabric: str, queue: str, control: str
) -> None:
    told = f"{{kind: {operation}, size: {240 * words}B}}"  # which all these ranks can share
    transport = f"{{congestion_control: {control}}}"
    _expect_the_same(_spec(ranks, told, fabric, queue, transport))


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "direct"])
@pytest.mark.parametrize("transport", [_TCP, "{kind: roce, congestion_control: dcqcn}"])
def test_programs_take_what_they_take_in_a_scenario(algorithm: str, transport: str) -> None:
    """Programs in which a rank has one sequence: of several, another one may go on before a send is
    told that is complete at once."""
    queue = "{kind: droptail}" if transport == _TCP else "{kind: lossless, kmin: 50KB, kmax: 200KB}"
    _expect_the_same(
        _spec(
            ranks=8,
            operation="{kind: all_reduce, size: 700KB}",
            fabric="kind: fat-tree, k: 4",
            queue=queue,
            transport=transport,
            collectives=_PROGRAMS % algorithm,
        )
    )


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize(
    "operation",
    [
        "{kind: all_reduce, size: 1200000B}",
        "{kind: all_gather, size: 1200000B}",
        "{kind: all_to_all, size: 480000B}",
        "{kind: broadcast, size: 480000B}",
        "{kind: reduce, size: 480000B}",
        "{kind: scatter, size: 480000B}",
        "{kind: barrier}",
    ],
)
def test_a_rank_s_part_that_is_told_at_once_takes_what_it_takes_in_a_scenario(
    operation: str, ranks: int
) -> None:
    """Twice, with computing between."""
    _expect_parts_to_take_the_same(_spec(ranks, operation, "kind: fat-tree, k: 4"))


@pytest.mark.parametrize(
    "entries",
    [
        "{backend: programs, all_reduce: {algorithm: ring, chunks: 3}}",
        "{backend: programs, all_reduce: {algorithm: ring, channels: 2}, endpoint_delay: 2us}",
        "{backend: programs, all_reduce: {algorithm: ring, chunks: 6}, in_flight: 2}",
        "{backend: programs, all_reduce: {algorithm: double-binary-tree}}",
        "{backend: programs, all_reduce: {algorithm: double-binary-tree, chunks: 4}}",
        "{backend: programs, all_reduce: {algorithm: double-binary-tree, chunks: 8}, in_flight: 3}",
        "{backend: programs, all_reduce: {algorithm: halving-doubling}}",
        "{backend: nccl, launch: 0ns}",
        "{backend: nccl}",
        "{backend: nccl, launch: 20us}",
    ],
)
def test_a_program_s_part_takes_what_it_takes_in_a_scenario(entries: str) -> None:
    """Several sequences of a rank, which wait for each other, and for a time; NCCL's own launch is
    14 us. Twice: the threads of the second collective are there."""
    _expect_parts_to_take_the_same(
        _spec(4, "{kind: all_reduce, size: 1200000B}", "kind: fat-tree, k: 4", collectives=entries)
    )


def test_a_launch_delays_all_of_a_collective() -> None:
    """All sequences of all ranks, also those whose threads are new: a thread that sleeps is a
    nanosecond late."""
    took = []
    for launch_ns in (0, 20_000):
        entries = f"{{backend: nccl, launch: {launch_ns}ns}}"
        spec = _spec(4, "{kind: all_reduce, size: 1200000B}", collectives=entries)
        (planned,) = planned_calls(spec)
        acts: dict[int, list[Act]] = {rank: [PostCall(0)] for rank in planned.call.ranks}
        scenario = Scenario(setting_of_spec(spec), [GroupedCall(planned.call, "")], acts)
        took += Packet().run(scenario).durations_ns()
    assert took[1] - took[0] == 20_001


def _expect_parts_to_take_the_same(spec: Spec) -> None:
    ranks = spec.workload.ranks
    setting = setting_of_spec(spec)
    (planned,) = planned_calls(spec)
    calls = [GroupedCall(planned.call, "")] * 2
    acts: list[Act] = [PostCall(0), WaitForCall(0), Compute(5_000.0), PostCall(1), WaitForCall(1)]
    expected = Packet().run(Scenario(setting, calls, dict.fromkeys(range(ranks), acts)))
    over: tuple[dict[int, int], ...] = ({}, {})
    with groundwire.drive(spec) as network:
        told = PartsOfRanks.of(planned.call.schedule, planned.call.shape)
        parts = [network.part(words) for words in told.words]

        def begin(call: int, rank: int) -> None:
            then = partial(end, call, rank)
            network.begin(parts[rank], range(ranks), call * told.tags, then, pool=rank)

        def end(call: int, rank: int) -> None:
            over[call][rank] = network.now_ns
            if call == 0:
                network.sleep(5_000, partial(begin, 1, rank))

        for rank in reversed(range(ranks)):
            begin(0, rank)
        network.run()
    for call in (0, 1):
        found = [over[call][rank] for rank in range(ranks)]
        wanted = [expected.completed_ns[call][rank] for rank in range(ranks)]
        assert found == wanted


def test_time_goes_to_the_next_callback() -> None:
    heard: list[int] = []
    with groundwire.drive(_spec()) as network:
        for delay_ns in (300, 300, 900):
            network.schedule(delay_ns, lambda: heard.append(network.now_ns))
        network.run_to_call(10_000)
        assert (heard, network.now_ns) == ([300, 300], 300)
        network.run_to_call(800)
        assert (heard, network.now_ns) == ([300, 300], 800)
        network.run_to_call(900)
        assert heard == [300, 300, 900]


def test_mistakes_in_parts_are_named() -> None:
    for words, said in (
        ([1, 0, 1, 0], "ends within a step"),
        ([1, 0, 1, 0, 5, 0, 0, 1, 7, 0, 0], "found a step of kind 7, allowed 0 to 6"),
        ([1, 0, 1, 0, 5, 0, 0, 1, 0, 1, 0, 3], "found message 3 of a part that has 1"),
        ([0, 2, 1, 1, 6, 2], "found chunk 2 of a part that has 2"),
        ([-1], "found a count of -1"),
    ):
        with groundwire.drive(_spec()) as network:
            network.part(words)
            with pytest.raises(SimulationError, match=said):
                network.run()
    with groundwire.drive(_spec()) as network:
        network.begin(network.part([1, 0, 2, 0, 5, 0, 0]), [0, 1], 0, lambda: None)
        with pytest.raises(SimulationError, match="found member 2 of a collective of 2 ranks"):
            network.run()
    with groundwire.drive(_spec()) as network:
        network.shook_hands(0, 2, 5)
        with pytest.raises(SimulationError, match="from 0 to 2, which are no pair"):
            network.run()
    with groundwire.drive(_spec()) as network:
        network.begin(3, [0, 1], 0, lambda: None)
        with pytest.raises(SimulationError, match="found no part 3"):
            network.run()
    programs = GLOO.alone(Shape(Kind.BARRIER, 0, 2))
    programs.programs[0].append(Occupy(0, 1, 0))
    with pytest.raises(TypeError, match="no post, wait, mark or pause"):
        part_words(programs, [0], {0: 0, 1: 1})


def test_time_goes_as_far_as_it_is_told_to() -> None:
    heard: list[tuple[str, int]] = []
    with groundwire.drive(_spec()) as network:

        def hear(what: str) -> None:
            heard.append((what, network.now_ns))

        assert network.next_ns() is None
        assert not network.step()
        network.run(2_000)
        network.schedule(500, partial(hear, "due"))
        network.sleep(700, partial(hear, "slept"))
        assert network.next_ns() == 2_500
        assert network.step()
        assert heard == [("due", 2_500)]
        network.run(10_000)
        assert heard[1:] == [("slept", 2_701)]  # a sleeper is late by its slack
        network.receive(0, 1, 5_000, then=partial(hear, "received"))
        network.run(20_000)
        network.send(0, 1, 5_000, then=partial(hear, "sent"))
        network.run(21_000)
        assert heard[2:] == [("sent", 20_000)]  # it was invited by then
        assert network.now_ns == 21_000
        with pytest.raises(ValueError, match="allowed 21000 and later"):
            network.run(20_999)
        network.run()
        assert heard[3][0] == "received"
        assert network.finish().packets > 2


def test_what_is_not_announced_leaves_when_it_is_sent() -> None:
    """A receive that is posted long after its message has come is complete at once."""
    heard: list[int] = []
    with groundwire.drive(_spec(), announced=False) as network:
        network.send(0, 1, 8 * 8948)
        network.run(1_000_000)
        network.receive(0, 1, 8 * 8948, then=lambda: heard.append(network.now_ns))
        network.receive(1, 0, 8 * 8948, then=lambda: heard.append(network.now_ns))
        network.send(1, 0, 8 * 8948)
        network.run()
    assert heard[0] == 1_000_000
    assert heard[1] - heard[0] == pytest.approx(9 * _FRAME_NS + 2 * 1000, abs=30)


def test_connections_begin_with_what_their_handshakes_measured() -> None:
    """As those of a scenario that knows them: slow start ends sooner after a first round trip
    of a microsecond, which is less than the fabric's."""
    spec = _spec(16, "{kind: all_to_all, size: 40MB}", "kind: fat-tree, k: 4")
    told = {
        (rank, peer): (1 + (rank + peer) % 2, 1 if peer < rank else -1)
        for rank in range(16)
        for peer in range(16)
        if rank != peer
    }
    setting = setting_of_spec(spec)
    (planned,) = planned_calls(spec)
    calls = [GroupedCall(planned.call, "")]
    acts: dict[int, list[Act]] = {
        rank: [PostCall(0), WaitForCall(0)] for rank in planned.call.ranks
    }
    idle = Packet().run(Scenario(setting, calls, acts))
    expected = Packet().run(Scenario(replace(setting, handshakes_us=told), calls, acts))
    joint = JointPrograms(calls, acts, setting.seed)
    with groundwire.drive(spec) as network:
        for (rank, peer), round_trips in told.items():
            network.shook_hands(rank, peer, *round_trips)
        SystemLayer(joint, network).run()
    assert joint.timeline().completed_ns == expected.completed_ns != idle.completed_ns


@pytest.mark.parametrize(
    ("end", "control", "rtt_us"), [(15, "cubic", 1), (0, "bbr", 400), (15, "bbr", 400)]
)
def test_a_handshake_counts_until_its_end_has_sent_something(
    end: int, control: str, rtt_us: int
) -> None:
    """The end may be told of late: the other one's message has come by then. HyStart measures by
    the least round trip, BBR's first pace is a window a round trip."""

    def took_ns(when: str) -> int:
        heard: list[int] = []
        other = 15 - end
        transport = f"{{congestion_control: {control}}}"
        spec = _spec(16, fabric="kind: fat-tree, k: 4", transport=transport)
        with groundwire.drive(spec, announced=False) as network:

            def tell(now: str) -> None:
                if now == when:
                    network.shook_hands(end, other, rtt_us, rtt_us)

            tell("early")
            network.send(other, end, 100)
            network.receive(other, end, 100)
            network.run(50_000)
            tell("late")
            network.send(end, other, 2_000_000)
            network.receive(end, other, 2_000_000, then=lambda: heard.append(network.now_ns))
            network.run(50_001)
            tell("too late")
            network.run()
        return heard[0]

    assert took_ns("early") == took_ns("late") != took_ns("never") == took_ns("too late")


def test_messages_of_one_tag_meet_in_the_order_of_posting() -> None:
    heard: list[str] = []
    with groundwire.drive(_spec(), announced=False) as network:
        for name in "ab":
            network.receive(0, 1, 100, tag=7, then=partial(heard.append, name))
        network.receive(0, 1, 200, tag=8, then=partial(heard.append, "c"))
        network.send(0, 1, 200, tag=8)
        network.send(0, 1, 100, tag=7)
        network.send(0, 1, 100, tag=7)
        network.run()
    assert heard == ["c", "a", "b"]


def test_mistakes_are_named() -> None:
    with groundwire.drive(_spec()) as network:
        network.send(0, 1, 100)
        network.receive(0, 1, 99)
        with pytest.raises(SimulationError, match="found 99 bytes at one end of a message from 0"):
            network.run()
    with groundwire.drive(_spec(4), pairs=[(0, 1), (2, 3)]) as network:
        network.send(0, 2, 100)
        with pytest.raises(SimulationError, match="from 0 to 2, which are no pair"):
            network.run()
        with pytest.raises(SimulationError):
            network.run()
    with groundwire.drive(_spec()) as network:
        network.schedule(1, network.run)
        with pytest.raises(ValueError, match="a callback runs the engine"):
            network.run()


def test_what_a_callback_raises_comes_through_and_the_engine_ends() -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), groundwire.drive(_spec()) as network:
        network.schedule(1, fail)
        network.run()
    with pytest.raises(SimulationError, match="it has ended"):
        network.run()


def test_what_is_not_followed_is_refused() -> None:
    roce = _spec(
        operation="{kind: all_reduce, size: 1MB}",
        transport="{kind: roce}",
        queue="{kind: lossless}",
        collectives=_PROGRAMS % "ring",
    )
    with pytest.raises(groundwire.PredictorError, match="not announced do not go over RoCE"):
        groundwire.drive(roce, announced=False)
