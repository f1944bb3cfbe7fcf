"""The carrier of programs' messages where it is not TCP, and what a transport has to have for
predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.predict.engines.wire import Wire
from analysis.runs.run import RankLog
from simulation.columns import Column
from topologies.spec.sections import Sections
from topologies.spec.transports.connections import ONE, Connections

if TYPE_CHECKING:  # these are told of carriers themselves
    from analysis.predict.interface import Setting


class Carrier(ABC):
    """The ends of a transport between ranks, as predictors follow them."""

    protocol: int
    """The number of its protocol in IPv4's header, which routers hash."""

    port: int
    """The port that its packets go to."""

    stamps: bool
    """Whether ports write into its packets as these leave."""

    between_ranks: Connections = ONE
    """The connections of two ranks."""

    values: int = 1
    """The ports that the packets of an end leave from by turns, how many."""

    def port_of(self, port: int, value: int) -> int:
        """The port of an entropy value, of an end that has told of `port`."""
        return port

    @abstractmethod
    def wire(self, mtu_bytes: int, outer_bytes: int = 0) -> Wire:
        """How its messages lie on links of this MTU, where so many bytes wrap each packet."""

    in_port: tuple[int, int]
    """How many packets of an end its host's port has at most, and how few there are when the end
    sends on."""

    @abstractmethod
    def columns(self, setting: Setting, line_rates_bps: Sequence[int]) -> dict[str, Column]:
        """Its settings as the packet engine takes them, and those of its devices by these rates
        (simulation/engine/README.md)."""

    @abstractmethod
    def ports(self, log: RankLog) -> Iterator[tuple[str, int, int]]:
        """From a rank's log: the group, the peer, and the port that both send from to each
        other."""


class PredictedTransport(ABC):
    """A transport as predictors know it."""

    @abstractmethod
    def carrier(self, spec: Sections) -> Carrier | None:
        """The carrier of programs' messages; None where all goes through sockets."""

    @abstractmethod
    def unknown(self, spec: Sections) -> str | None:
        """Why no predictor can answer for what ranks send over it, in words; None where they
        can."""
