"""All ranks of a fabric sending as fast as they can, each to the next one."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from emulator.linux.real_time import RANK, use_real_time_priority
from emulator.network.network import Network

_WARM_UP_S = 0.2
_PATIENCE_S = 60.0
_PORT = 29600


@contextmanager
def streaming(
    network: Network,
    hosts: Sequence[str],
    patience_s: float = _PATIENCE_S,
    as_ranks: bool = False,
) -> Iterator[None]:
    """During the block a process on every host streams over TCP to the next host. `as_ranks` gives
    it a rank's priority, for links that make it wait. Needs root. Raises OSError when not all of
    them send within `patience_s`."""
    listeners = [_open_socket(network, host, _PORT + rank) for rank, host in enumerate(hosts)]
    senders = [_open_socket(network, host) for host in hosts]
    children: list[int] = []
    started, starting = os.pipe()
    try:
        for listener in listeners:
            listener.listen()
        for rank, listener in enumerate(listeners):
            target = listeners[(rank + 1) % len(hosts)].getsockname()
            children.append(_fork_rank(listener, senders[rank], target, starting, as_ranks))
        _wait_for_all(started, len(hosts), patience_s)
        time.sleep(_WARM_UP_S)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for end in (*listeners, *senders):
            end.close()
        os.close(started)
        os.close(starting)


def _open_socket(network: Network, host: str, port: int = 0) -> socket.socket:
    with network.enter(host):
        made = socket.socket()
    made.bind((str(network.fabric.by_name[host].address), port))
    return made


def _wait_for_all(started: int, ranks: int, patience_s: float) -> None:
    """Returns when every rank has sent; a machine that is busy may take a while for that."""
    deadline = time.monotonic() + patience_s
    sending = 0
    while sending < ranks:
        if not select.select([started], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise OSError(f"{sending} of {ranks} ranks got to sending after {patience_s:.0f} s")
        sending += len(os.read(started, ranks))


def _fork_rank(
    listener: socket.socket,
    sender: socket.socket,
    target: tuple[str, int],
    starting: int,
    as_rank: bool,
) -> int:
    """A child that sends to `target` and throws away what it gets, until it is killed. It writes a
    byte to `starting` when it has sent its first block."""
    child = os.fork()
    if child:
        return child
    try:
        if as_rank:
            use_real_time_priority(RANK)
        sender.connect(target)
        receiver, _ = listener.accept()
        threading.Thread(target=_discard, args=(receiver,), daemon=True).start()
        block = bytes(1 << 18)
        sender.sendall(block)
        os.write(starting, b".")
        while True:
            sender.sendall(block)
    finally:
        os._exit(0)


def _discard(receiver: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while receiver.recv_into(buffer):
        pass
