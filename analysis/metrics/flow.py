"""Flows as captured: completion times of messages, slowdown, retransmits, round trips, marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from analysis.decode.attribution import AttributionError
from analysis.decode.ledger import Purpose
from analysis.decode.run_capture import RunCapture, capture_bytes, load_capture
from analysis.decode.segmented import SortedSegments, starts_of
from analysis.metrics.packets import (
    PayloadPackets,
    reordered,
    reordering_extents,
    round_trips,
    sent_again,
    sent_and_received,
)
from analysis.predict.engines.wire import GlooWire, Wire
from analysis.predict.interface import Transport
from analysis.runs.run import Run
from collectives.schedule.gloo import PREAMBLE_BYTES
from topologies.fabrics.fabric import Link
from topologies.routing.segments import outer_bytes
from topologies.units import format_size

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

MAX_CAPTURE_BYTES = 400_000_000
"""About 3 million packets, or 20 s."""


@dataclass(frozen=True)
class FlowMetrics:
    """One direction of one connection, from its first capture (the sender's) to its last (the
    receiver's). Times are the target fabric's.

    `reordering` has a number for each packet that arrived behind a later one though it was sent
    only once: how many arrived from the first later one on until itself (RFC 4737, 4.2).
    `ce_packets` are data packets that arrived marked, `rtt_ns` a sample per packet that was sent
    once.
    """

    source: int
    destination: int
    group: str
    carried: bool
    payload_bytes: int
    packets: int
    retransmitted_packets: int
    ce_packets: int
    reordering: Int64
    rtt_ns: Int64

    @property
    def reordered(self) -> int:
        """Packets that arrived behind a later one."""
        return len(self.reordering)

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
    def reordering(self) -> Int64:
        """The extents of all packets that arrived behind a later one."""
        return np.concatenate([flow.reordering for flow in self.flows] or [np.zeros(0, np.int64)])

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
    files, scale = capture.files, capture.run.environment.scale
    members = [each.member for each in capture.attribution.connections]
    connections = [each.connection for each in capture.attribution.connections]
    sent, received = sent_and_received(files, connections)
    count = 2 * len(connections)
    packets = np.bincount(sent.direction, minlength=count)
    again = np.bincount(sent.direction[sent_again(sent)], minlength=count).tolist()
    marked = np.bincount(received.direction[received.marked], minlength=count).tolist()
    late = reordered(received, sent)
    extents = reordering_extents(received, late)
    late_bounds = np.searchsorted(received.direction[late], np.arange(count + 1)).tolist()
    rtt_ns, rtt_direction = round_trips(files, sent, connections)
    rtt_bounds = np.searchsorted(rtt_direction, np.arange(count + 1)).tolist()
    found: list[FlowMetrics] = []
    flow_of = np.full(count, -1, dtype=np.int64)
    for number in np.flatnonzero(packets).tolist():
        member, side = members[number // 2], number % 2
        ends = (member.initiator, member.responder)
        source, destination = ends[side], ends[1 - side]
        if source is None or destination is None:
            continue
        if max(source, destination) >= len(capture.run.ranks):
            continue  # to or from a switch that aggregates
        flow_of[number] = len(found)
        found.append(
            FlowMetrics(
                source,
                destination,
                member.group,
                connections[number // 2].carried,
                connections[number // 2].directions[side].length_bytes,
                int(packets[number]),
                again[number],
                marked[number],
                extents[late_bounds[number] : late_bounds[number + 1]],
                rtt_ns[rtt_bounds[number] : rtt_bounds[number + 1]] // scale,
            )
        )
    return Flows(capture, tuple(found), _messages(capture, sent, received, flow_of, found))


def _messages(
    capture: RunCapture,
    sent: PayloadPackets,
    received: PayloadPackets,
    flow_of: Int64,
    flows: Sequence[FlowMetrics],
) -> Messages:
    """The data messages of flows; `flow_of` has the flow of each direction, or -1."""
    ledger, run = capture.attribution.ledger, capture.run
    data = np.flatnonzero(ledger.purpose == Purpose.DATA)
    direction, start = 2 * ledger.connection[data] + ledger.direction[data], ledger.position[data]
    order = np.lexsort((start, direction))
    direction, start, data = direction[order], start[order], data[order]
    # Each message once, however many captures saw it.
    fresh = (np.diff(direction, prepend=-1) != 0) | (np.diff(start, prepend=-1) != 0)
    mine = np.flatnonzero(fresh & (flow_of[direction] >= 0))
    direction, start, data = direction[mine], start[mine], data[mine]
    end = ledger.end[data]
    left, arrived = _times(sent, received, direction, start, end)
    whole = (left >= 0) & (arrived >= left)
    flow, size, left, arrived = (
        column[whole] for column in (flow_of[direction], end - start, left, arrived)
    )
    paths = _Paths(run)
    ideal_ns = np.zeros(len(flow))
    bounds = np.append(starts_of(flow), len(flow)).tolist()
    for low, high in pairwise(bounds):
        of = flows[int(flow[low])]
        ideal_ns[low:high] = paths.ideal_ns(of, size[low:high])
    return Messages(
        flow,
        ledger.collective[data][whole],
        size,
        left - capture.clock_offset_ns,
        arrived - capture.clock_offset_ns,
        (arrived - left) // run.environment.scale,
        ideal_ns,
    )


def _times(
    sent: PayloadPackets, received: PayloadPackets, direction: Int64, start: Int64, end: Int64
) -> tuple[Int64, Int64]:
    """When each message's first byte was sent, and when the last of its bytes to come arrived;
    -1 where no packet is known to have held it. All of its directions have packets."""
    count = int(direction.max(initial=-1)) + 1

    def first_times(seen: PayloadPackets) -> tuple[SortedSegments, Int64]:
        inside = seen.firsts[seen.direction[seen.firsts] < count]
        positions = SortedSegments(seen.position[inside], seen.direction[inside], count)
        return positions, seen.time_ns[inside]

    positions, times = first_times(sent)
    index = positions.find(direction, start, "right") - 1
    left = np.where(index >= positions.bounds[direction], times[index], -1)
    positions, times = first_times(received)
    first = positions.find(direction, start, "right") - 1
    first = np.maximum(first, positions.bounds[direction])
    last = positions.find(direction, end - 1, "right")
    # reduceat wants pairs of bounds, and a last bound inside the array.
    padded = np.append(times, times[-1:])
    pairs = np.column_stack([first, np.maximum(last, first + 1)]).ravel()
    arrived = np.maximum.reduceat(padded, pairs)[::2] if pairs.size else first
    return left, np.where(last > first, arrived, -1)


class _Paths:
    """The time that an empty network would take between two ranks, by one of the paths that routing
    has."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._links = {link.index: link for link in run.fabric.links}
        self._carrier = Transport.of(run.spec).carrier

    def ideal_ns(self, flow: FlowMetrics, size_bytes: Int64) -> Float64:
        """Nanoseconds for messages of these sizes, TCP's with their preamble."""
        links = self._path(self._run.hosts[flow.source], self._run.hosts[flow.destination])
        fixed_ns = float(sum(link.delay_ns for link in links))
        slowest_ns_per_byte = max((8e9 / link.rate_bps for link in links), default=0.0)
        mtu = min((link.mtu_bytes for link in links), default=1500)
        outer = outer_bytes(self._run.fabric)
        if flow.carried and self._carrier is not None:
            how: Wire = self._carrier.wire(mtu, outer)
        else:
            # The wire model adds a preamble to the payload; these sizes have it already.
            how, size_bytes = GlooWire(mtu, outer_bytes=outer), size_bytes - PREAMBLE_BYTES
        wire = how.data_bytes(size_bytes)
        frame = np.minimum(wire, how.full_frame_bytes)
        total: Float64 = fixed_ns + slowest_ns_per_byte * (wire + (len(links) - 1) * frame)
        return total

    def _path(self, here: str, there: str) -> list[Link]:
        links = []
        while here != there:
            choices = self._run.routes.next_hops(here, there)
            if not choices:
                break
            links.append(self._links[choices[0].link])
            here = choices[0].node
        return links
