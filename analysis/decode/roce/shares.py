"""The message that every byte of a RoCEv2 packet belongs to.

Every packet belongs to one message as a whole: one with payload to that which its sequence number
lies in, an acknowledgement to that which its PSN lies in. Congestion notifications belong to none,
and what no message is known for is kept as such, so that nothing is left over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from analysis.decode.byte_ledger import COLUMNS
from analysis.decode.gloo.wire_format import Slot
from analysis.decode.ledger import FACTS, Ledger, Purpose
from analysis.decode.roce.packets import having
from analysis.decode.roce.queue_pairs import (
    NO_IMMEDIATE,
    QueuePairConnection,
    RoceDirection,
    RoceView,
)
from analysis.decode.roce.wire_format import Trait
from analysis.decode.tcp.pcap import Packets

Int64 = npt.NDArray[np.int64]

CollectiveOf = Callable[[int], int]
"""The collective that has a message of this slot."""

_UNKNOWN, _NOTIFICATION, _MESSAGES = 0, 1, 2
"""A direction's entries: what no message is known for, CNPs, and from there its messages."""


def roce_ledger(
    files: Sequence[Packets],
    connections: Sequence[QueuePairConnection],
    owners: Sequence[CollectiveOf],
    first_number: int,
) -> Ledger:
    """The bytes of queue pairs, of which there are some, by message. `owners` has the collectives
    of each connection; connections are numbered from `first_number`."""
    directions = [each for connection in connections for each in connection.directions]
    tables = [_facts(each, owners[number // 2]) for number, each in enumerate(directions)]
    base = np.cumsum([0, *(table.shape[1] for table in tables)])
    facts = np.concatenate(tables, axis=1)
    of = [number for number, each in enumerate(directions) for _ in each.captured]
    views = [view for each in directions for view in each.captured]
    parts = [
        _split(
            files,
            view,
            directions[number],
            directions[number ^ 1],
            int(base[number]),
            int(base[number ^ 1]),
        )
        for number, view in zip(of, views, strict=True)
    ]
    entry = np.concatenate([entries for entries, _ in parts])
    view = np.repeat(np.arange(len(views)), [len(entries) for entries, _ in parts])
    sender = [
        view is directions[number].captured[0] for number, view in zip(of, views, strict=True)
    ]
    number = np.searchsorted(base, entry, side="right") - 1
    return Ledger(
        **{name: facts[place, entry] for place, name in enumerate(FACTS)},
        file=np.array([each.stream.file for each in views], dtype=np.int64)[view],
        connection=number // 2 + first_number,
        direction=number % 2,
        primary=np.array(sender, dtype=np.bool_)[view],
        counts=np.concatenate([counts for _, counts in parts], axis=1),
    )


def _facts(direction: RoceDirection, owner: CollectiveOf) -> Int64:
    """The facts of all entries of a direction: shape (len(FACTS), entries)."""
    nothing = (-1,) * (len(FACTS) - 1)
    rows: list[tuple[int, ...]] = [
        (Purpose.UNATTRIBUTED, *nothing),
        (Purpose.CONGESTION_NOTIFICATION, *nothing),
    ]
    messages = direction.messages
    steps: Counter[tuple[bool, int]] = Counter()
    for immediate, writes, *place in zip(
        messages.immediate.tolist(),
        messages.writes.tolist(),
        messages.position.tolist(),
        messages.end.tolist(),
        messages.time_ns.tolist(),
        strict=True,
    ):
        if immediate == NO_IMMEDIATE:
            rows.append((Purpose.UNATTRIBUTED, *(-1,) * 5, *place))
            continue
        slot = Slot.decode(immediate)
        purpose = Purpose.DATA if writes else Purpose.RECV_READY
        step = steps[writes, immediate]
        steps[writes, immediate] += 1
        rows.append((purpose, owner(immediate), slot.prefix, slot.tag, slot.delta, step, *place))
    return np.array(rows, dtype=np.int64).T


def _split(
    files: Sequence[Packets],
    view: RoceView,
    own: RoceDirection,
    other: RoceDirection,
    own_base: int,
    other_base: int,
) -> tuple[Int64, Int64]:
    """The entries that a view's packets belong to, each once, and what each got: shape
    (len(COLUMNS), entries)."""
    wire = files[view.stream.file].wire_bytes[view.stream.rows]
    payload = view.stream.payload_bytes
    carries, answers, notifies = (
        having(view.traits, trait) for trait in (Trait.CARRIES, Trait.ANSWERS, Trait.CNP)
    )
    entry = np.full(len(wire), own_base + _UNKNOWN, dtype=np.int64)
    entry[notifies] = own_base + _NOTIFICATION
    entry[carries] = own_base + _MESSAGES + own.messages.at(view.number[carries])
    found = other.messages.at(view.number)
    known = answers & (found >= 0)
    entry[known] = other_base + _MESSAGES + found[known]
    distinct, row = np.unique(entry, return_inverse=True)
    counts = np.zeros((len(COLUMNS), len(distinct)), dtype=np.int64)

    def add(column: str, chosen: npt.NDArray[np.bool_], amount: Int64) -> None:
        np.add.at(counts[COLUMNS.index(column)], row[chosen], amount[chosen])

    ones = np.ones(len(wire), dtype=np.int64)
    bare = answers | notifies
    writes = having(view.traits, Trait.WRITES)
    add("data_bytes", writes & ~view.again, payload)
    # A SEND carries credits, as a preamble carries Gloo's notifications.
    add("preamble_bytes", carries & ~writes & ~view.again, payload)
    add("retransmitted_bytes", carries & view.again, payload)
    add("header_bytes", ~bare, wire - payload)
    add("packets", ~bare, ones)
    add("ack_bytes", bare, wire)
    add("ack_packets", bare, ones)
    return distinct, counts
