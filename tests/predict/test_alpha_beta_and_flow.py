"""alpha-beta and flow: hand-calculated cases, agreement where they must agree, monotonicity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.predict.engines.drawn_hops import HashedNextHop
from analysis.predict.engines.paths import paths_of
from analysis.predict.interface import Predictor, PredictorError, load_predictor
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow, FlowIdealEcmp
from collectives.call import CollectiveCall, CollectiveError
from collectives.kinds import KINDS
from tests.predict.settings import FABRICS, make_call, make_setting

_SETTINGS = {kind: make_setting(kind) for kind in FABRICS}


def test_one_message_takes_what_its_packets_take() -> None:
    """Two hops of 100 Gb/s and 500 ns: RECV_READY there (2 x 500 ns, 138 bytes twice), then 895
    packets of the message back, the last one stored and forwarded once more."""
    setting = make_setting("flat")
    call = CollectiveCall("send_recv", 8_000_000, tuple(range(8)), root=0, peer=1)
    ns_per_byte = 8 / 100
    notification = 2 * 500 + 2 * 138 * ns_per_byte
    wire = 8_000_048 + 895 * 90
    expected = notification + wire * ns_per_byte + 9038 * ns_per_byte + 2 * 500
    assert AlphaBeta().predict(setting, call) == pytest.approx(expected, abs=1)
    assert Flow().predict(setting, call) == pytest.approx(expected, abs=1)


def test_a_barrier_is_rounds_of_rendezvous() -> None:
    """Each round of three: RECV_READY, then a bare preamble, 1000 ns and two 138-byte frames each,
    behind the two notifications that leave the port before."""
    frame = 138 * 8 / 100
    expected = 3 * (2 * (1000 + 2 * frame))
    found = AlphaBeta().predict(_SETTINGS["flat"], make_call(_SETTINGS["flat"], "barrier", 0))
    assert found == pytest.approx(expected, abs=3 * 2 * frame)
    assert found >= expected - 1e-6


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size_bytes", [4_000, 4_000_000])
def test_events_and_the_recurrence_agree_where_no_link_is_shared(
    kind: str, size_bytes: int
) -> None:
    """Two implementations of the same protocol: event by event, and as a vector recurrence."""
    setting = _SETTINGS["flat"]
    call = make_call(setting, kind, size_bytes)
    by_events = Flow().predict(setting, call)
    assert by_events == pytest.approx(AlphaBeta().predict(setting, call), rel=0.01)


@pytest.mark.parametrize("predictor", [AlphaBeta(), Flow(), FlowIdealEcmp()])
@pytest.mark.parametrize("fabric", FABRICS)
def test_every_kind_has_an_answer_and_is_not_faster_than_its_bytes(
    predictor: Predictor, fabric: str
) -> None:
    setting = _SETTINGS[fabric]
    links_of = setting.fabric.links_of
    for kind in KINDS:
        call = make_call(setting, kind, 0 if kind == "barrier" else 1_000_000)
        duration = predictor.predict(setting, call)
        sent: dict[int, int] = {}
        for post in call.posts(setting.seed):
            for source, size in zip(post.source, post.size_bytes, strict=True):
                sent[int(source)] = sent.get(int(source), 0) + int(size)
        ports = max(len(links_of[host]) for host in setting.hosts)
        assert duration >= max(sent.values()) * 8 / 100 / ports
        assert duration > 0


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(list(FABRICS)),
    st.sampled_from([k for k in KINDS if k not in ("barrier", "broadcast")]),
    st.integers(1_000, 2_000_000),
    st.integers(1_000, 2_000_000),
)
def test_more_bytes_take_longer(fabric: str, kind: str, one: int, other: int) -> None:
    """Up to a packet's time: Gloo cuts segments, so where they end shifts by a packet."""
    setting = _SETTINGS[fabric]
    small, large = sorted((one, other))
    for predictor in (AlphaBeta(), Flow()):
        less = predictor.predict(setting, make_call(setting, kind, small))
        more = predictor.predict(setting, make_call(setting, kind, large))
        assert less <= more * 1.05 + 2_000


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "barrier"])
@pytest.mark.parametrize("fabric", FABRICS)
def test_twice_the_rate_is_faster_but_not_by_more_than_half(fabric: str, kind: str) -> None:
    slow, fast = make_setting(fabric, rate="50Gbps"), _SETTINGS[fabric]
    for predictor in (AlphaBeta(), Flow()):
        before = predictor.predict(slow, make_call(slow, kind, 1_000_000))
        after = predictor.predict(fast, make_call(fast, kind, 1_000_000))
        assert before / 2 - 1 <= after < before


@pytest.mark.parametrize("predictor", [AlphaBeta(), Flow()])
def test_longer_links_take_longer(predictor: Predictor) -> None:
    far = make_setting("fat-tree", delay="5us")
    for kind in KINDS:
        call = make_call(far, kind, 0 if kind == "barrier" else 100_000)
        assert predictor.predict(far, call) > predictor.predict(_SETTINGS["fat-tree"], call)


def test_collisions_never_help() -> None:
    for fabric in ("fat-tree", "leaf-spine"):
        setting = _SETTINGS[fabric]
        for kind in ("all_to_all", "permutation"):
            call = make_call(setting, kind, 1_000_000)
            hashed, ideal = Flow().predict(setting, call), FlowIdealEcmp().predict(setting, call)
            assert hashed >= ideal * 0.999


def test_flow_knows_oversubscription_and_alpha_beta_does_not() -> None:
    """Four hosts a leaf behind one spine link: half of an all-to-all's bytes share it."""
    setting = make_setting(fabric="{kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 4, %s}")
    call = make_call(setting, "all_to_all", 8_000_000)
    across = 4 * 4 * 1_000_000 * 8 / 100
    assert Flow().predict(setting, call) > across
    assert AlphaBeta().predict(setting, call) < across


def test_a_thousand_ranks_of_all_to_all_take_seconds() -> None:
    setting = make_setting(fabric="{kind: fat-tree, k: 16, %s}")
    duration = Flow().predict(setting, make_call(setting, "all_to_all", 8_192_000))
    assert duration > 1023 * 8000 * 8 / 100


@pytest.mark.parametrize("predictor", [Flow(), FlowIdealEcmp()])
@pytest.mark.parametrize("ranks", [63, 64, 65])
def test_one_rank_more_is_no_jump(ranks: int, predictor: Predictor) -> None:
    """An all-to-all of 63 ranks has 3,906 messages, of 64 ranks 4,032."""
    setting = make_setting(fabric="{kind: fat-tree, k: 8, %s}")
    some, more = (
        predictor.predict(setting, make_call(setting, "all_to_all", 131_072 * count, count))
        for count in (ranks, ranks + 1)
    )
    assert 0.95 * some < more < 1.05 * some


def test_the_kernels_hash_decides_where_ports_are_known() -> None:
    from topologies.routing.ecmp_hash import FiveTuple as TcpFlow
    from topologies.routing.ecmp_hash import flow_path

    drawn = make_setting("fat-tree")
    known = type(drawn)(
        drawn.fabric, drawn.routes, drawn.hosts, seed=7, ports={(0, 15): (40001, 50123)}
    )
    by_name = known.fabric.by_name
    for source, destination, ports in ((0, 15, (40001, 50123)), (15, 0, (50123, 40001))):
        a, b = known.hosts[source], known.hosts[destination]
        flow = TcpFlow(by_name[a].address, by_name[b].address, *ports)
        expected = [hop.link for hop in flow_path(known.routes, a, b, flow, 7)]
        found = paths_of(known).hashed([source], [destination])[0]
        assert [int(link) // 2 for link in found] == expected


def test_drawn_paths_use_all_equal_links() -> None:
    setting = make_setting(fabric="{kind: leaf-spine, leaves: 4, spines: 4, hosts_per_leaf: 8, %s}")
    source, destination = np.divmod(np.arange(32 * 32), 32)
    across = source // 8 != destination // 8
    paths = paths_of(setting).follow(
        source[across], destination[across], HashedNextHop(setting.seed)
    )
    load = np.bincount(paths[:, 1])
    used = load[load > 0]
    assert len(used) == 16 and used.max() < 2 * used.min()


def test_unknown_predictors_and_parameters_say_what_exists() -> None:
    with pytest.raises(PredictorError, match=r"unknown predictor 'flows'.*alpha-beta.*flow"):
        load_predictor("flows")
    with pytest.raises(PredictorError, match="refused its parameters"):
        load_predictor("alpha-beta", {"alpha": 1})
    with pytest.raises(PredictorError, match="bandwidth_efficiency"):
        load_predictor("flow", {"bandwidth_efficiency": 0})
    with pytest.raises(PredictorError, match="finite"):
        load_predictor("flow", {"hop_overhead_ns": float("nan")})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "allreduce"}, "unknown collective 'allreduce'.*all_reduce"),
        ({"size_bytes": -1}, "size_bytes"),
        ({"ranks": (1, 1)}, "distinct"),
        ({"ranks": ()}, "distinct"),
        ({"root": 2}, "root 2"),
        ({"peer": 9}, "peer 9"),
        ({"degree": 5}, "degree 5"),
    ],
)
def test_impossible_calls_are_refused(fields: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"kind": "all_reduce", "size_bytes": 4, "ranks": (0, 1)}
    with pytest.raises(CollectiveError, match=message):
        CollectiveCall(**(good | fields))  # type: ignore[arg-type]


def test_calibrated_parameters_do_what_they_say() -> None:
    setting = _SETTINGS["flat"]
    ring = make_call(setting, "all_reduce", 8_000_000)
    ideal = AlphaBeta().predict(setting, ring)
    assert AlphaBeta(bandwidth_efficiency=0.5).predict(setting, ring) == pytest.approx(
        2 * ideal, rel=0.05
    )
    assert AlphaBeta(congestion_factor=2).predict(setting, ring) == ideal
    exchange = make_call(setting, "all_to_all", 8_000_000)
    ideal = AlphaBeta().predict(setting, exchange)
    assert AlphaBeta(congestion_factor=1.5).predict(setting, exchange) == pytest.approx(
        1.5 * ideal, rel=0.02
    )
    barrier = make_call(setting, "barrier", 0)
    extra = AlphaBeta(hop_overhead_ns=100).predict(setting, barrier) - AlphaBeta().predict(
        setting, barrier
    )
    assert extra == pytest.approx(3 * 2 * 2 * 100)
