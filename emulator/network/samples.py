"""The samples of ports that the kernel took over time, into ports.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from emulator.network.network import Network
from emulator.ports.port_qdisc import PortSample, read_samples


def write_samples(network: Network, path: Path) -> None:
    """Write the samples of all ports that carried something, a line each. Raises OSError."""
    with path.open("w") as file:
        for node in network.fabric.nodes:
            names = {c.ifindex: c.port.interface for c in network.contexts(node.name)}
            with network.enter(node.name):
                for ifindex, samples in groupby(read_samples(), attrgetter("ifindex")):
                    file.write(line_of(names[ifindex], samples))


def line_of(port: str, samples: Iterable[PortSample]) -> str:
    """A line of ports.jsonl, for one port with a sample at least."""
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
