"""Runs every member's program of posts and waits over max-min shared links, event by event."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from analysis.predict.engines.max_min import max_min_rates, pad_paths
from analysis.predict.engines.member_programs import Programs
from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Floats, Ints
from collectives.schedule.operations import CompiledPrograms, Start

_SIMULTANEOUS_NS = 1e-3
_INVITED, _DRAINED, _RECEIVED, _AWAKE, _ACKNOWLEDGED = 0, 1, 2, 3, 4


@dataclass(slots=True)
class Connection:
    """The connection from one member to another: its messages leave one after the other.

    RECV_READY takes `notice_ns` the other way, whose first link is `notice_link`. A message of B
    wire bytes takes `fixed_ns + min(B, frame_bytes) * forwarding` after its last bit left the
    slowest link. Its send is complete once the connection has it, or with `ack_ns` so long after
    its arrival.
    """

    links: tuple[int, ...]
    notice_link: int
    notice_ns: float
    ns_per_byte: float
    fixed_ns: float
    forwarding: float
    frame_bytes: float
    ack_ns: float | None = None
    queue: deque[int] = field(default_factory=deque)
    left_bytes: float = 0.0
    rate: float = 0.0
    since_ns: float = 0.0
    version: int = 0


class RankPrograms(Programs):
    """One collective's members and the links that their messages share.

    `wire_bytes` has the bytes of each message; `connections` the path of each pair that exchanges
    messages; `bytes_per_ns` the links' capacity.
    """

    def __init__(
        self,
        compiled: CompiledPrograms,
        wire_bytes: Sequence[float],
        connections: dict[tuple[int, int], Connection],
        bytes_per_ns: list[float],
        overhead_ns: float = 0.0,
        sharing_factor: float = 1.0,
    ) -> None:
        super().__init__(compiled)
        self._connections = connections
        self._capacity = bytes_per_ns
        self._overhead_ns = overhead_ns
        self._sharing_factor = sharing_factor
        self._wire = wire_bytes
        self._users: dict[int, set[tuple[int, int]]] = {}
        self._dirty: set[int] = set()
        self._heap: list[tuple[float, int, int, int, int]] = []
        self._pair_numbers = {pair: i for i, pair in enumerate(connections)}
        self._pairs = list(connections)
        self._sequence = 0

    def run(self) -> float:
        """Nanoseconds until the last member has finished its program."""
        self._begin()
        heap = self._heap
        while heap:
            now = heap[0][0]
            while heap and heap[0][0] <= now + _SIMULTANEOUS_NS:
                _, _, kind, subject, version = heapq.heappop(heap)
                if kind == _INVITED:
                    self._has_been_invited(subject, now)
                elif kind == _RECEIVED:
                    self._has_received(subject, now)
                elif kind == _ACKNOWLEDGED:
                    self._has_sent(subject, now)
                elif kind == _AWAKE:
                    self._has_slept(subject, now)
                else:
                    self._drained(self._pairs[subject], version, now)
            if self._dirty:
                self._reallocate(now)
        return max(self.completed_ns)

    def _schedule(self, at: float, kind: int, subject: int, version: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, kind, subject, version))

    def _wake_at(self, member: int, at: float) -> None:
        self._schedule(at, _AWAKE, member)

    def _start(self, operation: Start, now: float) -> None:
        busy = {m: self._queued_ns(self._of(m).notice_link, now) > 0 for m in operation.receives}
        if operation.sends_first:
            self._post_sends(operation.sends, now)
        for message in operation.receives:
            connection = self._of(message)
            arrives = now + connection.notice_ns + self._queued_ns(connection.notice_link, now)
            if busy[message]:
                # Then all are sending, and its last port has a frame of theirs before it.
                frame = min(self._wire[message], connection.frame_bytes)
                arrives += frame * connection.ns_per_byte
            self._schedule(arrives, _INVITED, message)
        if not operation.sends_first:
            self._post_sends(operation.sends, now)

    def _of(self, message: int) -> Connection:
        return self._connections[self._source[message], self._destination[message]]

    def _queued_ns(self, link: int, now: float) -> float:
        """How long a host's port needs for the payload that its own connections have put there."""
        if link == len(self._capacity):
            return 0.0  # both are on one host, and no port is between them
        queued = 0.0
        for pair in self._users.get(link, ()):
            connection = self._connections[pair]
            if connection.links[0] == link:
                sent = connection.rate * max(0.0, now - connection.since_ns)
                queued += max(0.0, connection.left_bytes - sent)
                queued += sum(self._wire[m] for m in islice(connection.queue, 1, None))
        return queued / self._capacity[link]

    def _admit(self, message: int, now: float) -> None:
        """The payload goes to the socket; it leaves behind what the connection still has to
        send.
        """
        pair = (self._source[message], self._destination[message])
        connection = self._connections[pair]
        connection.queue.append(message)
        if len(connection.queue) == 1:
            for link in connection.links:
                self._users.setdefault(link, set()).add(pair)
            self._transmit(connection, message, now)
        if connection.ack_ns is None:
            self._has_sent(message, now)

    def _transmit(self, connection: Connection, message: int, now: float) -> None:
        connection.left_bytes = self._wire[message]
        connection.since_ns = now + self._overhead_ns
        connection.rate = 0.0
        self._dirty.update(connection.links)
        if not connection.links:  # nothing that others send is in its way
            pair = self._pair_numbers[self._source[message], self._destination[message]]
            connection.version += 1
            self._schedule(connection.since_ns, _DRAINED, pair, connection.version)

    def _drained(self, pair: tuple[int, int], version: int, now: float) -> None:
        connection = self._connections[pair]
        if version != connection.version:
            return
        message = connection.queue.popleft()
        forwarded = min(self._wire[message], connection.frame_bytes) * connection.forwarding
        received = now + connection.fixed_ns + forwarded
        self._schedule(received, _RECEIVED, message)
        if connection.ack_ns is not None:
            self._schedule(received + connection.ack_ns, _ACKNOWLEDGED, message)
        if connection.queue:
            self._transmit(connection, connection.queue[0], now)
            return
        for link in connection.links:
            self._users[link].discard(pair)
        self._dirty.update(connection.links)

    def _reallocate(self, now: float) -> None:
        """New rates for the connections that share links, directly or through others, with a
        change.
        """
        links, pairs = set(self._dirty), set()
        pending = list(self._dirty)
        self._dirty.clear()
        while pending:
            for pair in self._users.get(pending.pop(), ()):
                if pair not in pairs:
                    pairs.add(pair)
                    for link in self._connections[pair].links:
                        if link not in links:
                            links.add(link)
                            pending.append(link)
        shared = [pair for pair in pairs if self._shares(pair)]
        for pair in pairs.difference(shared):
            self._set_rate(pair, min(self._capacity[n] for n in self._connections[pair].links), now)
        if shared:
            for pair, rate in zip(shared, self._fair_rates(shared), strict=True):
                self._set_rate(pair, rate, now)

    def _shares(self, pair: tuple[int, int]) -> bool:
        return any(len(self._users[link]) > 1 for link in self._connections[pair].links)

    def _fair_rates(self, pairs: list[tuple[int, int]]) -> list[float]:
        used = sorted({link for pair in pairs for link in self._connections[pair].links})
        number = {link: i for i, link in enumerate(used)}
        capacity = np.array(
            [
                self._capacity[n] / (self._sharing_factor if len(self._users[n]) > 1 else 1.0)
                for n in used
            ]
        )
        paths = [tuple(number[n] for n in self._connections[pair].links) for pair in pairs]
        rates: list[float] = max_min_rates(capacity, pad_paths(paths, len(used))).tolist()
        return rates

    def _set_rate(self, pair: tuple[int, int], rate: float, now: float) -> None:
        connection = self._connections[pair]
        if rate == connection.rate:
            return
        sent = connection.rate * max(0.0, now - connection.since_ns)
        connection.left_bytes = max(0.0, connection.left_bytes - sent)
        connection.since_ns = max(now, connection.since_ns)
        connection.rate = rate
        connection.version += 1
        at = connection.since_ns + connection.left_bytes / rate
        self._schedule(at, _DRAINED, self._pair_numbers[pair], connection.version)


def connections_of(
    paths: Paths,
    ranks: Ints,
    pairs: tuple[Ints, Ints],
    shared: Ints,
    capacity: Floats,
    costs: MessageCosts,
) -> dict[tuple[int, int], Connection]:
    """The connection of each pair of members; `ranks` has the rank of each. `shared` has the links
    that each pair shares with others, as a path matrix, whose rates are in `capacity`."""
    source, destination = pairs
    there = paths.costs(ranks[source], ranks[destination])
    backward = paths.follow(ranks[destination], ranks[source])
    back = paths.costs_of(backward)
    notice = costs.notification_ns(back)
    fixed = costs.tail_ns(there, 0.0)
    acks = costs.acknowledgement_ns(back)
    ns_per_byte = costs.ns_per_byte(back)
    forwarding = there.sum_ns_per_byte - there.ns_per_byte
    return {
        (a, b): Connection(
            links=tuple(n for n in shared[i].tolist() if n < len(capacity)),
            notice_link=int(backward[i, 0]),
            notice_ns=float(notice[i]),
            ns_per_byte=float(ns_per_byte[i]),
            fixed_ns=float(fixed[i]),
            forwarding=float(forwarding[i]),
            frame_bytes=float(costs.wire.full_frame_bytes),
            ack_ns=None if acks is None else float(acks[i]),
        )
        for i, (a, b) in enumerate(zip(source.tolist(), destination.tolist(), strict=True))
    }
