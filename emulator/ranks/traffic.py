"""How much the ranks of a run are to send in an iteration, as they tell while it goes
(`workloads/observer/traffic.py`)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean

from emulator.network.network import Network
from emulator.progress import Progress, Report
from topologies.spec.spec import Spec

_LINE_BYTES = 4096
_GROWS = 1.5
"""Told anew when it has grown by so much."""


def traffic_socket(network: Network) -> Path:
    """The socket of a run, on no disk."""
    assert network.session is not None
    return network.session.directory / "traffic"


def tells_traffic(spec: Spec) -> bool:
    """Whether ranks tell how much they are to send, before it is sent: those with virtual GPUs."""
    if spec.jobs:
        return False
    program = spec.workload.program
    return program is not None and program.observe and program.gpus_per_host is not None


def links_of_a_message(spec: Spec) -> float:
    """How many links a message takes on the mean: from each rank to the next one."""
    hosts, routes = spec.plan.hosts, spec.plan.routes
    pairs = dict.fromkeys(zip(hosts, (*hosts[1:], hosts[0]), strict=True))
    lengths = [len(routes.paths(a, b)[0]) for a, b in pairs if a != b]
    return mean(lengths) if lengths else 0.0


class TrafficOfRanks:
    """Adds up what ranks have told of one iteration, and tells on: when all have told all of it,
    and before that whenever it is much more than was told."""

    def __init__(self, ranks: int, links: float, report: Report) -> None:
        """`links` is how many links count a byte that a rank sends."""
        self._ranks, self._links, self._report = ranks, links, report
        self._iteration = -1
        self._bytes: dict[int, int] = {}
        self._whole: set[int] = set()
        self._told_bytes = 0.0

    def hear(self, rank: int, iteration: int, sent_bytes: int, whole: bool) -> None:
        """A rank has posted so much in an iteration; `whole` when it has posted all of it."""
        if iteration < self._iteration:
            return
        if iteration > self._iteration:
            self._iteration, self._bytes, self._whole, self._told_bytes = iteration, {}, set(), 0.0
        self._bytes[rank] = sent_bytes
        if whole:
            self._whole.add(rank)
        every = sum(self._bytes.values()) * self._links
        is_all = len(self._whole) == self._ranks
        if every and (is_all or every >= _GROWS * self._told_bytes) and every != self._told_bytes:
            self._told_bytes = every
            self._report(Progress("traffic", of_iteration=iteration, to_send_bytes=round(every)))


@contextmanager
def traffic_heard(spec: Spec, network: Network, report: Report) -> Iterator[None]:
    """Inside of the block what ranks tell is reported: in bytes of all links, a byte once for each
    that it takes; over a simulated network in bytes that ranks send."""
    links = 1.0 if spec.simulated else links_of_a_message(spec)
    heard = TrafficOfRanks(len(spec.plan.hosts), links, report)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(traffic_socket(network)))
        thread = threading.Thread(target=_hear, args=(listener, heard.hear), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", str(traffic_socket(network)))
            thread.join()


def _hear(listener: socket.socket, hear: Callable[[int, int, int, bool], None]) -> None:
    while line := listener.recv(_LINE_BYTES):
        told = json.loads(line)
        hear(told["rank"], told["iteration"], told["bytes"], told["whole"])
