"""ns-3 as a predictor: packets on the wire against the models that know only flows."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from analysis.predict.interface import PredictorError, load_predictor
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.models.ns3 import _describe
from tests.predict.settings import make_call, make_setting

needs_ns3 = pytest.mark.skipif(
    find_spec("ns") is None, reason="needs the package ns3 (500 MB): pip install 'groundwire[ns3]'"
)


@needs_ns3
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "size_bytes", "tolerance"),
    [("send_recv", 8_000_000, 0.002), ("all_reduce", 1_000_000, 0.03), ("barrier", 0, 0.02)],
)
def test_ns3_and_alpha_beta_agree_without_contention(
    kind: str, size_bytes: int, tolerance: float
) -> None:
    setting = make_setting("flat")
    call = make_call(setting, kind, size_bytes)
    packets = load_predictor("ns3").predict(setting, call)
    assert packets == pytest.approx(AlphaBeta().predict(setting, call), rel=tolerance)


@needs_ns3
@pytest.mark.long
def test_ns3_takes_the_paths_that_flow_knows() -> None:
    """An all-to-all over hashed spines: the busiest link decides in both."""
    setting = make_setting("leaf-spine")
    call = make_call(setting, "all_to_all", 1_000_000)
    packets = load_predictor("ns3").predict(setting, call)
    # Windows that shrink, and who is first at a port, are ns-3's own.
    assert Flow().predict(setting, call) == pytest.approx(packets, rel=0.25)


@needs_ns3
def test_queues_that_it_has_not_are_refused() -> None:
    setting = make_setting(
        fabric="{kind: flat, hosts: 4, queue: {kind: codel}, %s}",
    )
    with pytest.raises(PredictorError, match="ns3 has no queue codel, only droptail and dctcp"):
        load_predictor("ns3").predict(setting, make_call(setting, "barrier", 0))


def test_without_the_package_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.predict.models.ns3.find_spec", lambda name: None)
    with pytest.raises(PredictorError, match=r"pip install 'groundwire\[ns3\]'"):
        load_predictor("ns3")


def test_the_description_has_every_message_and_a_way_for_every_pair() -> None:
    setting = make_setting("fat-tree")
    call = make_call(setting, "all_to_all", 160_000)
    description = _describe(setting, call)
    assert len(description["messages"]) == 16 * 15
    assert len(description["pairs"]) == 16 * 15 // 2
    operations = [kind for program in description["programs"] for kind, _ in program]
    assert [operations.count(kind) for kind in range(4)] == [240] * 4
    for pair in description["pairs"]:
        hops = {len(end["routes"]) for end in (pair["low"], pair["high"])}
        assert hops <= {1, 3, 5}
    addresses = [end["address"] for p in description["pairs"] for end in (p["low"], p["high"])]
    assert len(set(addresses)) == len(addresses)
