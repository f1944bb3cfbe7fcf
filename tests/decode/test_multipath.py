"""Subflows of MPTCP put together from packets, whichever way the bytes of a stream went."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import Packets, read_pcap
from tests.decode.synthetic_gloo import write_pcap

_MPTCP = 30
_PORT = 7_000


class _Side:
    """An end of a connection: its key, its stream, and how much of it has been sent."""

    def __init__(self, draw: Random, address: str, length: int) -> None:
        self.address = address
        self.key = draw.randbytes(8)
        digest = sha256(self.key).digest()
        self.token, self.first = digest[:4], int.from_bytes(digest[-8:], "big")
        self.stream = draw.randbytes(length)
        self.sent = 0


class _Conversation:
    """Two ends that send their streams in turns by random subflows, each as RFC 8684 has it."""

    def __init__(self, seed: int, subflows: int, lengths: tuple[int, int]) -> None:
        self.draw = Random(seed)
        self.sides = (
            _Side(self.draw, "10.0.0.1", lengths[0]),
            _Side(self.draw, "10.0.0.2", lengths[1]),
        )
        self.frames: list[Packet] = []
        self.ports: list[int] = []
        self.numbers: list[list[int]] = []
        """By subflow and side: the next number that it sends."""
        self.starts: list[list[int]] = []
        for number in range(subflows):
            self._open(number)

    def packet(
        self, subflow: int, side: int, flags: str, option: bytes, payload: bytes = b"",
        sequence: int | None = None,
    ) -> None:  # fmt: skip
        here, there = self.sides[side], self.sides[1 - side]
        ports = (self.ports[subflow], _PORT)
        numbers = self.numbers[subflow]
        self.frames.append(
            Ether()
            / IP(src=here.address, dst=there.address)
            / TCP(
                sport=ports[side], dport=ports[1 - side], flags=flags,
                seq=numbers[side] if sequence is None else sequence, ack=numbers[1 - side],
                options=[("NOP", None), ("NOP", None), ("Timestamp", (1, 2)), (_MPTCP, option)],
            )
            / Raw(payload)
        )  # fmt: skip
        if sequence is None:
            numbers[side] = numbers[side] + len(payload) + ("S" in flags) & 0xFFFF_FFFF

    def _open(self, number: int) -> None:
        self.ports.append(40_000 + number)
        begin = [self.draw.randrange(2**32) for _ in range(2)]
        self.numbers.append(begin)
        self.starts.append(list(begin))
        asks, answers = self.sides
        if number == 0:
            self.packet(0, 0, "S", b"\x01\x01")
            self.packet(0, 1, "SA", b"\x01\x01" + answers.key)
            self.packet(0, 0, "A", b"\x01\x01" + asks.key + answers.key)
            return
        self.packet(number, 0, "S", b"\x10\x01" + answers.token + b"\0" * 4)
        self.packet(number, 1, "SA", b"\x10\x01" + b"\0" * 12)
        self.packet(number, 0, "A", b"\x10\x00" + b"\0" * 20)

    def _signal(self, side: int, mapping: tuple[int, int, int] | None) -> bytes:
        """A DSS option of `side`: what it has of the other's stream, and a mapping (where its bytes
        are in the stream, in the subflow, and how many)."""
        here, there = self.sides[side], self.sides[1 - side]
        long = self.draw.random() < 0.5
        acknowledged = there.first + 1 + there.sent & 2**64 - 1
        flags = 1 | (2 if long else 0)
        option = acknowledged.to_bytes(8, "big")[0 if long else 4 :]
        if mapping is not None:
            flags |= 4 | 8
            at = here.first + 1 + mapping[0] & 2**64 - 1
            option += at.to_bytes(8, "big") + mapping[1].to_bytes(4, "big")
            option += mapping[2].to_bytes(2, "big")
        return bytes([0x20, flags]) + option

    def send(self, side: int) -> None:
        """Some bytes, in one or two packets of a mapping, of which the second may say nothing; now
        and then once more by another subflow."""
        here = self.sides[side]
        subflow = self.draw.randrange(len(self.ports))
        count = min(self.draw.randint(1, 60), len(here.stream) - here.sent)
        self._carry(side, subflow, here.sent, count)
        if self.draw.random() < 0.2:
            self._carry(side, self.draw.randrange(len(self.ports)), here.sent, count)
        here.sent += count
        self.packet(subflow, 1 - side, "A", self._signal(1 - side, None))

    def _carry(self, side: int, subflow: int, position: int, count: int) -> None:
        text = self.sides[side].stream[position : position + count]
        place = self.numbers[subflow][side] - self.starts[subflow][side] & 0xFFFF_FFFF
        signal = self._signal(side, (position, place, count))
        cut = self.draw.randint(1, count)
        self.packet(subflow, side, "A", signal, text[:cut])
        if cut < count:
            silent = self.draw.random() < 0.5
            again = self._signal(side, None) if silent else signal
            self.packet(subflow, side, "A", again, text[cut:])

    def capture(self, path: Path) -> Packets:
        write_pcap(path, [(1_000 * n, bytes(frame)) for n, frame in enumerate(self.frames)])
        return read_pcap(path)


@pytest.mark.parametrize("seed", range(12))
def test_streams_are_what_was_written(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    lengths = draw.randint(1, 900), draw.randint(1, 900)
    subflows = 1 + seed % 5
    talk = _Conversation(seed, subflows, lengths)
    while any(side.sent < len(side.stream) for side in talk.sides):
        side = talk.draw.randrange(2)
        if talk.sides[side].sent < len(talk.sides[side].stream):
            talk.send(side)
    packets = talk.capture(tmp_path / "a.pcap")
    (found,) = connections([packets])
    assert (found.forward.source.port, found.forward.destination.port) == (40_000, _PORT)
    others = talk.sides[::-1]
    for end, other, direction in zip(talk.sides, others, found.directions, strict=True):
        assert direction.origin_known
        assert direction.length_bytes == len(end.stream)
        assert direction.read(0, len(end.stream)) == end.stream
        assert direction.is_whole(0, len(end.stream))
        # Each packet once, whatever its subflow.
        (view,) = direction.views
        assert len(view.rows) == sum(frame[IP].src == end.address for frame in talk.frames)
        assert int(max(view.acknowledged)) <= len(other.stream)


def test_a_subflow_without_its_connections_handshake_stays_alone(tmp_path: Path) -> None:
    """As at a port by which only a further subflow goes."""
    talk = _Conversation(1, 2, (100, 100))
    for side in (0, 1, 0):
        talk.send(side)
    of_second = [frame for frame in talk.frames if 40_001 in (frame[TCP].sport, frame[TCP].dport)]
    talk.frames = of_second
    (found,) = connections([talk.capture(tmp_path / "a.pcap")])
    assert found.forward.source.port == 40_001


def test_a_connection_that_falls_back_is_of_tcp(tmp_path: Path) -> None:
    """A server of TCP alone answers without the option."""
    talk = _Conversation(1, 1, (100, 100))
    plain = talk.frames[:1]
    for frame in talk.frames[1:]:
        frame[TCP].options = frame[TCP].options[:3]
        plain.append(frame)
    talk.frames = plain
    start = talk.numbers[0][0]
    talk.packet(0, 0, "A", b"\x20\x00", talk.sides[0].stream)
    talk.frames[-1][TCP].options = talk.frames[-1][TCP].options[:3]
    assert talk.numbers[0][0] == start + 100 & 0xFFFF_FFFF
    (found,) = connections([talk.capture(tmp_path / "a.pcap")])
    assert found.forward.read(0, 100) == talk.sides[0].stream
