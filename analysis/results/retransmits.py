"""Segments that TCP sent again: data, and FINs by themselves, which the kernel counts alike."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from analysis.decode.run_capture import capture_bytes
from analysis.decode.tcp.pcap import FIN, SYN, read_pcap
from analysis.runs.run import Run

_MOST_BYTES: Final = 400_000_000
"""Captures beyond this are not read for it, which takes about 20 s."""


def retransmits_of(run: Run) -> int:
    """Segments that all hosts' TCP sent again, without the FINs that captures at hosts show. Raises
    CaptureFormatError."""
    return max(0, run.environment.retransmits - fins_sent_again(run))


def fins_sent_again(run: Run) -> int:
    """FINs without data that were sent more than once, as far as hosts' ports were captured: they
    close a connection that has carried everything. Raises CaptureFormatError."""
    if not run.environment.retransmits or capture_bytes(run) > _MOST_BYTES:
        return 0
    ports = {
        link.port(host).interface: int(run.fabric.by_name[host].address)
        for host in dict.fromkeys(run.hosts)
        for link in run.fabric.links_of[host]
    }
    return sum(_in_file(path, ports[path.stem]) for path in run.captures if path.stem in ports)


@lru_cache(maxsize=1024)
def _in_file(path: Path, address: int) -> int:
    """Those that left a port whose host has this address."""
    packets = read_pcap(path)
    closing = packets.is_tcp & (packets.flags & (FIN | SYN) == FIN) & (packets.payload_bytes == 0)
    rows = np.flatnonzero(closing & (packets.source == address))
    columns = packets.source_port, packets.destination, packets.destination_port, packets.sequence
    kinds = np.stack([np.asarray(column[rows], dtype=np.int64) for column in columns])
    return len(rows) - np.unique(kinds, axis=1).shape[1] if len(rows) else 0
