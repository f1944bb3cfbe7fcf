"""The statements of every transport in a spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from topologies.spec.queue_section import SpecSection, TrafficClassName
from topologies.spec.transports.connections import ONE, Connections

if TYPE_CHECKING:
    from topologies.spec.transports.tcp.section import TcpTransport


class TransportSection(SpecSection, ABC):
    """The section `transport` of a spec.

    `of_programs`: programs of collectives send their messages between ends that are not sockets,
    and Gloo's own go over TCP beside them. Else all that ranks send goes through sockets.
    `by_queue_pairs`: these ends are queue pairs of a device, and no call of a socket copies them.
    """

    of_programs: ClassVar[bool]
    by_queue_pairs: ClassVar[bool] = False
    kind: str

    @property
    @abstractmethod
    def tcp(self) -> TcpTransport:
        """TCP as the hosts run it."""

    @abstractmethod
    def words(self, ecn: bool) -> str:
        """The transport in words. `ecn` is whether TCP negotiates ECN."""

    @property
    def hears_of_trims(self) -> bool:
        """Whether its ends hear of packets that have lost their payload (`fabric.queue.trim`)."""
        return False

    @property
    def between_ranks(self) -> Connections:
        """The connections of two ranks for messages of programs."""
        return ONE

    @property
    def flows_per_socket(self) -> int:
        """How many flows a socket's bytes go by, each with ports of its own."""
        return 1

    @property
    def own_class(self) -> TrafficClassName:
        """The class of its packets, where it is not that of the ranks' sockets."""
        return None
