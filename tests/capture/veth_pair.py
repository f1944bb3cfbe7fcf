"""Two hosts joined by one veth pair, and what the capture tests ask of any kernel."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyroute2 import NetNS, netns

from analysis.decode.tcp.pcap import read_pcap
from emulator.capture import CapturePort, start_capture
from emulator.linux.namespaces import entered

ADDRESSES = ("10.9.0.1", "10.9.0.2")
NAMESPACES = Path("/var/run/netns")
_SO_RCVBUFFORCE = 33
_BURST = 300


@dataclass(frozen=True)
class Pair:
    """The ports of h0 and h1."""

    ports: tuple[CapturePort, CapturePort]

    def socket(self, host: int, kind: int, port: int = 0) -> socket.socket:
        with entered(self.ports[host].netns_path):
            made = socket.socket(socket.AF_INET, kind)
        made.settimeout(120)
        made.bind((ADDRESSES[host], port))
        return made

    def transfer(self, size_bytes: int) -> None:
        """Bytes over TCP from h0 to h1."""
        with self.socket(1, socket.SOCK_STREAM, 5000) as server:
            server.listen()
            source = self.socket(0, socket.SOCK_STREAM)

            def send() -> None:
                with source:
                    source.connect((ADDRESSES[1], 5000))
                    source.sendall(bytes(size_bytes))

            sender = threading.Thread(target=send)
            sender.start()
            with server.accept()[0] as taken:
                while taken.recv(1 << 20):
                    pass
            sender.join()

    def datagrams(self, count: int, payload_bytes: int) -> None:
        """Numbered datagrams from h0 to h1, until all have arrived: as fast as they go, but never
        more at once than the receive backlog of a processor holds (1000)."""
        with (
            self.socket(1, socket.SOCK_DGRAM, 6000) as target,
            self.socket(0, socket.SOCK_DGRAM) as source,
        ):
            target.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BURST * 8192)
            for first in range(0, count, _BURST):
                burst = range(first, min(first + _BURST, count))
                for number in burst:
                    data = struct.pack("<I", number).ljust(payload_bytes, b".")
                    source.sendto(data, (ADDRESSES[1], 6000))
                for _ in burst:
                    target.recv(payload_bytes)


@contextmanager
def veth_pair(rate_bps: int = 0) -> Iterator[Pair]:
    """`rate_bps` puts a token bucket on h0's egress, where this kernel has one."""
    names = tuple(f"gwcap{os.getpid()}{end}" for end in "ab")
    for name in names:
        netns.create(name)
    try:
        with NetNS(names[0]) as first, NetNS(names[1]) as second:
            first.link("add", ifname="h0-eth0", kind="veth",
                       peer={"ifname": "h1-eth0", "net_ns_fd": names[1]})  # fmt: skip
            for space, interface, address in zip(
                (first, second), ("h0-eth0", "h1-eth0"), ADDRESSES, strict=True
            ):
                index = space.link_lookup(ifname=interface)[0]
                space.link("set", index=index, state="up", gso_max_size=1514, gso_max_segs=1)
                space.addr("add", index=index, address=address, prefixlen=24)
            if rate_bps:
                index = first.link_lookup(ifname="h0-eth0")[0]
                first.tc("add", "tbf", index, rate=rate_bps // 8, burst=1600, limit=1 << 20)
        # Neighbours and IPv6 settle before anything is counted.
        time.sleep(0.1)
        yield Pair(
            tuple(  # type: ignore[arg-type]
                CapturePort(f"h{host}", f"h{host}-eth0", NAMESPACES / name, 10**10)
                for host, name in enumerate(names)
            )
        )
    finally:
        for name in names:
            netns.remove(name)


def check_both_backends_agree(directory: Path, exact_times: bool) -> None:
    """One conversation, captured by both: the same packets, byte for byte.

    With `exact_times` (one processor, virtual time) also in the same order, and with the same times
    for arriving packets: a veth keeps the sender's departure time on a packet, so each tap stamps
    arriving ones for itself, and where time does not stand still between two taps, that shows.
    """
    snaplen = 160
    with veth_pair() as pair:
        captures = {
            name: start_capture(pair.ports, directory / name, snaplen, name)
            for name in ("socket", "ring")
        }
        pair.transfer(3_000_000)
        pair.datagrams(200, 1000)
        stats = {name: capture.stop() for name, capture in captures.items()}
    for both in stats.values():
        assert [s.invalid_reason for s in both] == [None, None]
        assert all(s.written == s.seen > 500 for s in both)
    for port in pair.ports:
        one, other = (read_pcap(directory / name / port.file_name) for name in stats)
        # A packet that came between the two starts, or stops, only one can have: it is no IPv4.
        rows = [np.flatnonzero(p.is_tcp | p.is_udp) for p in (one, other)]
        assert len(rows[0]) == len(rows[1]) > 500
        if not exact_times:
            # A port is passed on several processors at once, in one direction too (TCP sends from
            # the writer, from arriving acknowledgements and from timers): which of two packets
            # comes first, each tap sees for itself. A sender numbers its packets, though.
            rows = [
                r[np.lexsort((p.ip_identification[r], p.source[r]))]
                for p, r in zip((one, other), rows, strict=True)
            ]
        for name in ("wire_bytes", "captured_bytes", "sequence", "payload_bytes", "source"):
            assert (getattr(one, name)[rows[0]] == getattr(other, name)[rows[1]]).all(), name
        for a, b in zip(*rows, strict=True):
            frames = [
                p.data[p.offset[r] : p.offset[r] + p.captured_bytes[r]].tobytes()
                for p, r in ((one, a), (other, b))
            ]
            assert frames[0] == frames[1]
        apart = np.abs(one.timestamp_ns[rows[0]] - other.timestamp_ns[rows[1]])
        leaving = one.source[rows[0]] == (0x0A090001 if port.node == "h0" else 0x0A090002)
        assert leaving.any() and not leaving.all()
        assert (apart[leaving] == 0).all()
        assert apart.max() <= (0 if exact_times else 50_000_000)
        assert one.captured_bytes.max() == snaplen < one.wire_bytes.max()
        if exact_times:
            assert (np.diff(one.timestamp_ns[rows[0]][leaving]) >= 0).all()


def check_numbered_datagrams(
    directory: Path, backend: str, rate_bps: int = 0, real_time: bool = True
) -> None:
    """Every packet once and in order, and nothing left behind at the stop."""
    with veth_pair(rate_bps) as pair:
        capture = start_capture(
            pair.ports,
            directory,
            200,
            backend,  # type: ignore[arg-type]
            real_time=real_time,
        )
        pair.datagrams(3000, 64)
        stats = capture.stop()
    assert [s.invalid_reason for s in stats] == [None, None]
    for port in pair.ports:
        packets = read_pcap(directory / port.file_name)
        rows = np.flatnonzero(packets.is_udp & (packets.destination_port == 6000))
        numbers = [
            int.from_bytes(packets.data[at : at + 4].tobytes(), "little")
            for at in packets.payload_offset[rows].tolist()
        ]
        assert numbers == list(range(3000))


def paced_datagrams(directory: Path) -> list[tuple[int, int]]:
    """50 datagrams at once into a token bucket of 8 Mb/s that holds one packet: how far apart
    the first and the last of them are stamped, leaving and arriving, and what the rate says.

    A frame of 1042 bytes takes 1.042 ms, so if the stamp were that of the queueing, they
    would all carry about the same.
    """
    with veth_pair(rate_bps=8_000_000) as pair:
        capture = start_capture(pair.ports, directory, backend="ring")
        pair.datagrams(50, 1000)
        stats = capture.stop()
    assert [s.invalid_reason for s in stats] == [None, None]
    spreads = []
    for name in ("h0-eth0.pcap", "h1-eth0.pcap"):
        packets = read_pcap(directory / name)
        times = packets.timestamp_ns[packets.is_udp]
        assert len(times) == 50
        # Full, the bucket lets one and a half go at once; 48 have to wait for all their tokens.
        spreads.append((int(times[-1] - times[0]), 48 * 1_042_000))
    return spreads
