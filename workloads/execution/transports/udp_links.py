"""Messages between ranks as UDP datagrams: numbered, acknowledged one by one, sent again.

A message goes when both its ends are posted. The receiver tells the sender so (READY), and the
sender answers with the message in pieces (DATA). Both are numbered together, each way between two
ranks, and each is answered by an acknowledgement (ACK) of its number; what is not, is sent again
after the time-out. Datagrams may come in any order, which they do when several ports spread them
over paths.

The window in which a rank may send without an answer grows by a payload each round and is halved
when something is sent again, as TCP's does (additive increase, multiplicative decrease: Chiu and
Jain 1989).
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workloads.execution.transports.interface import EndLog, Links, RankEnds

if TYPE_CHECKING:
    from workloads.execution.transports.udp import UdpPlace

_TIMEOUT = timedelta(days=1)  # as process groups have it: virtual time cannot tell slow from stuck
_READY, _DATA, _ACK = range(3)
_HEADER = struct.Struct("!BHIIQ")
"""Its kind, its sender (a number in the group), its number, the message's slot, and where its
data belongs in that."""
_SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h
_BUFFER_BYTES = 64 * 2**20
_MOST_BYTES = 2**16


class UdpError(RuntimeError):
    """A rank that did not answer."""


class UdpMessage:
    """A message under way at one of its ends; it can be waited for, as torch's works are."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.left = len(data)
        """Bytes that have not come yet, or are not acknowledged."""
        self._over = Event()
        self._error: UdpError | None = None

    def wait(self) -> None:
        """Block until it is received, or acknowledged. Raises UdpError."""
        self._over.wait()
        if self._error is not None:
            raise self._error

    def end(self, error: UdpError | None = None) -> None:
        """It is complete, or will never be."""
        self._error = error
        self._over.set()


@dataclass(slots=True)
class _Datagram:
    """One that is not acknowledged. `message` is that of which it has a part."""

    header: bytes
    data: memoryview
    message: UdpMessage | None
    due_ns: int = 0
    tries: int = 0


@dataclass(slots=True)
class _Peer:
    """The datagrams between this rank and another."""

    rank: int
    address: tuple[str, int]
    window_bytes: float
    next_number: int = 0
    under_way: int = 0
    halved_ns: int = 0
    sent: int = 0
    again: int = 0
    unanswered: dict[int, _Datagram] = field(default_factory=dict)
    waiting: deque[tuple[int, int, int, UdpMessage | None]] = field(default_factory=deque)
    """A part that is to be sent: kind, slot, where it begins, and the message."""
    came_below: int = 0
    came: set[int] = field(default_factory=set)
    """The numbers that have come: all below the first, and these."""
    receives: dict[int, UdpMessage] = field(default_factory=dict)
    sends: dict[int, UdpMessage] = field(default_factory=dict)
    invited: set[int] = field(default_factory=set)


class UdpEnds(RankEnds):
    """A rank's sockets. To be made once the rank is in its network namespace."""

    def __init__(self, place: UdpPlace) -> None:
        self._place = place
        self._links: list[tuple[str, UdpLinks]] = []

    @property
    def place(self) -> UdpPlace:
        """Its place."""
        return self._place

    def links(
        self, store: dist.Store, name: str, ranks: Sequence[int], me: int, log: EndLog
    ) -> Links:
        """The sockets of a group."""
        made = UdpLinks(self._place, store, ranks, me)
        self._links.append((name, made))
        return made

    def finish(self, log: EndLog) -> None:
        """Log what each end has sent."""
        for name, links in self._links:
            links.log(name, log)


class UdpLinks:
    """A rank's sockets in a group: it hears at the first one, and sends from all by turns."""

    def __init__(self, place: UdpPlace, store: dist.Store, ranks: Sequence[int], me: int) -> None:
        """Waits for the whole group, whose own keys are in the store. Raises OSError."""
        self._place = place
        self._me = ranks.index(me)
        self._lock = Lock()
        self._error: UdpError | None = None
        self._sockets = [_socket(place.address) for _ in range(place.ports)]
        self._ports = [each.getsockname()[1] for each in self._sockets]
        store.set(f"{me}", json.dumps([place.address, self._ports[0]]))
        self._peers: dict[int, _Peer] = {}
        for number, rank in enumerate(ranks):
            if rank != me:
                store.wait([f"{rank}"], _TIMEOUT)
                address, port = json.loads(store.get(f"{rank}"))
                window = float(place.payload_bytes * 10)  # as TCP begins: RFC 6928
                self._peers[number] = _Peer(
                    rank, (address, port), min(window, float(place.window_bytes))
                )
        self._wakes, self._woken = socket.socketpair()
        Thread(target=self._work, daemon=True).start()

    def send(self, tensors: list[torch.Tensor], peer: int, slot: int) -> UdpMessage:
        """As torch's groups have it. Raises UdpError."""
        message = UdpMessage(_bytes_of(tensors))
        with self._lock:
            self._refuse_failed()
            mine = self._peers[peer]
            mine.sends[slot] = message
            if slot in mine.invited:
                mine.invited.remove(slot)
                self._line_up(mine, slot)
                self._fill(mine)
        self._wakes.send(b"1")
        return message

    def recv(self, tensors: list[torch.Tensor], peer: int, slot: int) -> UdpMessage:
        """As torch's groups have it. Raises UdpError."""
        message = UdpMessage(_bytes_of(tensors))
        with self._lock:
            self._refuse_failed()
            mine = self._peers[peer]
            mine.receives[slot] = message
            mine.waiting.append((_READY, slot, 0, None))
            self._fill(mine)
        self._wakes.send(b"1")
        return message

    def log(self, group: str, log: EndLog) -> None:
        """The datagrams to each of the others, and how many of them were sent again."""
        for peer in self._peers.values():
            told = {"transport": "udp", "ports": self._ports, "sent": peer.sent}
            log.end("end", group, peer.rank, told | {"again": peer.again})

    def _refuse_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _line_up(self, peer: _Peer, slot: int) -> None:
        """A message's pieces; one at least, though it be empty."""
        message = peer.sends[slot]
        for at in range(0, max(1, len(message.data)), self._place.payload_bytes):
            peer.waiting.append((_DATA, slot, at, message))

    def _fill(self, peer: _Peer) -> None:
        """Send what the window has room for; one datagram always has."""
        size = self._place.payload_bytes
        while peer.waiting and (not peer.unanswered or peer.under_way + size <= peer.window_bytes):
            kind, slot, at, message = peer.waiting.popleft()
            data = memoryview(b"") if message is None else message.data[at : at + size]
            header = _HEADER.pack(kind, self._me, peer.next_number, slot, at)
            datagram = _Datagram(header, data, message)
            peer.unanswered[peer.next_number] = datagram
            peer.under_way += len(data)
            self._put(peer, peer.next_number, datagram)
            peer.next_number += 1

    def _put(self, peer: _Peer, number: int, datagram: _Datagram) -> None:
        datagram.due_ns = time.monotonic_ns() + self._place.timeout_ns
        peer.sent += 1
        by = self._sockets[(number + datagram.tries) % len(self._sockets)]
        with suppress(OSError):  # no route, or a link that is down: as if it was lost on the way
            by.sendmsg([datagram.header, datagram.data], (), 0, peer.address)

    def _work(self) -> None:
        hears = self._sockets[0]
        buffer = bytearray(_MOST_BYTES)
        while True:
            with self._lock:
                wait_s = self._send_again()
            ready, _, _ = select.select([hears, self._woken], [], [], wait_s)
            if self._woken in ready:
                self._woken.recv(4096)
            if hears in ready:
                with self._lock:
                    for _ in range(64):
                        try:
                            count = hears.recv_into(buffer, 0, socket.MSG_DONTWAIT)
                        except BlockingIOError:
                            break
                        if count >= _HEADER.size:
                            self._take(memoryview(buffer)[:count])

    def _take(self, datagram: memoryview) -> None:
        kind, number_of_peer, number, slot, at = _HEADER.unpack_from(datagram)
        peer = self._peers.get(number_of_peer)
        if peer is None:
            return
        if kind == _ACK:
            self._answered(peer, number)
            return
        answer = _HEADER.pack(_ACK, self._me, number, slot, 0)
        with suppress(OSError):
            self._sockets[0].sendto(answer, peer.address)
        if number < peer.came_below or number in peer.came:
            return
        peer.came.add(number)
        while peer.came_below in peer.came:
            peer.came.remove(peer.came_below)
            peer.came_below += 1
        if kind == _READY:
            if slot in peer.sends:
                self._line_up(peer, slot)
                self._fill(peer)
            else:
                peer.invited.add(slot)
            return
        message = peer.receives[slot]
        data = datagram[_HEADER.size :]
        message.data[at : at + len(data)] = data
        message.left -= len(data)
        if message.left <= 0:
            del peer.receives[slot]
            message.end()

    def _answered(self, peer: _Peer, number: int) -> None:
        datagram = peer.unanswered.pop(number, None)
        if datagram is None:
            return
        size = len(datagram.data)
        peer.under_way -= size
        grown = peer.window_bytes + self._place.payload_bytes * size / peer.window_bytes
        peer.window_bytes = min(float(self._place.window_bytes), grown)
        message = datagram.message
        if message is not None:
            message.left -= size
            if message.left <= 0:
                slot = _HEADER.unpack(datagram.header)[3]
                if peer.sends.get(slot) is message:
                    del peer.sends[slot]
                message.end()
        self._fill(peer)

    def _send_again(self) -> float | None:
        """Send again what is due; seconds until something is, None where nothing will be."""
        now, next_ns = time.monotonic_ns(), None
        for peer in self._peers.values():
            for number, datagram in peer.unanswered.items():
                if datagram.due_ns <= now:
                    datagram.tries += 1
                    if datagram.tries > self._place.retries:
                        self._fail(f"rank {peer.rank} did not answer {datagram.tries} times")
                        return None
                    peer.again += 1
                    self._put(peer, number, datagram)
                    if now - peer.halved_ns >= self._place.timeout_ns:
                        least = float(self._place.payload_bytes)
                        peer.window_bytes = max(least, peer.window_bytes / 2)
                        peer.halved_ns = now
                if next_ns is None or datagram.due_ns < next_ns:
                    next_ns = datagram.due_ns
        return None if next_ns is None else max(0.0, (next_ns - now) / 1e9)

    def _fail(self, said: str) -> None:
        """End all messages: the rank cannot go on."""
        self._error = UdpError(f"transport.kind: udp: {said}")
        for peer in self._peers.values():
            for works in (peer.receives, peer.sends):
                for work in works.values():
                    work.end(self._error)
                works.clear()
            peer.unanswered.clear()
            peer.waiting.clear()


def _bytes_of(tensors: list[torch.Tensor]) -> memoryview:
    (tensor,) = tensors
    assert tensor.is_contiguous()
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())


def _socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with suppress(OSError):  # beyond net.core.rmem_max, as root
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    made.bind((address, 0))
    return made
