"""TCP flows over the fabric of a `queue_lab.Lab`, with what they had received by when."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testing.queue_lab import Lab


@dataclass
class TcpFlow:
    """One TCP flow that has been received: (time in ns, bytes by then), and the sender's socket."""

    points: list[tuple[int, int]] = field(default_factory=list)
    sender: socket.socket | None = None

    def bytes_at(self, time_ns: float) -> float:
        """Bytes received by then, interpolated between wake-ups of the receiver."""
        before = (self.points[0][0], 0)
        for point in self.points:
            if point[0] > time_ns:
                share = (time_ns - before[0]) / (point[0] - before[0])
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]

    def goodput_bps(self, start_ns: float, end_ns: float) -> float:
        return (self.bytes_at(end_ns) - self.bytes_at(start_ns)) * 8e9 / (end_ns - start_ns)

    def steady_bps(self) -> float:
        """Goodput from a tenth to nine tenths of the transfer, by whole wake-ups of a receiver."""
        size = self.points[-1][1]
        a = next(p for p in self.points if p[1] >= 0.1 * size)
        b = next(p for p in self.points if p[1] >= 0.9 * size)
        return (b[1] - a[1]) * 8e9 / (b[0] - a[0])


def transfer(
    lab: Lab,
    pairs: Sequence[tuple[str, str]],
    size_bytes: int | None = None,
    seconds: float | None = None,
    *,
    low_water_bytes: int = 64_000,
    stagger_ns: int = 0,
    during: Callable[[list[TcpFlow]], None] | None = None,
    tos: int = 0,
) -> list[TcpFlow]:
    """One TCP flow per (sender, receiver), all at once, of a size or for a time.

    `during` is called in a thread of its own when all have been connected.
    """
    flows = [TcpFlow() for _ in pairs]
    stop = threading.Event()
    listeners = []
    for i, (_, to) in enumerate(pairs):
        with lab.network.enter(to):
            listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water_bytes)
        listener.bind(("0.0.0.0", 6000 + i))
        listener.listen()
        listeners.append(listener)

    def receive(i: int) -> None:
        connection, _ = listeners[i].accept()
        discard = bytearray(1 << 20)
        total = 0
        while size_bytes is None or total < size_bytes:
            # MSG_TRUNC: discard without copying (tcp(7)).
            got = connection.recv_into(discard, len(discard), socket.MSG_TRUNC)
            if not got:
                break
            total += got
            flows[i].points.append((time.monotonic_ns(), total))
        connection.close()

    def transmit(i: int) -> None:
        if stagger_ns:
            time.sleep(i * stagger_ns / 1e9)
        source = flows[i].sender
        assert source is not None
        left = size_bytes
        block = memoryview(bytes(1 << 20))
        while not stop.is_set() and (left is None or left > 0):
            sent = source.send(block if left is None else block[:left])
            if left is not None:
                left -= sent
        # The end wakes a receiver that waits for more than there is left.
        source.shutdown(socket.SHUT_WR)

    threads = []
    for i, (sender, to) in enumerate(pairs):
        threads.append(threading.Thread(target=receive, args=(i,), daemon=True))
        threads[-1].start()
        with lab.network.enter(sender):
            source = socket.socket()
        source.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        source.connect((lab.address(to), 6000 + i))
        flows[i].sender = source
    senders = [threading.Thread(target=transmit, args=(i,), daemon=True) for i in range(len(pairs))]
    for thread in senders:
        thread.start()
    if during is not None:
        during(flows)
    if seconds is not None:
        time.sleep(seconds)
        stop.set()
    for thread in senders:
        thread.join()
    if seconds is None:
        for thread in threads:
            thread.join()
    for flow in flows:
        assert flow.sender is not None
        flow.sender.close()
    for thread in threads:
        thread.join()
    return flows
