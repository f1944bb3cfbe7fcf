"""The cost of messages over RoCE: closed forms of headers, credits and acknowledgements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.interface import Setting, Transport
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.transports.roce import RoceCarrier
from analysis.predict.transports.roce.wire import ACK_BYTES, CREDIT_BYTES, RoceWire
from collectives.algorithms import algorithm
from collectives.call import CollectiveCall
from collectives.chunking import cut
from collectives.kinds import Kind, Shape
from tests.predict.settings import make_setting
from topologies.spec.transports.roce.section import RoceTransport

PATH_MTUS = (256, 512, 1024, 2048, 4096)


def roce(kind: str = "flat", path_mtu: int = 4096, rate: str = "100Gbps") -> Setting:
    setting = make_setting(kind, rate=rate, mtu=4200)
    return replace(
        setting,
        transport=Transport(
            carrier=RoceCarrier(
                RoceTransport.model_validate({"kind": "roce", "path_mtu": path_mtu})
            )
        ),
    )


def program(kind: str, name: str, size_bytes: int, ranks: int) -> CollectiveCall:
    shape = Shape(Kind(kind), size_bytes, ranks, 4)
    found = cut(shape, algorithm(name))
    return CollectiveCall(Kind(kind), size_bytes, tuple(range(ranks)), 4, schedule=found)


@pytest.mark.parametrize(("path_mtu", "gbps"), [(4096, 98.04), (1024, 92.59)])
def test_what_headers_leave_of_a_link(path_mtu: int, gbps: float) -> None:
    assert RoceWire(path_mtu).goodput_bps(100_000_000_000) / 1e9 == pytest.approx(gbps, abs=0.005)


@given(size=st.integers(1, 3_000_000), path_mtu=st.sampled_from(PATH_MTUS))
def test_packets_of_a_message_add_up(size: int, path_mtu: int) -> None:
    """Against packets counted one by one; and a message that is cut has the same bytes."""
    wire = RoceWire(path_mtu)
    frames = []
    for begin in range(0, size, path_mtu):
        payload = min(path_mtu, size - begin)
        # Ethernet's 14 and FCS 4, preamble 8, gap 12; IPv4, UDP, BTH, ICRC.
        frames.append(38 + 20 + 8 + 12 + payload + -payload % 4 + 4)
    total = sum(frames) + 16 + 4
    assert wire.packets(size) == len(frames)
    assert wire.data_bytes(size) == total
    full, full_bytes, rest_bytes = wire.cut(size)
    assert full * full_bytes + rest_bytes == pytest.approx(total)
    assert full == size // path_mtu


@pytest.mark.parametrize("predictor", [Flow(), AlphaBeta()])
@pytest.mark.parametrize("path_mtu", [1024, 4096])
def test_one_message_takes_a_credit_its_bytes_and_an_acknowledgement(
    predictor: Flow | AlphaBeta, path_mtu: int
) -> None:
    """A broadcast of two ranks, over two links of 100 Gb/s and 500 ns: 0.08 ns a byte."""
    size = 4_000_000
    wire = RoceWire(path_mtu)
    last = size % path_mtu or path_mtu
    frame = last + 82 + 4

    def ns(count: float) -> float:
        return count * 0.08

    credit, ack = (2 * (ns(each) + 500) for each in (CREDIT_BYTES, ACK_BYTES))
    data = ns(float(wire.data_bytes(size))) + ns(frame) + 1_000
    took = predictor.predict(roce(path_mtu=path_mtu), program("broadcast", "direct", size, 2))
    assert took == pytest.approx(credit + data + ack, rel=5e-4)


@pytest.mark.parametrize("predictor", [Flow(), AlphaBeta()])
@pytest.mark.parametrize(
    ("kind", "name", "factor"),
    [
        ("all_reduce", "ring", 14 / 8),
        ("all_reduce", "direct", 14 / 8),
        ("all_reduce", "halving-doubling", 14 / 8),
        ("all_to_all", "direct", 7 / 8),
    ],
)
def test_long_collectives_approach_what_headers_leave(
    predictor: Flow | AlphaBeta, kind: str, name: str, factor: float
) -> None:
    size = 16 << 20
    limit_ns = factor * size * 8 / RoceWire(4096).goodput_bps(100_000_000_000) * 1e9
    took = predictor.predict(roce(), program(kind, name, size, 8))
    assert limit_ns < took < 1.1 * limit_ns


def test_only_programs_go_over_roce() -> None:
    setting = roce()
    tcp = replace(setting, transport=Transport())
    own = CollectiveCall(Kind.ALL_REDUCE, 1 << 20, tuple(range(8)), 4)
    ring = program("all_reduce", "ring", 1 << 20, 8)
    for predictor in (Flow(), AlphaBeta()):
        assert predictor.predict(setting, own) == predictor.predict(tcp, own)
        assert predictor.predict(setting, ring) != predictor.predict(tcp, ring)


def test_faster_links_and_longer_packets_never_take_longer() -> None:
    call = program("all_reduce", "ring", 1 << 20, 8)
    by_mtu = [Flow().predict(roce(path_mtu=mtu), call) for mtu in PATH_MTUS]
    assert np.all(np.diff(by_mtu) < 0)
    rates = ("100Gbps", "400Gbps", "800Gbps")
    assert np.all(np.diff([Flow().predict(roce(rate=rate), call) for rate in rates]) < 0)
