"""The samples of ports that the kernel took over time, into ports.jsonl, with what copies of memory
took of their ports between them."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path

from emulator.network.network import Network
from emulator.ports.port_qdisc import PortSample, read_samples


@dataclass(frozen=True, slots=True)
class CarriedSpan:
    """A port carries a copy of so many bytes from a time to another, evenly."""

    begin_ns: int
    end_ns: int
    size_bytes: int


def write_samples(
    network: Network, path: Path, copied: Mapping[int, Sequence[CarriedSpan]]
) -> None:
    """Write the samples of all ports that carried something, a line each. `copied` is by directed
    link (`topologies.fabrics.copies`), in order of time. Raises OSError."""
    links = {
        port.interface: 2 * link.index + end
        for link in network.fabric.links
        for end, port in enumerate((link.a, link.b))
    }
    with path.open("w") as file:
        for node in network.fabric.nodes:
            names = {c.ifindex: c.port.interface for c in network.contexts(node.name)}
            with network.enter(node.name):
                for ifindex, samples in groupby(read_samples(), attrgetter("ifindex")):
                    name = names[ifindex]
                    spans = copied.get(links[name], ())
                    file.write(line_of(name, with_copies(list(samples), spans)))


def with_copies(
    samples: Sequence[PortSample], spans: Sequence[CarriedSpan]
) -> Sequence[PortSample]:
    """The samples of a port, one at least, with what it has carried of copies by each among the
    bytes that it sent; more samples where only that differs from the one before."""
    if not spans:
        return samples
    first_ns, interval_ns = samples[0].time_ns, samples[0].interval_ns
    known = {sample.time_ns: sample for sample in samples}
    times = set(known)
    for span in spans:
        first, last = (-(-(at - first_ns) // interval_ns) for at in (span.begin_ns, span.end_ns))
        times.update(
            first_ns + number * interval_ns for number in range(max(0, first), max(0, last) + 1)
        )
    begins = [span.begin_ns for span in spans]
    before = [0, *accumulate(span.size_bytes for span in spans)]
    found, kernels = [], samples[0]
    for at_ns in sorted(times):
        kernels = known.get(
            at_ns, replace(kernels, time_ns=at_ns, peak_bytes=kernels.backlog_bytes)
        )
        place = bisect_right(begins, at_ns)
        carried = before[place]
        if place and spans[place - 1].end_ns > at_ns:
            span = spans[place - 1]
            left_ns = span.end_ns - at_ns
            carried -= span.size_bytes * left_ns // (span.end_ns - span.begin_ns)
        found.append(replace(kernels, sent_bytes=kernels.sent_bytes + carried))
    return found


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
