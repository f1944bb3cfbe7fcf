"""Collectives in flight together, followed message by message."""

from __future__ import annotations

import pytest

from analysis.predict.engines.message_costs import Effects
from analysis.predict.interface import PredictorError
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.planned_run import predict_workload
from analysis.predict.scenario import Act, Compute, GroupedCall, PostCall, Scenario, WaitForCall
from analysis.predict.setting import setting_of_spec
from collectives.algorithms import algorithm
from collectives.call import CollectiveCall
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from collectives.schedule.gloo import GLOO
from collectives.schedule.schedule import Schedule
from collectives.start_order import CollectiveOrder
from topologies.spec.spec import parse_spec

SPEC = """
name: together
fabric: {kind: flat, hosts: 4, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
workload: {kind: collectives, ranks: 4, operations: [{kind: barrier}]}
"""
SETTING = setting_of_spec(parse_spec(SPEC))
RANKS = tuple(range(4))
LARGE, SMALL = 8_000_000, 80_000


def call(size_bytes: int, chunking: Chunking | None = None) -> CollectiveCall:
    """An all-reduce; Gloo's own without a chunking."""
    found: Schedule = GLOO
    if chunking is not None:
        shape = Shape(Kind.ALL_REDUCE, size_bytes, 4, 4)
        found = cut(shape, algorithm("ring"), chunking)
    return CollectiveCall(Kind.ALL_REDUCE, size_bytes, RANKS, schedule=found)


def durations(
    calls: list[CollectiveCall], acts: list[Act], predictor: Flow | AlphaBeta
) -> list[float]:
    """The duration of each call, where all ranks do the same."""
    grouped = [GroupedCall(one, "all") for one in calls]
    return predictor.run(Scenario(SETTING, grouped, dict.fromkeys(RANKS, acts))).durations_ns()


@pytest.mark.parametrize("predictor", [Flow(), AlphaBeta()], ids=["flow", "alpha-beta"])
@pytest.mark.parametrize("chunking", [Chunking(), Chunking(chunks=8, in_flight=2)])
def test_one_after_the_other_each_takes_what_it_takes_alone(
    predictor: Flow | AlphaBeta, chunking: Chunking
) -> None:
    one = call(LARGE, chunking)
    alone = predictor.predict(SETTING, one)
    acts: list[Act] = [PostCall(0), WaitForCall(0), Compute(1e6), PostCall(1), WaitForCall(1)]
    assert durations([one, one], acts, predictor) == pytest.approx([alone, alone], rel=1e-6)


def test_gloos_own_take_what_they_take_alone() -> None:
    own = call(LARGE)
    alone = Flow().predict(SETTING, own)
    assert durations([own], [PostCall(0)], Flow()) == pytest.approx([alone], rel=0.01)


def ended(order: CollectiveOrder, priorities: tuple[int, int, int]) -> list[int]:
    """Three collectives that are posted together, by when they end."""
    calls = [
        call(LARGE, Chunking(chunks=8, in_flight=1, order=order, priority=priority))
        for priority in priorities
    ]
    taken = durations(calls, [PostCall(0), PostCall(1), PostCall(2)], Flow())
    return sorted(range(3), key=lambda i: taken[i])


def test_collectives_end_in_the_order_in_which_slots_are_given() -> None:
    assert ended(CollectiveOrder.FIFO, (0, 0, 0)) == [0, 1, 2]
    # The collective that has started first alone goes on until the ranks have agreed on the others.
    assert ended(CollectiveOrder.LIFO, (0, 0, 0)) == [2, 1, 0]
    assert ended(CollectiveOrder.PRIORITY, (0, 1, 2)) == [2, 1, 0]
    assert ended(CollectiveOrder.PRIORITY, (0, 2, 1)) == [1, 2, 0]


def test_a_small_one_waits_behind_a_large_one_unless_it_goes_first() -> None:
    def small(order: CollectiveOrder) -> float:
        calls = [
            call(size, Chunking(chunks=16, in_flight=2, order=order)) for size in (LARGE, SMALL)
        ]
        return durations(calls, [PostCall(0), Compute(1e5), PostCall(1)], Flow())[1]

    alone = Flow().predict(SETTING, call(LARGE, Chunking(chunks=16, in_flight=2)))
    assert small(CollectiveOrder.FIFO) > 0.8 * alone
    assert small(CollectiveOrder.LIFO) < 0.4 * alone


def test_ranks_that_wait_for_what_nobody_posts_are_refused() -> None:
    acts = {rank: [PostCall(0)] for rank in RANKS[1:]}
    scenario = Scenario(SETTING, [GroupedCall(call(SMALL, Chunking()), "all")], acts)
    with pytest.raises(PredictorError, match="rank 0 waits for ever"):
        Flow().run(scenario)


def test_an_iteration_knows_that_its_collectives_are_programs() -> None:
    """By a program that takes much longer than Gloo's own."""
    text = """
name: whole
fabric: {kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
workload: {kind: dlrm, ranks: 8, iterations: 1, overlap: false}
compute: {device: none}
"""
    programs = "collectives: {backend: programs, all_reduce: {algorithm: tree}}\n"

    def iteration_ns(spec_text: str) -> int:
        spec = parse_spec(spec_text)
        return predict_workload(spec, setting_of_spec(spec), Flow()).iterations[0].duration_ns

    assert iteration_ns(text + programs) > 1.3 * iteration_ns(text)


@pytest.mark.parametrize("name", ["ring", "double-binary-tree", "direct"])
def test_on_one_switch_alpha_beta_says_what_flow_says(name: str) -> None:
    """There hosts' ports are all that is shared, and both serve in the order of arrival."""
    shape = Shape(Kind.ALL_REDUCE, LARGE, 4, 4)
    schedule = cut(shape, algorithm(name), Chunking(chunks=8, in_flight=2))
    one = CollectiveCall(Kind.ALL_REDUCE, LARGE, RANKS, schedule=schedule)
    assert AlphaBeta().predict(SETTING, one) == pytest.approx(Flow().predict(SETTING, one), 1e-9)


def test_where_nothing_is_in_the_way_each_of_two_rounds_takes_one_message() -> None:
    """A direct all-reduce: an invitation, then 224 segments of a quarter of the data, the last of
    them stored and forwarded once."""
    shape = Shape(Kind.ALL_REDUCE, LARGE, 4, 4)
    schedule = cut(shape, algorithm("direct"), Chunking())
    one = CollectiveCall(Kind.ALL_REDUCE, LARGE, RANKS, schedule=schedule)
    bare = AlphaBeta.apart(Effects(acknowledgements=False))
    (found,) = bare.run(Scenario.of_one(SETTING, one)).durations_ns()
    ns_per_byte, delay_ns = 8 / 100, 1_000
    wire = LARGE / 4 + 48 + 224 * 90
    message = (wire + 9038) * ns_per_byte + 2 * delay_ns
    assert found == pytest.approx(2 * (2 * 138 * ns_per_byte + 2 * delay_ns + message), abs=4)
