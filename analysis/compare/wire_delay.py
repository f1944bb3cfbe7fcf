"""How long packets waited in the fabric, from captures at both ends of their way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.decode.run_capture import clock_offset_ns
from analysis.decode.tcp.pcap import read_pcap
from analysis.predict.engines.wire import Floats, Ints
from analysis.runs.collectives import MeasuredCollective
from analysis.runs.run import Run
from collectives.schedule.gloo import PREAMBLE_BYTES


@dataclass(frozen=True)
class WireDelays:
    """Packets with payload that were captured twice: when they arrived, and how long they queued.

    Queueing is the time between the two captures beyond the shortest seen for the same pair of
    hosts and the same length: the path without queues, wherever on it the capture points are.
    """

    arrival_ns: Ints
    queued_ns: Floats

    @classmethod
    def of(cls, run: Run) -> WireDelays:
        """The delays of a run's captures; empty unless they hold both ends. Raises
        CaptureFormatError."""
        columns = []
        offset_ns = clock_offset_ns(run) or 0
        for path in run.captures:
            packets = read_pcap(path)
            # Notifications are shorter than a preamble's payload; they say nothing of bulk data.
            bulk = packets.is_tcp & (packets.payload_bytes > PREAMBLE_BYTES)
            ports = packets.source_port * 65536 + packets.destination_port
            columns.append(
                np.stack(
                    [
                        packets.source[bulk],
                        packets.destination[bulk],
                        ports[bulk],
                        packets.sequence[bulk],
                        packets.payload_bytes[bulk],
                        packets.timestamp_ns[bulk] - offset_ns,
                    ]
                )
            )
        if not columns:
            return cls(np.zeros(0, dtype=np.int64), np.zeros(0))
        table = np.concatenate(columns, axis=1)
        table = table[:, np.lexsort(table[::-1])]
        change = np.any(table[:5, 1:] != table[:5, :-1], axis=0)
        first = np.flatnonzero(np.concatenate([[True], change]))
        last = np.concatenate([first[1:], [table.shape[1]]]) - 1
        seen_twice = last > first
        first, last = first[seen_twice], last[seen_twice]
        taken = table[5, last] - table[5, first]
        path_keys = table[[0, 1, 4]][:, first]
        _, alike = np.unique(path_keys, axis=1, return_inverse=True)
        alike = alike.reshape(-1)
        shortest = np.full(int(alike.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(shortest, alike, taken)
        order = np.argsort(table[5, last], kind="stable")
        queued = (taken - shortest[alike]).astype(np.float64)
        return cls(table[5, last][order], queued[order])

    def last_queueing_ns(self, collective: MeasuredCollective) -> float | None:
        """Queueing of the last packet that arrived during a collective; None without packets."""
        end = int(np.searchsorted(self.arrival_ns, collective.end_ns, side="right"))
        start = int(np.searchsorted(self.arrival_ns, collective.start_ns, side="left"))
        return float(self.queued_ns[end - 1]) if end > start else None
