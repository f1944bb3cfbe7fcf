"""queues.jsonl: what the port qdisc sampled of its backlog, for ports that the spec asks for."""

from __future__ import annotations

import json
from pathlib import Path

from emulator.network.network import Network
from emulator.ports.own_queues import Sampling
from emulator.ports.port_qdisc import read_samples
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.selectors import select_ports
from topologies.spec.spec import Spec


def sampling_of(spec: Spec, fabric: Fabric) -> Sampling | None:
    """The ports that a spec asks to be sampled; None when it asks for nothing."""
    counters = spec.counters
    if counters.interval_ns is None:
        return None
    ports = {p.interface for selector in counters.ports for p in select_ports(fabric, selector)}
    return Sampling(counters.interval_ns, frozenset(ports))


def write_samples(network: Network, path: Path) -> None:
    """Write the samples of all ports, a line each, by node. Raises OSError when a port has none."""
    with path.open("w") as file:
        for node in network.fabric.nodes:
            names = {c.ifindex: c.port.interface for c in network.contexts(node.name)}
            with network.enter(node.name):
                for sample in read_samples():
                    line = {
                        "port": names[sample.ifindex],
                        "time_ns": sample.time_ns,
                        "backlog_bytes": sample.backlog_bytes,
                        "marks": sample.ecn_marks,
                    }
                    file.write(json.dumps(line) + "\n")
