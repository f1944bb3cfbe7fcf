"""The calibration, on this machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from emulator.native.kernel import can_watch_ports
from emulator.native.scaling import PacketRateCalibration, calibrate, choose_scale
from emulator.native.trust import link_error
from tests.native.native_fabrics import fat_tree, flat, network
from tests.native.own_pace import on_an_idle_machine
from topologies.spec.spec import parse_dict


def test_a_calibration_is_short_and_finds_a_plausible_capacity() -> None:
    fabric = fat_tree(rate="100Gbps")
    hosts = [host.name for host in fabric.hosts]

    def attempt() -> tuple[float, float, PacketRateCalibration]:
        start = time.monotonic()
        with network(fabric):
            bring_up_s = time.monotonic() - start
        start = time.monotonic()
        found = calibrate(fabric, hosts)
        return time.monotonic() - start, bring_up_s, found

    # Besides bringing the fabric up and down: half a second of traffic, and forking its ranks.
    took_s, bring_up_s, found = on_an_idle_machine(attempt, lambda of: of[0] < 5 + 10 * of[1])
    assert took_s < 5 + 10 * bring_up_s
    assert found.ranks == 16
    # A software router moves between ten thousand and a hundred million packets a second.
    assert 1e4 < found.packet_hops_per_s < 1e8


def test_a_longer_path_does_not_change_what_a_hop_costs() -> None:
    """The unit is packet-hops, so capacity is about the same over two links or over six."""
    # Other work on the machine may come and go between the two, but not five times in a row.
    ratios = []
    for _ in range(5):
        near = calibrate(flat(4, rate="100Gbps"), ["h0", "h1", "h2", "h3"]).packet_hops_per_s
        far = calibrate(fat_tree(rate="100Gbps"), ["h0", "h4", "h8", "h12"]).packet_hops_per_s
        ratios.append(near / far)
        if 0.2 < near / far < 5:
            break
    assert 0.2 < ratios[-1] < 5, ratios


def test_auto_slows_a_fast_fabric_down_and_leaves_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where nobody has measured this machine

    def spec(rate: str, scale: object) -> dict[str, object]:
        return {
            "name": "calibrated",
            "fabric": {"kind": "flat", "hosts": 2, "link": {"rate": rate, "delay": 0}},
            "workload": {
                "kind": "collectives",
                "ranks": 2,
                "operations": [{"kind": "all_reduce", "size": "1MB"}],
            },
            "scale": scale,
        }

    fast = choose_scale(parse_dict(spec("400Gbps", "auto")), ())
    slow = choose_scale(parse_dict(spec("10Mbps", "auto")), ())
    fixed = choose_scale(parse_dict(spec("400Gbps", 7)), ())
    assert fast.factor > 10
    assert slow.factor == 1
    assert (fixed.factor, fixed.calibration) == (7, None)


@pytest.mark.skipif(not can_watch_ports(), reason="this kernel has no eBPF classifiers")
def test_links_that_are_right_are_found_to_be() -> None:
    """20 Mb/s is nothing to any machine: 1,600 packets of 1,538 B a second and host."""

    def attempt() -> tuple[float, float]:
        return link_error(flat(2, rate="20Mbps"))

    error, forwarded = on_an_idle_machine(attempt, lambda found: found[0] <= 0.03)
    assert error <= 0.03
    # Two hosts, two links each, and half as many acknowledgements.
    assert forwarded == pytest.approx(2 * 2 * 1.5 * 20e6 / (8 * 1538), rel=0.05)
