"""ports.jsonl: the samples that the port qdisc took of its ports over time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from emulator.network.network import Network
from emulator.ports.own_queues import SAMPLE_CAPACITY, Sampling
from emulator.ports.port_qdisc import PortSample, read_samples
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.selectors import select_ports
from topologies.spec.spec import Spec

FIRST_INTERVAL_NS = 1_000
"""The interval with which `auto` begins."""

_AT_LEAST, _AT_MOST, _ALL_PORTS = 32, 256, 1 << 17
"""The samples that `auto` keeps: of a port, and about as many of all ports."""


def sampling_of(spec: Spec, fabric: Fabric) -> Sampling | None:
    """The sampling that a spec asks for; None where it asks for none. `auto` keeps a bounded number
    of samples of each port: the interval doubles whenever a port has so many."""
    interval_ns = spec.counters.interval_ns
    if interval_ns is None:
        return None
    selected = (select_ports(fabric, selector) for selector in spec.counters.ports)
    ports = frozenset(port.interface for ports in selected for port in ports)
    if interval_ns != "auto":
        return Sampling(interval_ns, ports, SAMPLE_CAPACITY)
    capacity = max(_AT_LEAST, min(_AT_MOST, _ALL_PORTS // max(1, len(ports))))
    return Sampling(FIRST_INTERVAL_NS, ports, capacity, coarsens=True)


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
