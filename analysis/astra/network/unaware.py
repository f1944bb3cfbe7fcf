"""The congestion-unaware backend: a message's delay depends on nothing but its way and size."""

from analysis.astra.errors import AstraRefused
from analysis.astra.events import EventQueue
from analysis.astra.files.network import NetworkConfig
from analysis.astra.network.mailbox import Mailbox, MessageInFlight


class UnawareNetwork(Mailbox):
    """floor(hops * latency + size / bandwidth), in the first dimension where the addresses differ.

    Hops: FullyConnected 1, Switch 2, Ring the shorter way round (astra-network-analytical,
    congestion_unaware/basic-topology and multi-dim-topology).
    """

    def __init__(self, events: EventQueue, config: NetworkConfig) -> None:
        super().__init__(events)
        self._addresses = [_address(rank, config) for rank in range(config.npus)]
        self._bytes_per_ns = [d.bytes_per_ns for d in config.dimensions]
        # By dimension and distance clockwise: the latency of the whole way.
        self._way_ns = [
            [_hops(d.topology, distance, d.npus) * d.latency_ns for distance in range(d.npus)]
            for d in config.dimensions
        ]
        self._npus = [d.npus for d in config.dimensions]

    def delay_ns(self, source: int, destination: int, size_bytes: int) -> int:
        """Nanoseconds from sending to arrival."""
        here, there = self._addresses[source], self._addresses[destination]
        for dimension, (a, b) in enumerate(zip(here, there, strict=True)):
            if a != b:
                way_ns = self._way_ns[dimension][(b - a) % self._npus[dimension]]
                return int(way_ns + size_bytes / self._bytes_per_ns[dimension])
        raise AstraRefused(f"rank {source} sends to itself: ASTRA-sim aborts")

    def _transmit(
        self, message: MessageInFlight, source: int, destination: int, size_bytes: int
    ) -> None:
        events = self.events
        events.at(
            events.now + self.delay_ns(source, destination, size_bytes), self._deliver, message
        )


def _address(rank: int, config: NetworkConfig) -> tuple[int, ...]:
    address = []
    for dimension in config.dimensions:
        rank, position = divmod(rank, dimension.npus)
        address.append(position)
    return tuple(address)


def _hops(topology: str, distance: int, npus: int) -> int:
    if topology == "Ring":
        return min(distance, npus - distance)
    return 2 if topology == "Switch" else 1
