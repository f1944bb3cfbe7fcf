"""The RDMA devices of a fabric: one on each port of a host, by the kernel's Soft-RoCE; their
counters, and the rates that they kept over time (rates.jsonl)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from emulator.linux.netlink import NetlinkSocket
from emulator.linux.rdma_netlink import NETLINK_RDMA, make_rdma_device
from emulator.network.network import Devices, Network, SetUp
from emulator.network.registry import Session
from emulator.ports.arrangement import PortContext
from emulator.rdma.congestion import configure, read_rates, samples_lost
from topologies.spec.transports.roce.device import device_settings
from topologies.spec.transports.roce.section import RoceTransport


def devices_by(transport: RoceTransport) -> SetUp:
    """The set-up of hosts that have this transport."""

    def set_up(network: Network, hosts: Mapping[str, tuple[PortContext, ...]]) -> Devices:
        settings = partial(device_settings, transport, network.fabric)
        assert network.session is not None
        return make_devices(network.session, hosts, network.enter, settings)

    return set_up


def make_devices(
    session: Session,
    hosts: Mapping[str, tuple[PortContext, ...]],
    enter: Callable[[str], AbstractContextManager[None]],
    settings: Callable[[int], Mapping[str, int]],
) -> dict[str, tuple[str, ...]]:
    """Makes those of `hosts`, recorded first, and returns their names by host. The ports have their
    addresses already; a name has 15 characters at most, as programs expect it of interfaces (UCX
    reads no more). `settings` are a device's congestion control, by its port's rate in bits/s.
    Raises OSError."""
    made: dict[str, tuple[str, ...]] = {}
    numbers = itertools.count()
    for host, ports in hosts.items():
        names = {f"gw{session.id}r{next(numbers)}": port.port.interface for port in ports}
        session.record(*({"kind": "rdma-device", "path": name} for name in names))
        with enter(host), NetlinkSocket(NETLINK_RDMA) as netlink:
            netlink.execute(make_rdma_device(name, interface) for name, interface in names.items())
        for name, port in zip(names, ports, strict=True):
            configure(name, settings(port.link.rate_bps))
        made[host] = tuple(names)
    return made


_COUNTERS = {
    "retries": "completer_retry_err",
    "resent_alone": "resent_requests",
    "early_requests": "out_of_seq_request",
    "sequence_naks": "rcvd_seq_err",
    "not_ready_naks": "rcvd_rnr_err",
    "ce_packets": "ecn_marked",
    "cnps_sent": "cnp_sent",
    "cnps_received": "cnp_received",
    "paths_skipped": "paths_skipped",
    "paths_bad": "paths_bad",
    "probes": "probes",
    "resent_trimmed": "trimmed_requests",
}
"""Their names in rxe (drivers/infiniband/sw/rxe/rxe_hw_counters.c)."""


def read_counters(devices: Iterable[str]) -> dict[str, int]:
    """The sums of what the queue pairs of devices have counted: how often one went back and sent
    again, the requests that were sent again alone, those that came before their turn (of go-back-N
    the first of a row), the NAKs that came, requests that came with a CE mark, and CNPs; 0 of what
    the kernel does not count; how often an entropy value was to be skipped, and assumed to be bad,
    and the probes of these; the requests that ports had trimmed. Raises OSError."""
    counted = [Path(f"/sys/class/infiniband/{name}/ports/1/hw_counters") for name in devices]
    return {
        name: sum(
            int((directory / theirs).read_text())
            for directory in counted
            if (directory / theirs).exists()
        )
        for name, theirs in _COUNTERS.items()
    }


def write_rates(network: Network, path: Path) -> int:
    """Write the rates of all devices' queue pairs, a line each, by host and port; returns for how
    many there was no room. Writes no file when nothing was sampled. Raises OSError."""
    lost = 0
    lines = []
    for host, devices in network.devices.items():
        for device, context in zip(devices, network.contexts(host), strict=True):
            lost += samples_lost(device)
            lines += [
                json.dumps(
                    {
                        "host": host,
                        "port": context.port.interface,
                        "qpn": sample.qpn,
                        "time_ns": sample.time_ns,
                        "rate_bps": sample.rate_bps,
                    }
                )
                for sample in read_rates(device)
            ]
    if lines:
        path.write_text("".join(f"{line}\n" for line in lines))
    return lost
