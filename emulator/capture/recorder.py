"""The capture process: opens every port's socket, writes until told to stop, accounts for all."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from emulator.capture.packet_filter import PacketFilter
from emulator.capture.packet_socket import CaptureSocket, Counter, shut
from emulator.capture.pcap_file import PcapFile
from emulator.capture.port import CaptureError, CapturePort, CaptureStats
from emulator.capture.ring_room import frames_per_port
from emulator.linux.namespaces import enter
from emulator.linux.signals import ignore_ending_signals
from emulator.ports.idle_filler import FILLER_ETHERTYPE

# Half a ring at one packet every 60 ns: 100 Gb/s of 700-byte packets, or of 9000-byte ones
# and their acknowledgements with room to spare.
_FILL_NS_PER_FRAME: Final = 30
# Time stamps are switched on by the kernel's worker thread, some time after the request.
_STAMPS_ON_S: Final = 0.02


@dataclass(frozen=True)
class CapturePlan:
    """What to capture; crosses the fork as it is."""

    ports: tuple[CapturePort, ...]
    directory: Path
    snaplen: int
    backend: str
    filter: str | None
    real_time: bool


@dataclass
class _Tap:
    port: CapturePort
    capture: CaptureSocket
    file: PcapFile
    counter: Counter


def record(plan: CapturePlan, control: Connection) -> None:
    """Body of the capture process.

    Sends "ready" once every packet is being captured, or the message of an error; stops
    when anything comes back or the other end is gone; then sends the list of CaptureStats.
    """
    ignore_ending_signals()
    try:
        taps, pause_s = _open(plan)
    except (OSError, CaptureError) as error:
        control.send(str(error))
        return
    try:
        control.send("ready")
        _loop(taps, control, pause_s)
        stats = [_finish(tap) for tap in taps]
    except OSError as error:
        control.send(f"{plan.directory}: {error}")
        return
    control.send(stats)


def _open(plan: CapturePlan) -> tuple[list[_Tap], float]:
    if plan.filter is None:
        keep = PacketFilter.keep(plan.snaplen)
    else:
        keep = PacketFilter.compiled(plan.filter, plan.snaplen)
    keep = keep.without(FILLER_ETHERTYPE)
    opened: list[tuple[CapturePort, CaptureSocket]] = []
    pause_s = 0.0
    frames = 0
    if plan.backend == "ring":
        from emulator.capture.ring_socket import RingSocket

        free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        frames = frames_per_port(len(plan.ports), plan.snaplen, free_bytes, plan.real_time)
        pause_s = frames * _FILL_NS_PER_FRAME / 1e9
    else:
        from emulator.capture.scapy_socket import ScapySocket
    for port in plan.ports:
        try:
            enter(port.netns_path)
            capture: CaptureSocket
            if plan.backend == "ring":
                capture = RingSocket(port.interface, plan.snaplen, keep, frames)
            else:
                capture = ScapySocket(port.interface, plan.snaplen, keep)
        except OSError as error:
            raise CaptureError(
                f"cannot capture at {port.interface} of {port.node}: {error.strerror or error}"
            ) from error
        opened.append((port, capture))
    time.sleep(_STAMPS_ON_S)
    taps = []
    for port, capture in opened:
        file = PcapFile(plan.directory / port.file_name, plan.snaplen)
        taps.append(_Tap(port, capture, file, Counter(capture.socket)))
        capture.open()
    return taps, pause_s


def _loop(taps: Sequence[_Tap], control: Connection, pause_s: float) -> None:
    poller = select.epoll()
    by_descriptor = {tap.capture.socket.fileno(): tap for tap in taps}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLIN)
    poller.register(control.fileno(), select.EPOLLIN)
    while True:
        events = [descriptor for descriptor, _ in poller.poll()]
        if control.fileno() in events:
            break
        if pause_s:
            # A ring holds what comes meanwhile: fewer, larger batches cost less.
            time.sleep(pause_s)
            for tap in taps:
                tap.capture.drain(tap.file)
        else:
            for descriptor in events:
                tap = by_descriptor[descriptor]
                tap.capture.drain(tap.file)
    poller.close()


def _finish(tap: _Tap) -> CaptureStats:
    shut(tap.capture.socket)
    while tap.capture.drain(tap.file):
        pass
    tap.counter.read()
    tap.capture.close()
    tap.file.close()
    return CaptureStats(
        node=tap.port.node,
        interface=tap.port.interface,
        file=tap.file.path.name,
        seen=tap.counter.seen,
        dropped=tap.counter.dropped,
        written=tap.file.packets,
        file_bytes=tap.file.size_bytes,
    )
