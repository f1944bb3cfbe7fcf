"""The congestion-aware backend: links carry one message at a time, first come first served."""

from collections import deque
from itertools import pairwise

from analysis.astra.errors import AstraRefused
from analysis.astra.events import EventQueue
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.network.mailbox import Mailbox, MessageInFlight


class OneWayLink:
    """One direction of a link. Busy for floor(size / bandwidth) per message."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = False
        self.waiting: deque[MessageInFlight] = deque()


class AwareNetwork(Mailbox):
    """Store and forward of whole messages over the links of a one-dimensional network.

    Per link a message takes floor(latency + size / bandwidth); the next may start
    floor(size / bandwidth) after it (astra-network-analytical, congestion_aware/network).
    A Ring's message goes clockwise when both ways are equally long.
    """

    def __init__(self, events: EventQueue, config: NetworkConfig) -> None:
        """Raises AstraRefused for what the original refuses: more dimensions, a Ring of two."""
        super().__init__(events)
        if len(config.dimensions) != 1:
            raise AstraRefused(
                "ASTRA-sim's congestion-aware backend takes networks of one dimension, "
                f"found {len(config.dimensions)}"
            )
        self._dimension = config.dimensions[0]
        if self._dimension.topology == "Ring" and self._dimension.npus == 2:
            raise AstraRefused(
                "a Ring of 2 NPUs on the congestion-aware backend: ASTRA-sim connects the same "
                "link twice and aborts; use FullyConnected"
            )
        self._links: dict[tuple[int, int], OneWayLink] = {}
        self._routes: dict[tuple[int, int], tuple[OneWayLink, ...]] = {}
        self._times: dict[int, tuple[int, int]] = {}

    def _transmit(
        self, message: MessageInFlight, source: int, destination: int, size_bytes: int
    ) -> None:
        ends = (source, destination)
        route = self._routes.get(ends)
        if route is None:
            route = self._routes[ends] = self._find_route(source, destination)
        times = self._times.get(size_bytes)
        if times is None:
            times = self._times[size_bytes] = self._link_times(size_bytes)
        message.way = (iter(route), *times)
        self._next_link(message)

    def _next_link(self, message: MessageInFlight) -> None:
        """The message is at a device: over the next link of its route, or it has arrived."""
        for link in message.way[0]:
            if link.busy:
                link.waiting.append(message)
            else:
                link.busy = True
                self._start(link, message)
            return
        self._deliver(message)

    def _start(self, link: OneWayLink, message: MessageInFlight) -> None:
        events = self.events
        now = events.now
        _, arrival_ns, serialisation_ns = message.way
        events.at(now + arrival_ns, self._next_link, message)
        events.at(now + serialisation_ns, self._release, link)

    def _release(self, link: OneWayLink) -> None:
        if link.waiting:
            self._start(link, link.waiting.popleft())
        else:
            link.busy = False

    def _link_times(self, size_bytes: int) -> tuple[int, int]:
        serialisation_ns = size_bytes / self._dimension.bytes_per_ns
        return int(self._dimension.latency_ns + serialisation_ns), int(serialisation_ns)

    def _find_route(self, source: int, destination: int) -> tuple[OneWayLink, ...]:
        if source == destination:
            raise AstraRefused(f"rank {source} sends to itself: ASTRA-sim aborts")
        path = _path(self._dimension, source, destination)
        return tuple(self._links.setdefault(ends, OneWayLink()) for ends in pairwise(path))


def _path(dimension: Dimension, source: int, destination: int) -> list[int]:
    """The devices on the way; a Switch is device number `npus`."""
    npus = dimension.npus
    if dimension.topology == "FullyConnected":
        return [source, destination]
    if dimension.topology == "Switch":
        return [source, npus, destination]
    clockwise = (destination - source) % npus
    if npus - clockwise < clockwise:
        return [(source - hop) % npus for hop in range(npus - clockwise + 1)]
    return [(source + hop) % npus for hop in range(clockwise + 1)]
