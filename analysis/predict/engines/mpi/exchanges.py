"""What ranks do in an exchange (`collectives.mpi.exchange`), compiled for the engines.

A rank's receives are posted from the beginning. A message that is announced has two small ones
before it, there and back, which the rank's library handles whatever the rank itself is doing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.predict.engines.member_programs import Await, Operation, Start
from analysis.predict.engines.wire import (
    HEADER_BYTES,
    SEGMENTS_PER_ACK,
    TCP_IP_BYTES,
    full_frame_bytes,
    goodput_bps,
)
from collectives.mpi.exchange import Exchange

_HEADER_BYTES = 22
"""Before the data of a message of OpenMPI: 8 of `mca_btl_tcp_hdr_t` and 14 of
`mca_pml_ob1_match_hdr_t` (btl_tcp_hdr.h, pml_ob1_hdr.h)."""
_ANNOUNCED_BYTES = 18
"""What an announcement has beyond that (`mca_pml_ob1_rendezvous_hdr_t`); about as much an
answer."""


@dataclass(frozen=True, slots=True)
class MpiWire:
    """OpenMPI's messages over TCP. Nothing goes before them that is no message of its own."""

    mtu_bytes: int

    @property
    def control_bytes(self) -> int:
        """None: what is announced is followed as messages (`compile_exchange`)."""
        return 0

    @property
    def notice_bytes(self) -> int:
        """None, too."""
        return 0

    @property
    def full_frame_bytes(self) -> int:
        """As of TCP."""
        return full_frame_bytes(self.mtu_bytes)

    def data_bytes(self, size_bytes: Any) -> Any:
        """L1 bytes of a message with all headers; scalar or array."""
        size = np.asarray(size_bytes) + _HEADER_BYTES
        return size + -(-size // (self.mtu_bytes - TCP_IP_BYTES)) * HEADER_BYTES

    def beside_bytes(self, size_bytes: Any) -> Any:
        """Acknowledgements of a message that comes in meanwhile, on average."""
        size = np.asarray(size_bytes) + _HEADER_BYTES
        packets = -(-size // (self.mtu_bytes - TCP_IP_BYTES))
        return packets / SEGMENTS_PER_ACK * HEADER_BYTES

    def cut(self, size_bytes: int) -> tuple[int, float, float]:
        """A message's header is in its first segment."""
        mss = self.mtu_bytes - TCP_IP_BYTES
        full, rest = divmod(size_bytes + _HEADER_BYTES, mss)
        return full, mss + HEADER_BYTES, rest + HEADER_BYTES if rest else 0

    def goodput_bps(self, rate_bps: int) -> float:
        """As of TCP."""
        return goodput_bps(rate_bps, self.mtu_bytes)


@dataclass(slots=True)
class CompiledExchange:
    """`programs` are those of the ranks, one each, and then the libraries'; `members` has the rank
    of each. Messages are numbered from 0, with their ends by rank (`source`, `destination`) and by
    program (`sender`, `receiver`)."""

    programs: list[list[Operation]]
    members: list[int]
    source: list[int] = field(default_factory=list)
    destination: list[int] = field(default_factory=list)
    sender: list[int] = field(default_factory=list)
    receiver: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)

    def _message(self, source: int, destination: int, ends: tuple[int, int], size: int) -> int:
        self.source.append(source)
        self.destination.append(destination)
        self.sender.append(ends[0])
        self.receiver.append(ends[1])
        self.size_bytes.append(size)
        return len(self.source) - 1

    def _library(self, rank: int) -> int:
        self.programs.append([])
        self.members.append(rank)
        return len(self.programs) - 1

    def add(self, source: int, destination: int, size: int, eager: bool) -> tuple[int, int]:
        """(what the sender posts, what the receiver waits for) of a message."""
        if eager:
            number = self._message(source, destination, (source, destination), size)
            return number, number
        here, there = self._library(source), self._library(destination)
        asked = self._message(source, destination, (source, there), _ANNOUNCED_BYTES)
        answer = self._message(destination, source, (there, here), _ANNOUNCED_BYTES)
        data = self._message(source, destination, (here, destination), size)
        self.programs[there] += [Await([], [asked]), Start([answer], [])]
        self.programs[here] += [Await([], [answer]), Start([data], [])]
        return asked, data


def compile_exchange(exchange: Exchange) -> CompiledExchange:
    """What ranks do, and what their libraries do."""
    ranks = len(exchange.acts)
    compiled = CompiledExchange([[] for _ in range(ranks)], list(range(ranks)))
    ends = [
        compiled.add(source, destination, size, size <= exchange.eager_bytes)
        for source, destination, size in exchange.messages
    ]
    for rank, acts in enumerate(exchange.acts):
        program = compiled.programs[rank]
        coming: list[int] = []
        for act in acts:
            if act < 0:
                coming.append(ends[~act][1])
                continue
            if coming:
                program.append(Await([], coming))
                coming = []
            program.append(Start([ends[act][0]], []))
        if coming:
            program.append(Await([], coming))
    return compiled
