"""Traffic between nodes of a live network, from this process: sockets keep the namespace in which
they were made."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from emulator.network.network import Network
from emulator.ports.counters import PortCounters

_PATIENCE_S = 120
"""How long to wait for what must happen: a hang, on however slow a machine."""

UDP, TCP = socket.SOCK_DGRAM, socket.SOCK_STREAM


def open_socket(network: Network, node: str, kind: int, port: int = 0) -> socket.socket:
    """A socket of a node, bound to the node's address."""
    with network.enter(node):
        made = socket.socket(socket.AF_INET, kind)
    made.settimeout(_PATIENCE_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((str(network.fabric.by_name[node].address), port))
    return made


def echo_all_pairs(network: Network, nodes: list[str]) -> list[tuple[str, str]]:
    """Sends one datagram from every node to every other; the pairs that did not get through."""
    lost = []
    with ExitStack() as stack:
        ends = {n: stack.enter_context(open_socket(network, n, UDP, 7)) for n in nodes}
        for end in ends.values():
            end.settimeout(10)
        for source in nodes:
            for target in nodes:
                if source == target:
                    continue
                payload = f"{source}>{target}".encode()
                ends[source].sendto(payload, (str(network.fabric.by_name[target].address), 7))
                try:
                    got, sender = ends[target].recvfrom(100)
                except TimeoutError:
                    lost.append((source, target))
                    continue
                assert got == payload
                assert sender[0] == str(network.fabric.by_name[source].address)
    return lost


def counters_when(
    network: Network, reached: Callable[[list[PortCounters]], bool]
) -> list[PortCounters]:
    """The counters of all ports, once they have `reached` what they must, which a busy machine may
    take a while for. Fails when they do not."""
    deadline = time.monotonic() + _PATIENCE_S
    while not reached(counters := network.port_counters()):
        assert time.monotonic() < deadline, counters
        time.sleep(0.01)
    return counters


def counters_when_sent(network: Network, target: str, packets: int) -> list[PortCounters]:
    """The counters of all ports, once `packets` have left the last port before `target`."""
    return counters_when(
        network, lambda ports: sum(p.packets for p in ports if p.peer == target) >= packets
    )


def transfer_seconds(
    network: Network, source: str, target: str, size_bytes: int, port: int = 5001
) -> float:
    """Seconds to move `size_bytes` over one TCP connection, from the first byte sent to the last
    received."""
    listener = open_socket(network, target, TCP, port)
    sender = open_socket(network, source, TCP)
    finished: list[float] = []

    def receive() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_PATIENCE_S)
            left = size_bytes
            while left > 0:
                left -= len(connection.recv(1 << 20))
        finished.append(time.monotonic())

    with listener, sender:
        listener.listen()
        thread = threading.Thread(target=receive)
        thread.start()
        sender.connect(listener.getsockname())
        start = time.monotonic()
        sender.sendall(bytes(size_bytes))
        thread.join(_PATIENCE_S)
    return finished[0] - start
