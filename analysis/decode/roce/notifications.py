"""Congestion notifications (CNPs) over time: who was told to slow down, and when."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np

from analysis.decode.roce.packets import having
from analysis.decode.roce.queue_pairs import QueuePairConnection, RoceDirection
from analysis.decode.roce.wire_format import Trait
from analysis.decode.run_capture import RunCapture


@dataclass(frozen=True)
class Notifications:
    """The CNPs for one queue pair of `rank`, from the receiver of what it sends to `peer`; ranks
    are None where no log has the queue pair. Times are on the clock of the logs, at the capture
    that saw them last."""

    rank: int | None
    peer: int | None
    address: IPv4Address
    qpn: int
    times_ns: tuple[int, ...]


def notifications(capture: RunCapture) -> tuple[Notifications, ...]:
    """The CNPs of each queue pair that got some, in the order of the connections."""
    found = []
    for each in capture.attribution.connections:
        if not isinstance(each.connection, QueuePairConnection):
            continue
        ends = each.member.initiator, each.member.responder
        for side, direction in enumerate(each.connection.directions):
            times_ns = _times_ns(capture, direction)
            if times_ns:
                to = direction.destination
                found.append(
                    Notifications(
                        ends[1 - side], ends[side], IPv4Address(to.address), to.number, times_ns
                    )
                )
    return tuple(found)


def _times_ns(capture: RunCapture, direction: RoceDirection) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    for view in direction.captured:
        rows = view.stream.rows[having(view.traits, Trait.CNP)]
        times_ns = np.sort(capture.files[view.stream.file].timestamp_ns[rows])
        if len(rows) and len(rows) >= len(best):
            best = tuple(int(time_ns) - capture.clock_offset_ns for time_ns in times_ns)
    return best
