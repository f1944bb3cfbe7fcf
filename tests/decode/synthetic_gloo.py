"""Gloo conversations made up for tests: what two ranks would write, as packets of a capture.

The truth is known (`Written`), so that what is decoded from a cut capture can be held
against it.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from analysis.decode.gloo.wire_format import Opcode, Preamble, Slot
from collectives.schedule.gloo import PREAMBLE_BYTES

SIDES = ("10.0.0.2", "10.0.0.1")
PORTS = (40_000, 41_000)
ACK, PSH, SYN, FIN = 0x10, 0x08, 0x02, 0x01


@dataclass(frozen=True)
class Transfer:
    """`size` bytes from one side to the other under a slot."""

    side: int
    slot: Slot
    size: int


@dataclass
class Written:
    """The stream of one side, and where each message lies in it."""

    stream: bytearray = field(default_factory=bytearray)
    messages: list[tuple[int, Preamble]] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    """For each message, what of the other side's stream its writer had received before."""

    def write(
        self, opcode: Opcode, slot: Slot, size: int, after: int, random_data: random.Random
    ) -> None:
        carries = opcode is Opcode.SEND_UNBOUND_BUFFER
        nbytes = PREAMBLE_BYTES + (size if carries else 0)
        preamble = Preamble(nbytes, opcode, slot, 0, size, 0)
        self.messages.append((len(self.stream), preamble))
        self.after.append(after)
        self.stream += preamble.encode()
        if carries:
            self.stream += random_data.randbytes(size)


def converse(
    transfers: list[Transfer], seed: int, at_once: int = 2, overlap: bool = False
) -> tuple[Written, Written]:
    """Both sides' streams for these transfers, `at_once` of them under way at a time.

    Each is a rendezvous as in gloo/transport/tcp/pair.cc: announcements from both ranks in
    either order, then the data. Slots follow each other unless they may `overlap`.
    """
    rng = random.Random(seed)
    sides = Written(), Written()
    sides[0].stream += struct.pack("<Q", 1)
    waiting = deque(transfers)
    active: list[tuple[Transfer, list[str], list[int]]] = []
    received = [0, 0]  # data of earlier slots that each side had before it went on
    slot = None
    while waiting or active:
        fits = not active or (
            len(active) < at_once
            and (overlap or (bool(waiting) and waiting[0].slot == active[0][0].slot))
        )
        if waiting and fits and (not active or rng.random() < 0.5):
            active.append((waiting.popleft(), ["sender", "receiver"], [0]))
            if active[-1][0].slot != slot and not overlap:
                slot = active[-1][0].slot
                received = [len(sides[1].stream), len(sides[0].stream)]
            continue
        transfer = active[rng.randrange(len(active))][0]
        # Messages of one slot and side keep their order.
        number = next(
            i for i, (t, _, _) in enumerate(active)
            if (t.side, t.slot) == (transfer.side, transfer.slot)
        )  # fmt: skip
        transfer, missing, answer = active[number]
        if missing:
            who = missing.pop(rng.randrange(len(missing)))
            side = transfer.side if who == "sender" else 1 - transfer.side
            opcode = Opcode.NOTIFY_SEND_READY if who == "sender" else Opcode.NOTIFY_RECV_READY
            sides[side].write(opcode, transfer.slot, transfer.size, received[side], rng)
            if who == "receiver":
                answer[0] = len(sides[side].stream)
        else:
            sides[transfer.side].write(
                Opcode.SEND_UNBOUND_BUFFER, transfer.slot, transfer.size, answer[0], rng
            )
            active.pop(number)
    return sides


@dataclass
class Wire:
    """Packets of one connection, in the order of a capture."""

    time_ns: int = 1_700_000_000_000_000_000
    packets: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[int] = field(default_factory=lambda: [0, 0])
    initial: tuple[int, int] = (0xFFFF_F000, 77)

    def packet(self, side: int, flags: int, position: int, payload: bytes = b"") -> None:
        self.time_ns += 1_000
        options = b"\x01\x01\x08\x0a" + struct.pack(
            ">II", self.time_ns // 1000 & 0xFFFF_FFFF, self.time_ns // 2000 & 0xFFFF_FFFF
        )
        tcp = struct.pack(
            ">HHIIBBHHH",
            PORTS[side],
            PORTS[1 - side],
            (self.initial[side] + 1 + position) & 0xFFFF_FFFF,
            (self.initial[1 - side] + 1 + self.sent[1 - side]) & 0xFFFF_FFFF,
            8 << 4,
            flags,
            500,
            0,
            0,
        )
        ip = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 2, 52 + len(payload), 1, 0x4000, 64, 6, 0,
            *(bytes(map(int, SIDES[s].split("."))) for s in (side, 1 - side)),
        )  # fmt: skip
        frame = b"\x02" * 6 + b"\x04" * 6 + b"\x08\x00" + ip + tcp + options + payload
        self.packets.append((self.time_ns, frame))
        self.sent[side] = max(self.sent[side], position + len(payload))

    def carry(self, sides: tuple[Written, Written], mss: int, seed: int, losses: bool) -> None:
        """Segments of both streams, cut where chance has it, some repeated, all acknowledged."""
        rng = random.Random(seed)
        self.packet(0, SYN, -1)
        self.packet(1, SYN | ACK, -1)
        self.packet(0, ACK, 0)
        # The hello is written before the pair exists, so it travels alone.
        self.packet(0, ACK | PSH, 0, bytes(sides[0].stream[:8]))
        while any(self.sent[side] < len(sides[side].stream) for side in (0, 1)):
            side = rng.randrange(2)
            stream, start = sides[side].stream, self.sent[side]
            if start == len(stream):
                continue
            # A writer rarely waits for the queue to empty: segments are mostly full, and a
            # message begins wherever the one before it ended.
            end = min(len(stream), start + mss)
            held = [
                position
                for (position, _), after in zip(
                    sides[side].messages, sides[side].after, strict=True
                )
                if position >= start and after > self.sent[1 - side]
            ]
            end = min([end, *held])
            if end == start:
                continue
            ends = [p for p, _ in sides[side].messages if start < p < end]
            if ends and rng.random() < 0.4:
                end = rng.choice(ends)
            self.packet(side, ACK | PSH, start, bytes(stream[start:end]))
            if losses and rng.random() < 0.1:
                back = rng.randint(0, start)
                self.packet(side, ACK, back, bytes(stream[back : min(back + mss, end)]))
            if rng.random() < 0.5:
                self.packet(1 - side, ACK, self.sent[1 - side])
        for side in (0, 1):
            self.packet(side, FIN | ACK, len(sides[side].stream))

    def write_pcap(self, path: Path, snaplen: int) -> Path:
        return write_pcap(path, self.packets, snaplen)


def write_pcap(
    path: Path,
    packets: list[tuple[int, bytes]],
    snaplen: int = 65_535,
    order: str = "<",
    nanoseconds: bool = True,
) -> Path:
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, 1)]
    for time_ns, frame in packets:
        seconds, rest = divmod(time_ns, 1_000_000_000)
        kept = frame[:snaplen]
        fraction = rest if nanoseconds else rest // 1000
        parts.append(struct.pack(order + "IIII", seconds, fraction, len(kept), len(frame)))
        parts.append(kept)
    path.write_bytes(b"".join(parts))
    return path
