"""The sampling of ports over time that a spec asks for."""

from __future__ import annotations

from emulator.ports.own_queues import SAMPLE_CAPACITY, Sampling
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
