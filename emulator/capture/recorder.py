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
from emulator.capture.ring_room import (
    Backend,
    frames_in_real_time,
    frames_in_virtual_time,
    pause_ns,
)
from emulator.linux.namespaces import enter
from emulator.linux.signals import ignore_ending_signals
from emulator.ports.idle_filler import FILLER_ETHERTYPE

# Time stamps are switched on by the kernel's worker thread, some time after the request.
_STAMPS_ON_S: Final = 0.02
FLUSH: Final = "flush"
STOP: Final = "stop"
"""The questions to the process; each is answered by a list of CaptureStats."""


@dataclass(frozen=True)
class CapturePlan:
    """The ports to capture; crosses the fork as it is. `backend` auto is rings in virtual time,
    where there is memory for them, and sockets elsewhere. Without `real_time` reading takes no
    time. `held_ns` is how long interfaces hold what they receive; packets are captured after that.
    """

    ports: tuple[CapturePort, ...]
    directory: Path
    snaplen: int
    backend: Backend
    filter: str | None
    real_time: bool
    held_ns: int


@dataclass
class _Tap:
    port: CapturePort
    capture: CaptureSocket
    file: PcapFile
    counter: Counter


def record(plan: CapturePlan, control: Connection) -> None:
    """Body of the capture process.

    Sends "ring" or "socket" once every packet is being captured so, or the message of an error;
    answers FLUSH, and goes on; stops at anything else or when the other end is gone, and answers.
    """
    ignore_ending_signals()
    try:
        taps, backend, pause_s = _open(plan)
    except (OSError, CaptureError) as error:
        control.send(str(error))
        return
    try:
        control.send(backend)
        while _loop(taps, control, pause_s):
            control.send([_flush(tap) for tap in taps])
        stats = [_finish(tap) for tap in taps]
    except OSError as error:
        control.send(f"{plan.directory}: {error}")
        return
    control.send(stats)


def _open(plan: CapturePlan) -> tuple[list[_Tap], str, float]:
    """The ports' taps, the backend that they have, and for how long packets may gather."""
    if plan.filter is None:
        keep = PacketFilter.keep(plan.snaplen)
    else:
        keep = PacketFilter.compiled(plan.filter, plan.snaplen)
    keep = keep.without(FILLER_ETHERTYPE)
    opened: list[tuple[CapturePort, CaptureSocket]] = []
    rings = _rings(plan)
    if rings is not None:
        from emulator.capture.ring_socket import RingSocket
    else:
        from emulator.capture.plain_socket import PlainSocket
    for number, port in enumerate(plan.ports):
        try:
            enter(port.netns_path)
            capture: CaptureSocket
            if rings is not None:
                capture = RingSocket(port.interface, plan.snaplen, keep, rings[number])
            else:
                capture = PlainSocket(port.interface, plan.snaplen, keep)
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
    if rings is None:
        return taps, "socket", 0.0
    # In virtual time the kernel wakes the reader when half of a ring is full (patch 0022).
    return taps, "ring", pause_ns(min(rings, default=0)) / 1e9 if plan.real_time else 0.0


def _rings(plan: CapturePlan) -> tuple[int, ...] | None:
    """How many packets each port's ring holds; None where packets are read one by one."""
    if plan.backend == "socket" or (plan.backend == "auto" and plan.real_time):
        return None
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if plan.real_time:
        count = len(plan.ports)
        return (frames_in_real_time(count, plan.snaplen, free_bytes),) * count
    rates = [port.rate_bps for port in plan.ports]
    return frames_in_virtual_time(plan.backend, rates, plan.held_ns, plan.snaplen, free_bytes)


def _loop(taps: Sequence[_Tap], control: Connection, pause_s: float) -> bool:
    """Write what comes until somebody asks; whether that is for FLUSH."""
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
            # A ring holds what comes meanwhile: fewer, larger batches cost less. Whoever stops the
            # capture does not wait for that.
            if select.select([control], [], [], pause_s)[0]:
                break
            events = [descriptor for descriptor, _ in poller.poll(0)]
        for descriptor in events:
            if descriptor in by_descriptor:
                tap = by_descriptor[descriptor]
                tap.capture.drain(tap.file)
    poller.close()
    try:
        return bool(control.recv() == FLUSH)
    except EOFError:
        return False


def _flush(tap: _Tap) -> CaptureStats:
    while tap.capture.drain(tap.file):
        pass
    tap.counter.read()
    tap.file.flush()
    return _stats(tap)


def _finish(tap: _Tap) -> CaptureStats:
    shut(tap.capture.socket)
    while tap.capture.drain(tap.file):
        pass
    tap.counter.read()
    tap.capture.close()
    tap.file.close()
    return _stats(tap)


def _stats(tap: _Tap) -> CaptureStats:
    return CaptureStats(
        node=tap.port.node,
        interface=tap.port.interface,
        file=tap.file.path.name,
        seen=tap.counter.seen,
        dropped=tap.counter.dropped,
        written=tap.file.packets,
        file_bytes=tap.file.size_bytes,
    )
