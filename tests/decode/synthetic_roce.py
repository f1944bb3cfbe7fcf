"""RoCE conversations made up for tests with scapy: what two queue pairs would send each other.

The truth is known (`RoceWire.messages`), so that what is decoded can be held against it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from scapy.contrib.roce import AETH, BTH, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from analysis.decode.roce.queue_pairs import ConnectedPair, LoggedQueuePairs, QueuePair
from analysis.decode.roce.scapy_layers import RETH, ImmediateData
from analysis.decode.roce.wire_format import Opcode, udp_source_port
from tests.decode.synthetic_gloo import write_pcap

ADDRESSES = ("10.0.0.1", "10.0.0.2")
HEADERS = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC: what every packet has."""


@dataclass
class RoceWire:
    """Packets between two queue pairs, in the order of a capture."""

    numbers: tuple[int, int] = (17, 40)
    start_psns: tuple[int, int] = (0xFFFF_F0, 1_000)
    path_mtu: int = 1024
    time_ns: int = 1_700_000_000_000_000_000
    packets: list[tuple[int, bytes]] = field(default_factory=list)
    next_psn: list[int] = field(default_factory=list)
    sent: list[dict[int, Packet]] = field(default_factory=lambda: [{}, {}])
    messages: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(side, slot) -> bytes of data."""

    def __post_init__(self) -> None:
        self.next_psn = list(self.start_psns)

    @property
    def pair(self) -> ConnectedPair:
        ends = tuple(
            QueuePair(int.from_bytes(bytes(map(int, a.split(".")))), n)
            for a, n in zip(ADDRESSES, self.numbers, strict=True)
        )
        return ConnectedPair((ends[0], ends[1]), self.start_psns)

    @property
    def logged(self) -> LoggedQueuePairs:
        return LoggedQueuePairs("default", (0, 1), self.pair)

    def carry(self, side: int, layers: Packet) -> None:
        self.time_ns += 1_000
        port = udp_source_port(*self.numbers)
        ip = IP(src=ADDRESSES[side], dst=ADDRESSES[1 - side], tos=2)
        self.packets.append(
            (self.time_ns, bytes(Ether() / ip / UDP(sport=port, dport=4791) / layers))
        )

    def _bth(self, side: int, opcode: Opcode, psn: int, **fields: int) -> Packet:
        return BTH(opcode=opcode.value, dqpn=self.numbers[1 - side], psn=psn, **fields)

    def _send(self, side: int, opcode: Opcode, headers: list[Packet], payload: bytes) -> int:
        psn = self.next_psn[side]
        self.next_psn[side] = psn + 1 & 0xFF_FFFF
        pad = -len(payload) % 4
        packet = self._bth(side, opcode, psn, padcount=pad)
        for layer in headers:
            packet /= layer
        if payload:
            packet /= Raw(payload + bytes(pad))
        self.sent[side][psn] = packet
        self.carry(side, packet)
        return psn

    def write(self, side: int, slot: int, size: int) -> list[int]:
        """An RDMA WRITE with the slot as its immediate; the PSNs of its packets."""
        self.messages[side, slot] += size
        count = max(1, -(-size // self.path_mtu))
        psns = []
        for index in range(count):
            first, last = index == 0, index == count - 1
            headers: list[Packet] = [RETH(virtual_address=1 << 40, rkey=7, dma_length=size)] * first
            headers += [ImmediateData(immediate=slot)] * last
            opcode = {
                (True, True): Opcode.WRITE_ONLY_WITH_IMMEDIATE,
                (True, False): Opcode.WRITE_FIRST,
                (False, False): Opcode.WRITE_MIDDLE,
                (False, True): Opcode.WRITE_LAST_WITH_IMMEDIATE,
            }[first, last]
            length = min(self.path_mtu, size - index * self.path_mtu)
            psns.append(self._send(side, opcode, headers, b"\xab" * length))
        return psns

    def credit(self, side: int, slot: int) -> int:
        """A receiver's message when it has a buffer."""
        immediate: list[Packet] = [ImmediateData(immediate=slot)]
        return self._send(side, Opcode.SEND_ONLY_WITH_IMMEDIATE, immediate, bytes(16))

    def repeat(self, side: int, psn: int) -> None:
        self.carry(side, self.sent[side][psn])

    def answer(self, side: int, psn: int, syndrome: int = 0x1F) -> None:
        """An acknowledgement, or a NAK, of what the other side sent."""
        self.carry(side, self._bth(side, Opcode.ACKNOWLEDGE, psn) / AETH(syndrome=syndrome, msn=1))

    def notify(self, side: int) -> None:
        self.carry(side, cnp(self.numbers[1 - side]))

    def write_pcap(self, path: Path, snaplen: int = 160) -> Path:
        return write_pcap(path, self.packets, snaplen)
