"""The arithmetic of `scale: auto`; needs no root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.models.alpha_beta import idle_times_ns
from emulator.native.scaling import (
    ACKS_PER_PACKET,
    UTILISATION,
    PacketRateCalibration,
    ScaleChoice,
    factor_for,
    needed_packet_hops,
    timer_scale,
)
from emulator.native.trust import MachineTrust, TrustedRate, stored_trust, this_machine
from emulator.switches.stock_switch import pause_scale
from tests.native.native_fabrics import fat_tree, flat
from topologies.spec.spec import Spec, parse_dict


@given(needed=st.floats(1, 1e12), capacity=st.floats(1e4, 1e8))
def test_the_factor_is_the_smallest_step_that_fits(needed: float, capacity: float) -> None:
    wanted = needed / (UTILISATION * capacity)
    if wanted > 10**6:
        with pytest.raises(ValueError, match="at most 1000000 is possible"):
            factor_for(needed, capacity)
        return
    factor = factor_for(needed, capacity)
    assert str(factor)[0] in "125"
    assert set(str(factor)[1:]) <= {"0"}
    assert factor >= wanted
    assert factor == 1 or factor < 2.5 * wanted + 1e-9 * wanted


def test_a_machine_that_forwards_nothing() -> None:
    with pytest.raises(ValueError, match="forwards nothing"):
        factor_for(1e6, 0)


def test_what_a_star_needs() -> None:
    # 4 hosts at 1 Gb/s, 1538 bytes a packet on the wire, 2 links each, half as many ACKs.
    needed = needed_packet_hops(flat(4), ["h0", "h1", "h2", "h3"])
    assert needed == pytest.approx(4 * 1e9 / (8 * 1538) * 2 * (1 + ACKS_PER_PACKET))


def test_only_hosts_with_ranks_count_and_far_ones_cost_more() -> None:
    tree = fat_tree()
    near = needed_packet_hops(tree, ["h0", "h1"])
    far = needed_packet_hops(tree, ["h0", "h15"])
    assert far == pytest.approx(3 * near)  # six links instead of two
    assert needed_packet_hops(tree, ["h0", "h0"]) == 0


def test_lossless_queues_need_a_link_that_is_as_slow_as_their_pauses() -> None:
    queue: dict[str, Any] = {"kind": "lossless", "xoff": "50KB", "xon": "40KB"}
    fast = flat(3, rate="100Gbps", delay="500ns", **queue)
    # A pause frame takes 507 ns there; the controller is given a millisecond.
    assert pause_scale(fast) == pytest.approx(1e6 / 506.72, rel=0.01)
    assert factor_for(1, 1e6, pause_scale(fast)) == 2000
    assert pause_scale(flat(3, rate="20Mbps", delay="5ms", **queue)) == 1
    assert pause_scale(flat(3)) == 1


def test_the_choice_is_stated() -> None:
    choice = ScaleChoice(200, 2.4e7, PacketRateCalibration(4e5, 16, 0.5))
    assert str(choice) == (
        "scale 200: the target fabric may carry 2.4e+07 packet-hops/s, this machine forwards "
        "4e+05 with all 16 ranks busy, of which 30% are used (an estimate; `groundwire doctor "
        "--measure` finds the right one)"
    )
    assert choice.as_dict()["machine_packet_hops_per_s"] == 400_000
    slower = ScaleChoice(2000, 2.4e7, PacketRateCalibration(4e5, 16, 0.5), 1973.4)
    assert str(slower).endswith("the right one); pauses that are in time need 1.97e+03")
    assert str(ScaleChoice(5, 1.0, None)) == "scale 5, as the spec says"


def test_what_was_measured_is_stated_instead_of_a_calibration() -> None:
    choice = ScaleChoice(10, 3.9e5, None, 1.0, 3.2, 6.64e4)
    assert str(choice) == (
        "scale 10: the target fabric may carry 3.9e+05 packet-hops/s, this machine was right with "
        "6.64e+04 (doctor --measure), of which 50% are used; timers that are late need 3.2"
    )
    assert choice.as_dict()["trusted_packet_hops_per_s"] == 66_400


def _benchmark(rate: str, size: str) -> Spec:
    return parse_dict(
        {
            "name": "short",
            "fabric": {"kind": "flat", "hosts": 2, "link": {"rate": rate, "delay": 0}},
            "workload": {
                "kind": "collectives",
                "ranks": 2,
                "operations": [{"kind": "all_reduce", "size": size}],
            },
        }
    )


def test_timers_slow_short_collectives_down() -> None:
    """A millisecond in advance is 2% of 50 ms. 1 MB at 1 Gb/s takes 8 ms, at 10 Mb/s 0.8 s."""
    assert timer_scale(idle_times_ns(_benchmark("1Gbps", "1MB")), 10**6) == pytest.approx(
        6, rel=0.1
    )
    assert timer_scale(idle_times_ns(_benchmark("10Mbps", "1MB")), 10**6) == 1
    assert timer_scale(idle_times_ns(_benchmark("1Gbps", "1MB")), 0) == 1, "netem keeps no tokens"


def test_trust_is_of_the_setting_that_did_least(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stored_trust() is None
    rates = tuple(
        TrustedRate("droptail", "rate-only", mtu, 2, 10**8, 0.01, hops)
        for mtu, hops in ((1500, 9e4), (9000, 8e4))
    )
    store = tmp_path / "groundwire" / "native-trust.json"
    store.parent.mkdir()
    store.write_text(json.dumps(MachineTrust(this_machine(), 1, rates).as_dict()))
    found = stored_trust()
    assert found == MachineTrust(this_machine(), 1, rates)
    assert found.packet_hops_per_s("rate-only") == 8e4
    assert found.packet_hops_per_s("stock") is None
    # The figures of another machine, or damaged ones, say nothing of this one.
    store.write_text(json.dumps(MachineTrust("another", 1, rates).as_dict()))
    assert stored_trust() is None
    store.write_text("{")
    assert stored_trust() is None


def test_one_setting_that_was_never_right_leaves_nothing_to_trust() -> None:
    rates = (
        TrustedRate("droptail", "rate-only", 1500, 2, 10**8, 0.01, 9e4),
        TrustedRate("droptail", "rate-only", 1500, 16, 0, 1.0, 0.0),
    )
    assert MachineTrust("here", 1, rates).packet_hops_per_s("rate-only") is None
