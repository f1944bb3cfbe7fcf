"""Flows as captured: completion times of messages, slowdown, retransmits, round trips, marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.attribution import AttributionError
from analysis.ledger import Purpose
from analysis.metrics.packets import (
    Segments,
    reordered,
    round_trips,
    sent_again,
    sent_and_received,
)
from analysis.predictors.wire import data_bytes, full_frame_bytes
from analysis.run import Run
from analysis.run_capture import RunCapture, capture_bytes, load_capture
from topologies.routing import NextHop
from topologies.units import format_size

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

MAX_CAPTURE_BYTES = 400_000_000
"""About 3 million packets, or 20 s."""


@dataclass(frozen=True)
class FlowMetrics:
    """One direction of one connection, from its first capture (the sender's) to its last (the
    receiver's). Times are the target fabric's.

    `reordered` counts packets that arrived behind a later one though they were sent only once,
    `ce_packets` data packets that arrived marked, `rtt_ns` a sample per packet that was sent once.
    """

    source: int
    destination: int
    group: str
    payload_bytes: int
    packets: int
    retransmitted_packets: int
    ce_packets: int
    reordered: int
    rtt_ns: Int64

    @property
    def ce_fraction(self) -> float:
        return self.ce_packets / self.packets if self.packets else 0.0


@dataclass(frozen=True)
class Messages:
    """The data messages of collectives, a row each; all arrays have shape (messages,).

    `flow` indexes the run's flows and `collective` its attribution's collectives (-1: of none in
    the log). `start_ns` is when the first bit left the sender's port and `end_ns` when the last
    bit reached the receiver's, on the clock of the logs; `fct_ns` lies between them, in target
    time. `ideal_ns` is what an empty network would take: propagation, serialisation of all frames
    on the slowest link, and of one frame on each other link.
    """

    flow: Int64
    collective: Int64
    size_bytes: Int64
    start_ns: Int64
    end_ns: Int64
    fct_ns: Int64
    ideal_ns: Float64

    def __len__(self) -> int:
        return len(self.flow)

    @classmethod
    def join(cls, parts: Sequence[Messages]) -> Messages:
        """The rows of all parts."""
        counts = [np.zeros(0, dtype=np.int64)]
        return cls(
            np.concatenate([part.flow for part in parts] or counts),
            np.concatenate([part.collective for part in parts] or counts),
            np.concatenate([part.size_bytes for part in parts] or counts),
            np.concatenate([part.start_ns for part in parts] or counts),
            np.concatenate([part.end_ns for part in parts] or counts),
            np.concatenate([part.fct_ns for part in parts] or counts),
            np.concatenate([part.ideal_ns for part in parts] or [np.zeros(0)]),
        )

    @property
    def slowdown(self) -> Float64:
        """Completion time over that of an empty network."""
        ratio: Float64 = self.fct_ns / self.ideal_ns
        return ratio


@dataclass(frozen=True)
class Flows:
    """All flows of a run's capture and their messages."""

    capture: RunCapture
    flows: tuple[FlowMetrics, ...]
    messages: Messages

    @cached_property
    def rtt_ns(self) -> Int64:
        """Round trips of all flows together."""
        return np.concatenate([flow.rtt_ns for flow in self.flows] or [np.zeros(0, np.int64)])

    def phases(self) -> dict[str, Int64]:
        """Rows of `messages` by phase of communication; alignments and set-up left out."""
        collectives = self.capture.attribution.collectives
        names = np.array([c.phase for c in collectives] or [""])
        found: dict[str, Int64] = {}
        for phase in dict.fromkeys(c.phase for c in collectives):
            if phase != "align":
                of_phase = (self.messages.collective >= 0) & (
                    names[self.messages.collective] == phase
                )
                found[phase] = np.flatnonzero(of_phase)
        return found


@dataclass(frozen=True)
class NoFlows:
    """Why a run's flows are not known, as a sentence."""

    reason: str


def read_flows(run: Run, most_bytes: int = MAX_CAPTURE_BYTES) -> Flows | NoFlows:
    """The flows of a run, or why there are none: no capture, more than `most_bytes` of it, or
    packets cut too short to tell Gloo's messages. Raises CaptureFormatError for a damaged file."""
    if not run.captures:
        return NoFlows("No capture in this run: the spec's capture.points is empty.")
    held = capture_bytes(run)
    if held > most_bytes:
        return NoFlows(f"The captures, {format_size(held)}, are too large to be read in passing.")
    try:
        capture = load_capture(run)
    except AttributionError as error:
        return NoFlows(f"The captures do not tell Gloo's messages: {error}.")
    assert capture is not None
    return flows_of(capture)


def flows_of(capture: RunCapture) -> Flows:
    """The flows between ranks in a run's captures."""
    run, ledger, files = capture.run, capture.attribution.ledger, capture.files
    scale = run.environment.scale
    paths = _Paths(run)
    found: list[FlowMetrics] = []
    parts: list[Messages] = []
    data = np.flatnonzero(ledger.purpose == Purpose.DATA)
    place = ledger.connection[data] * 2 + ledger.direction[data]
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(2 * len(capture.attribution.connections) + 1))
    for number, connection in enumerate(capture.attribution.connections):
        ranks = connection.member.initiator, connection.member.responder
        for side, direction in enumerate(connection.connection.directions):
            source, destination = ranks[side], ranks[1 - side]
            ends = sent_and_received(files, direction)
            if ends is None or source is None or destination is None:
                continue
            sent, received = ends
            other = connection.connection.directions[1 - side]
            found.append(
                FlowMetrics(
                    source,
                    destination,
                    connection.member.group,
                    direction.length_bytes,
                    len(sent),
                    int(sent_again(sent).sum()),
                    int(received.marked.sum()),
                    reordered(received, sent),
                    round_trips(files, sent, other) // scale,
                )
            )
            mine = data[order[bounds[2 * number + side] : bounds[2 * number + side + 1]]]
            # Each message once, however many captures saw it.
            start, first = np.unique(ledger.position[mine], return_index=True)
            mine = mine[first]
            if not mine.size:
                continue
            end = ledger.end[mine]
            left, arrived = _times(sent, received, start, end)
            whole = (left >= 0) & (arrived >= left)
            size = (end - start)[whole]
            left, arrived = left[whole], arrived[whole]
            parts.append(
                Messages(
                    np.full(len(size), len(found) - 1, dtype=np.int64),
                    ledger.collective[mine][whole],
                    size,
                    left - capture.clock_offset_ns,
                    arrived - capture.clock_offset_ns,
                    (arrived - left) // scale,
                    paths.ideal_ns(source, destination, size),
                )
            )
    return Flows(capture, tuple(found), Messages.join(parts))


def _times(sent: Segments, received: Segments, start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """When each message's first byte was sent, and when the last of its bytes to come arrived;
    -1 where no packet is known to have held it."""
    positions, times = sent.first_times
    index = np.searchsorted(positions, start, side="right") - 1
    left = np.where(index >= 0, times[np.maximum(index, 0)], -1)
    positions, times = received.first_times
    first = np.maximum(np.searchsorted(positions, start, side="right") - 1, 0)
    last = np.searchsorted(positions, end - 1, side="right")
    # reduceat wants pairs of bounds, and a last bound inside the array.
    padded = np.append(times, times[-1:])
    pairs = np.column_stack([first, np.maximum(last, first + 1)]).ravel()
    arrived = np.maximum.reduceat(padded, pairs)[::2]
    return left, np.where(last > first, arrived, -1)


class _Paths:
    """What an empty network would take between two ranks, by one of the paths that routing has."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._links = {link.index: link for link in run.fabric.links}
        self._known: dict[tuple[int, int], tuple[float, float, int]] = {}

    def ideal_ns(self, source: int, destination: int, size_bytes: Int64) -> Float64:
        """Nanoseconds for messages of these sizes, preamble included."""
        fixed_ns, slowest_ns_per_byte, mtu = self._path(source, destination)
        # The wire model adds a preamble to the payload; these sizes have it already.
        wire = data_bytes(size_bytes - 48, mtu)
        frame = np.minimum(wire, full_frame_bytes(mtu))
        hops = self._hops(source, destination)
        total: Float64 = fixed_ns + slowest_ns_per_byte * (wire + (len(hops) - 1) * frame)
        return total

    def _hops(self, source: int, destination: int) -> list[NextHop]:
        here, there = self._run.hosts[source], self._run.hosts[destination]
        hops = []
        while here != there:
            choices = self._run.routes.next_hops(here, there)
            if not choices:
                break
            hops.append(choices[0])
            here = choices[0].node
        return hops

    def _path(self, source: int, destination: int) -> tuple[float, float, int]:
        key = source, destination
        if key not in self._known:
            links = [self._links[hop.link] for hop in self._hops(source, destination)]
            self._known[key] = (
                float(sum(link.delay_ns for link in links)),
                max((8e9 / link.rate_bps for link in links), default=0.0),
                min((link.mtu_bytes for link in links), default=1500),
            )
        return self._known[key]
