"""The arithmetic of `scale: auto`; needs no root."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_fabrics import fat_tree, flat

from emulator.scaling import (
    ACKS_PER_PACKET,
    UTILISATION,
    Calibration,
    ScaleChoice,
    factor_for,
    needed_packet_hops,
)
from emulator.stock_switch import pause_scale


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
    queue = {"kind": "lossless", "xoff": "50KB", "xon": "40KB"}
    fast = flat(3, rate="100Gbps", delay="500ns", **queue)
    # A pause frame takes 507 ns there; the controller is given a millisecond.
    assert pause_scale(fast) == pytest.approx(1e6 / 506.72, rel=0.01)
    assert factor_for(1, 1e6, pause_scale(fast)) == 2000
    assert pause_scale(flat(3, rate="20Mbps", delay="5ms", **queue)) == 1
    assert pause_scale(flat(3)) == 1


def test_the_choice_is_stated() -> None:
    choice = ScaleChoice(200, 2.4e7, Calibration(4e5, 16, 0.5))
    assert str(choice) == (
        "scale 200: the target fabric may carry 2.4e+07 packet-hops/s, this machine forwards "
        "4e+05 with all 16 ranks busy, of which 30% are used"
    )
    assert choice.as_dict()["machine_packet_hops_per_s"] == 400_000
    slower = ScaleChoice(2000, 2.4e7, Calibration(4e5, 16, 0.5), 1973.4)
    assert str(slower).endswith("are used; pauses that are in time need 1.97e+03")
    assert str(ScaleChoice(5, 1.0, None)) == "scale 5, as the spec says"
