"""Captures at both hosts of a two-rank run, packet by packet on an exact schedule."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

from analysis import load_run
from analysis.decode.gloo.wire_format import Opcode, Preamble, Prefix, Slot
from tests.report.synthetic_run import COMPUTE_NS, START_NS, make_run

CLOCK_OFFSET_NS = 1_767_225_600_000_000_000
MTU, RATE_GBPS, HOP_NS = 9000, 100, 500
MSS = MTU - 52
SIZE = 524_288
"""The bytes that each of two ranks sends the other in an all-to-all of 1 MiB."""

PORTS = {0: 40_000, 1: 50_001}
ACK, PSH, SYN = 0x10, 0x08, 0x02
SPEC = "kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}"


def wire_ns(payload: int) -> float:
    """A frame on a 100 Gb/s link: payload, TCP/IP and options 52, Ethernet with L1 overhead 38."""
    return (payload + 52 + 38) * 8 / RATE_GBPS


@dataclass
class Talk:
    """The packets of the connection between ranks 0 and 1 in both hosts' captures. `macs` holds the
    source address by capture and whether the host itself sends (else its switch)."""

    macs: dict[tuple[int, bool], bytes]
    seen: dict[int, list[tuple[int, bytes]]] = field(default_factory=lambda: {0: [], 1: []})
    arrived: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {0: [], 1: []})

    def packet(
        self,
        side: int,
        time_ns: int,
        position: int,
        payload: bytes = b"",
        flags: int = ACK,
        *,
        late_ns: int = 0,
        marked: bool = False,
    ) -> int:
        """Sent at `time_ns` (first bit), received over a switch; returns the time of arrival."""
        arrival = round(time_ns + 2 * (wire_ns(len(payload)) + HOP_NS)) + late_ns
        known = max((end for at, end in self.arrived[side] if at <= time_ns), default=0)
        for end, at, ce in ((side, time_ns, False), (1 - side, arrival, marked)):
            frame = self._frame(side, position, known, payload, flags, ce)
            self.seen[end].append((at, bytes(6) + self.macs[end, end == side] + frame))
        self.arrived[1 - side].append((arrival, position + len(payload)))
        return arrival

    def _frame(
        self, side: int, position: int, known: int, payload: bytes, flags: int, ce: bool
    ) -> bytes:
        tcp = struct.pack(
            ">HHIIBBHHH", PORTS[side], PORTS[1 - side], 1001 + position,
            1001 + known, 8 << 4, flags, 500, 0, 0,
        ) + b"\x01\x01\x08\x0a" + bytes(8)  # fmt: skip
        addresses = [bytes((10, 0, 0, 2 + end)) for end in (side, 1 - side)]
        tos = 3 if ce else 2
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, tos, 52 + len(payload), 1, 0, 64, 6, 0, *addresses)
        return b"\x08\x00" + ip + tcp + payload

    def write(self, directory: Path, snaplen: int = 160) -> None:
        directory.mkdir()
        for end, packets in self.seen.items():
            content = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, 1)]
            for time_ns, frame in sorted(packets, key=lambda packet: packet[0]):
                seconds, rest = divmod(time_ns + CLOCK_OFFSET_NS, 10**9)
                kept = frame[:snaplen]
                content.append(struct.pack("<IIII", seconds, rest, len(kept), len(frame)) + kept)
            (directory / f"h{end}-eth0.pcap").write_bytes(b"".join(content))
        (directory / "index.json").write_text(json.dumps({"clock_offset_ns": CLOCK_OFFSET_NS}))


def message(opcode: Opcode, slot: Slot, size: int) -> bytes:
    carries = opcode is Opcode.SEND_UNBOUND_BUFFER
    preamble = Preamble(48 + (size if carries else 0), opcode, slot, 0, size, 0)
    return preamble.encode() + (bytes(size) if carries else b"")


def _macs(directory: Path) -> dict[tuple[int, bool], bytes]:
    fabric = load_run(directory).fabric
    found = {}
    for end in (0, 1):
        link = fabric.links_of[f"h{end}"][0]
        for itself, port in ((True, link.port(f"h{end}")), (False, link.other(f"h{end}"))):
            found[end, itself] = bytes.fromhex(port.mac.replace(":", ""))
    return found


def make_captured_run(directory: Path, trouble: bool = False, snaplen: int = 160) -> Path:
    """One iteration of two ranks, of which the forward all-to-all was captured: both ranks send
    back to back at the link's rate from START + COMPUTE + 10 us on.

    With `trouble`, of rank 0's packets the third arrives marked, the fifth 5 us late (behind
    others), and the eighth is sent a second time 50 us later.
    """
    make_run(directory, SPEC, 2, 1)
    slot = Slot(Prefix.ALLTOALL, 0, 0)
    talk = Talk(_macs(directory))
    # The higher rank connects, and says its rank.
    opened = START_NS - 1_000_000
    talk.packet(1, opened, -1, flags=SYN)
    talk.packet(0, opened + 10_000, -1, flags=SYN | ACK)
    talk.packet(1, opened + 20_000, 0)
    talk.packet(1, opened + 30_000, 0, struct.pack("<Q", 1), ACK | PSH)
    position = {0: 0, 1: 8}
    posted = START_NS + COMPUTE_NS
    for number, opcode in enumerate((Opcode.NOTIFY_RECV_READY, Opcode.NOTIFY_SEND_READY)):
        for side in (0, 1):
            data = message(opcode, slot, SIZE)
            talk.packet(side, posted + 1000 * (1 + number), position[side], data, ACK | PSH)
            position[side] += len(data)
    data = message(Opcode.SEND_UNBOUND_BUFFER, slot, SIZE)
    at = float(posted + 10_000)
    for number, start in enumerate(range(0, len(data), MSS)):
        payload = data[start : start + MSS]
        for side in (0, 1):
            arrival = talk.packet(
                side, round(at), position[side] + start, payload,
                late_ns=5_000 if trouble and side == 0 and number == 4 else 0,
                marked=trouble and side == 0 and number == 2,
            )  # fmt: skip
            # Acknowledged at once.
            talk.packet(1 - side, arrival, position[1 - side] + start)
        if trouble and number == 7:
            talk.packet(0, round(at) + 50_000, position[0] + start, payload)
        at += wire_ns(len(payload))
    talk.write(directory / "capture", snaplen)
    return directory
