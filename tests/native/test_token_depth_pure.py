"""How deep token buckets are; needs no root."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.native.kernel import native_arrangement
from emulator.network.blueprint import Blueprint
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import RateOnlyArrangement, tbf_options
from emulator.ports.token_depth import LATENESS_NS, spare_depth_bytes, token_depth_bytes
from emulator.switches.pause_controller import travel_ns
from emulator.switches.stock_switch import SwitchArrangement
from tests.native.native_fabrics import flat
from topologies.fabrics.fabric import headroom_bytes

_RATES = st.sampled_from(["10Mbps", "100Mbps", "1Gbps", "10Gbps"])
_QUEUES = st.sampled_from(
    [
        {"kind": "droptail", "buffer": "200KB"},
        {"kind": "dctcp", "k": "30KB"},
        {"kind": "red", "kmin": "20KB", "kmax": "80KB"},
        {"kind": "codel", "target": "1ms", "ce_threshold": "100us"},
    ]
)


@given(rate=_RATES, queue=_QUEUES, lateness_ns=st.integers(0, 10**7))
def test_a_bucket_makes_up_for_its_lateness_and_hides_little_from_its_queue(
    rate: str, queue: dict[str, Any], lateness_ns: int
) -> None:
    link = flat(2, rate=rate, **queue).links[0]
    port = link.port("s0")
    depth = token_depth_bytes(link, port.queue, lateness_ns)
    wanted = link.rate_bps * lateness_ns // (8 * 10**9)
    assert 0 <= depth <= wanted
    acts_at = {
        "droptail": 200_000,
        "dctcp": 30_000,
        "red": 20_000,
        "codel": link.rate_bps // 80_000,  # bytes of 100 us
    }[queue["kind"]]
    assert depth <= acts_at / 4
    assert depth == wanted or depth == acts_at // 4


@given(lateness_ns=st.integers(0, 10**7), spare=st.integers(-(10**6), 10**6))
def test_half_of_a_headrooms_rest_is_left_for_pauses(lateness_ns: int, spare: int) -> None:
    link = flat(2, rate="100Mbps").links[0]
    depth = spare_depth_bytes(link, lateness_ns, spare)
    assert 0 <= depth <= max(0, spare / 2)


def test_the_bucket_holds_a_frame_and_its_depth() -> None:
    link = flat(2, rate="100Mbps", mtu=1500).links[0]
    # TCA_TBF_BURST is the last attribute: four bytes of header, four of value.
    assert struct.unpack("=I", tbf_options(link, 4_000_000)[-4:]) == (1538,)
    assert struct.unpack("=I", tbf_options(link, 4_000_000, 12_500)[-4:]) == (14_038,)


@pytest.mark.parametrize("queue", [{}, {"kind": "dctcp"}, {"kind": "shared"}])
def test_the_native_kernel_makes_up_for_late_timers(queue: dict[str, Any]) -> None:
    arrangement = native_arrangement(flat(2, **queue))
    assert arrangement.lateness_ns in (LATENESS_NS, 0)  # 0: netem, whose clock is absolute
    assert (arrangement.lateness_ns == 0) == (arrangement.name == "netem")


def test_a_lossless_neighbours_headroom_pays_for_the_bucket() -> None:
    def allowed_ns(extra: int, lateness_ns: int) -> int:
        needs = headroom_bytes(flat(3, "10Mbps", delay="5ms").links[0])
        queue: dict[str, Any] = {
            "kind": "lossless",
            "xoff": "50KB",
            "xon": "40KB",
            "headroom": needs + extra,
        }
        fabric = flat(3, "10Mbps", delay="5ms", **queue)
        arrangement = SwitchArrangement(fabric, lateness_ns)
        contexts = Blueprint(fabric, arrangement, TcpSettings()).contexts
        plug, *_ = arrangement.plugs(contexts, Path)
        return plug.allowed_ns

    link = flat(3, "10Mbps", delay="5ms").links[0]
    # Without room to spare there is no depth, and a pause may take what its frame takes.
    assert allowed_ns(0, LATENESS_NS) == pytest.approx(travel_ns(link), abs=1_000)
    # With 10 KB (8 ms) the bucket takes its millisecond, and pauses have the rest.
    plenty = allowed_ns(10_000, 0)
    assert plenty - allowed_ns(10_000, LATENESS_NS) == pytest.approx(LATENESS_NS, abs=1_000)


def test_plain_arrangements_are_as_shallow_as_they_were() -> None:
    """In virtual time no timer is late, and stock queues are compared with exact ones there."""
    assert RateOnlyArrangement().lateness_ns == 0
    assert SwitchArrangement(flat(2, kind="shared")).lateness_ns == 0
