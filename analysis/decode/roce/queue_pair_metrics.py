"""The retransmissions, refusals and slow-downs of queue pairs, as captured at their senders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.decode.attribution import Attribution
from analysis.decode.roce.packets import having
from analysis.decode.roce.queue_pairs import QueuePairConnection, RoceView
from analysis.decode.roce.wire_format import NAK_SEQUENCE_ERROR, Syndrome, Trait

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class QueuePairMetrics:
    """The packets that one queue pair sent to its peer.

    `source` and `destination` are ranks, None where the log has no such queue pair. NAKs and CNPs
    are about what came the other way: for a PSN that was not the expected one, and for a receiver
    that was not ready.
    """

    source: int | None
    destination: int | None
    group: str
    packets: int
    retransmitted_packets: int
    acknowledgements: int
    sequence_naks: int
    not_ready_naks: int
    cnps: int


def queue_pair_metrics(attribution: Attribution) -> tuple[QueuePairMetrics, ...]:
    """Two for each connection over RoCE, in the order of the connections; none over TCP."""
    found = []
    for each in attribution.connections:
        if not isinstance(each.connection, QueuePairConnection):
            continue
        ends = each.member.initiator, each.member.responder
        for side, direction in enumerate(each.connection.directions):
            if direction.captured:
                view = direction.captured[0]
                found.append(_metrics(ends[side], ends[1 - side], each.member.group, view))
    return tuple(found)


def _metrics(
    source: int | None, destination: int | None, group: str, view: RoceView
) -> QueuePairMetrics:
    def count(chosen: Bool) -> int:
        return int(np.count_nonzero(chosen))

    answers, carries = having(view.traits, Trait.ANSWERS), having(view.traits, Trait.CARRIES)
    return QueuePairMetrics(
        source,
        destination,
        group,
        count(carries),
        count(view.again),
        count(answers & (view.syndrome >> 5 == Syndrome.ACK)),
        count(answers & (view.syndrome == NAK_SEQUENCE_ERROR)),
        count(answers & (view.syndrome >> 5 == Syndrome.RNR_NAK)),
        count(having(view.traits, Trait.CNP)),
    )
