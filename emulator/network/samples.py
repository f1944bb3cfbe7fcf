"""The samples that the kernel took over time: of ports into ports.jsonl, of queue pairs' rates into
rates.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from emulator.network.network import Network
from emulator.ports.port_qdisc import PortSample, read_samples
from emulator.rdma.congestion import read_rates, samples_lost


def write_samples(network: Network, path: Path) -> None:
    """Write the samples of all ports that carried something, a line each. Raises OSError."""
    with path.open("w") as file:
        for node in network.fabric.nodes:
            names = {c.ifindex: c.port.interface for c in network.contexts(node.name)}
            with network.enter(node.name):
                for ifindex, samples in groupby(read_samples(), attrgetter("ifindex")):
                    file.write(_line(names[ifindex], samples))


def _line(port: str, samples: Iterator[PortSample]) -> str:
    found = list(samples)
    columns = {
        "times_ns": [s.time_ns for s in found],
        "sent_bytes": [s.sent_bytes for s in found],
        "backlog_bytes": [s.backlog_bytes for s in found],
        "peak_bytes": [s.peak_bytes for s in found],
        "drops": [s.drops for s in found],
        "marks": [s.ecn_marks for s in found],
        "paused_classes": [s.paused_classes for s in found],
    }
    line = {"port": port, "interval_ns": found[0].interval_ns} | columns
    return json.dumps(line, separators=(",", ":")) + "\n"


def write_rates(network: Network, path: Path) -> int:
    """Write the rates of all devices' queue pairs, a line each, by host and port; returns for how
    many there was no room. Writes no file when nothing was sampled. Raises OSError."""
    lost = 0
    lines = []
    for host, devices in network.rdma_devices.items():
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
