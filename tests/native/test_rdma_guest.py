"""RDMA devices of a fabric in a kernel: made with it, gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.linux.netlink import NetlinkError
from emulator.linux.rdma_netlink import remove_rdma_device
from emulator.linux.soft_roce import SoftRoce, soft_roce
from emulator.network.network import Network, NetworkOptions
from emulator.rdma.congestion import configure, read_rates
from emulator.transports.roce.devices import devices_by, make_devices
from topologies.fabrics.build import build_fabric
from topologies.routing.routes import compute_routes
from topologies.spec.spec import parse_spec
from topologies.spec.transports.roce.device import device_settings
from topologies.spec.transports.roce.section import RoceTransport

pytestmark = pytest.mark.guest

_CLASS = Path("/sys/class/infiniband")
_SPEC = """
name: rdma
fabric: {kind: flat, hosts: 3, link: {rate: 100Gbps, delay: 1us, mtu: 4200}}
workload: {kind: collectives, ranks: 2, operations: [{kind: barrier}]}
"""


def _devices() -> set[str]:
    return {path.name for path in _CLASS.iterdir()}


def _network() -> Network:
    fabric = build_fabric(parse_spec(_SPEC).fabric)
    return Network(
        fabric,
        compute_routes(fabric),
        NetworkOptions(set_up=devices_by(RoceTransport(kind="roce"))),
    )


def test_each_port_of_a_host_has_a_device_while_the_fabric_is_up() -> None:
    with Network(_network().fabric, _network().routes, NetworkOptions()) as without:
        assert not without.devices
        assert not _CLASS.exists()  # RDMA starts when somebody asks for it
    with _network() as live:
        hosts = [host.name for host in live.fabric.hosts]
        assert list(live.devices) == hosts
        assert all(len(live.devices[host]) == 1 for host in hosts)
        assert _devices() == {name for names in live.devices.values() for name in names}
    assert _devices() == set()


def test_the_probe_finds_what_this_kernel_has_and_leaves_nothing() -> None:
    with _network() as live:
        before = _devices()
        assert soft_roce() == SoftRoce(refused=None, hears=True, controls=True)
        assert _devices() == before
        assert len(before) == len(live.fabric.hosts)


def test_a_device_that_is_gone_already_is_no_mistake() -> None:
    with _network() as live:
        (name,) = live.devices[live.fabric.hosts[0].name]
        assert remove_rdma_device(name)
        assert not remove_rdma_device(name)
        assert name not in _devices()


def test_a_refused_device_is_told_with_the_interface() -> None:
    with _network() as live:
        assert live.session is not None
        host = live.fabric.hosts[0].name
        with pytest.raises(NetlinkError, match=f"make the RDMA device .* of {host}-.*exists"):
            make_devices(live.session, {host: live.contexts(host)}, live.enter, lambda _: {})


def test_a_device_is_told_of_its_congestion_control_and_refuses_nonsense() -> None:
    transport = RoceTransport(kind="roce", congestion_control="timely", window=65_536)
    fabric = _network().fabric
    options = NetworkOptions(set_up=devices_by(transport))
    with Network(fabric, compute_routes(fabric), options) as live:
        (name,) = live.devices[live.fabric.hosts[0].name]
        said = dict(
            line.split("=") for line in (_CLASS / name / "congestion").read_text().splitlines()
        )
        told = device_settings(transport, fabric, 100 * 10**9)
        assert {key: int(said[key]) for key in told} == told
        for wrong in (
            {"rtt_min_ns": 0},
            {"kind": 9},
            {"ack_every": 0},
            {"line_bps": 0},
            {"no_such": 1},
        ):
            with pytest.raises(OSError):
                configure(name, wrong)
        assert {key: int(value) for key, value in said.items() if key in told} == told
        assert not list(read_rates(name))
