"""Bytes that messages take on a link over RoCEv2: RDMA WRITEs with immediate, credits, ACKs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.decode.roce.wire_format import IMMEDIATE_BYTES, RETH_BYTES
from topologies.ethernet import ETHERNET_BYTES
from topologies.spec.transports.roce.section import STOCK_ACK_EVERY

PACKET_BYTES = 20 + 8 + 12 + 4 + ETHERNET_BYTES
"""IPv4 20, UDP 8, base transport header 12, ICRC 4 (InfiniBand volume 1, chapter 9 and annex A17),
and Ethernet."""

CREDIT_BYTES = PACKET_BYTES + IMMEDIATE_BYTES + 16
"""A receiver's buffer, told to the sender: a SEND of address, key and length."""

ACK_BYTES = PACKET_BYTES + 4
"""An acknowledgement: a packet with an AETH."""

QUEUED_PACKETS, REFILLED_BELOW = 9, 4
"""A queue pair has so many packets in its host's port at most; then it waits until there are fewer
than the second (RXE_INFLIGHT_SKBS_PER_QP_HIGH and _LOW, emulator/kernel/patches)."""


@dataclass(frozen=True, slots=True)
class RoceWire:
    """Messages as RDMA WRITEs over one path MTU; sizes are scalars or arrays.

    An acknowledgement is asked for with each message's last packet, and with the last of so many
    packets without (`rxe_congestion_wants_ack` in emulator/kernel/rxe). `outer_bytes` are those of
    what wraps each packet.
    """

    path_mtu_bytes: int
    packets_per_ack: int = STOCK_ACK_EVERY
    is_selective: bool = False
    outer_bytes: int = 0

    @property
    def packet_bytes(self) -> int:
        """L1 bytes of a packet without payload."""
        return PACKET_BYTES + self.outer_bytes

    @property
    def ack_bytes(self) -> int:
        """L1 bytes of an acknowledgement."""
        return ACK_BYTES + self.outer_bytes

    @property
    def control_bytes(self) -> int:
        """L1 bytes of what a receiver tells the sender before a message."""
        return CREDIT_BYTES + self.outer_bytes

    @property
    def notice_bytes(self) -> int:
        """L1 bytes that leave a port with a message beside it and its acknowledgements: the credit
        of an equal one that comes in, and the acknowledgement of its own."""
        return self.control_bytes + self.ack_bytes

    @property
    def full_frame_bytes(self) -> int:
        """L1 bytes of a full packet."""
        return self.path_mtu_bytes + self.packet_bytes + RETH_BYTES * self.is_selective

    def packets(self, size_bytes: Any) -> Any:
        """Packets of a message."""
        return np.maximum(1, -(-np.asarray(size_bytes) // self.path_mtu_bytes))

    def data_bytes(self, size_bytes: Any) -> Any:
        """L1 bytes of a message with all headers, padded to four bytes."""
        size = np.asarray(size_bytes)
        padded = size + -size % 4
        packets = self.packets(size)
        reths = packets if self.is_selective else 1
        return padded + packets * self.packet_bytes + reths * RETH_BYTES + IMMEDIATE_BYTES

    def beside_bytes(self, size_bytes: Any) -> Any:
        """Acknowledgements of the message, its credit, and the acknowledgement of the one that its
        sender gives."""
        acks = 2 + (self.packets(size_bytes) - 1) // self.packets_per_ack
        return acks * self.ack_bytes + self.control_bytes

    def sides(self, size_bytes: int) -> tuple[int, int]:
        """An acknowledgement of the credit goes along; the credit and acknowledgements of the
        message go against it."""
        return self.ack_bytes, int(self.beside_bytes(size_bytes)) - self.ack_bytes

    @property
    def least_frame_bytes(self) -> int:
        """L1 bytes of a packet with one byte."""
        return self.packet_bytes + 1

    @property
    def completed_by_bytes(self) -> int | None:
        """An acknowledgement."""
        return self.ack_bytes

    def cut(self, size_bytes: int) -> tuple[int, float, float]:
        """Full packets of a message, the L1 bytes of each, and those of its last one, if that is
        not full as well; the headers of first and last are spread over the full ones."""
        full, rest = divmod(size_bytes, self.path_mtu_bytes)
        extra = RETH_BYTES * (not self.is_selective) + IMMEDIATE_BYTES
        if not full:
            return 0, 0.0, float(self.data_bytes(size_bytes))
        headers = self.packet_bytes + RETH_BYTES * self.is_selective
        last = rest + -rest % 4 + headers if rest else 0
        return full, self.full_frame_bytes + extra / full, float(last)

    def goodput_bps(self, rate_bps: int) -> float:
        """Highest rate of data of a link, in long messages."""
        return rate_bps * self.path_mtu_bytes / self.full_frame_bytes
