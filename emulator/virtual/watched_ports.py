"""The ports of a running guest and their samples, read from the host without the guest noticing.

Ports are structures of the guest's kernel (emulator/kernel/gwport_port.h). `gwport_listed` is the
list of all, and `gwport_layout` says where in them is what is read here
(emulator/kernel/gwport_report.c).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from emulator.ports.port_qdisc import PortSample
from emulator.virtual.variables import KernelVariable, address_of

_FIELDS = 9
_NAME_BYTES = 16  # IFNAMSIZ
_SAMPLE = struct.Struct("<5Q2I")
_MOST_PORTS, _MOST_SAMPLES = 1 << 17, 1 << 20
"""More are none: what was read had changed meanwhile."""


@dataclass(frozen=True)
class _Layout:
    """Offsets in bytes, as `gwport_layout` has them, and how many samples are in a block."""

    listed: int
    device: int
    name: int
    samples: int
    count: int
    interval: int
    in_block: int
    sample_bytes: int
    block_samples: int


class WatchedPorts:
    """Reads the samples of all ports of a guest. Nobody stops the guest for that: a port whose
    samples change while they are read is left out, and is there the next time."""

    def __init__(self, pid: int, symbols: Path) -> None:
        """`pid` is the guest's first process, `symbols` its kernel's System.map. Raises ValueError
        for a kernel without the list of ports."""
        self._memory = Path(f"/proc/{pid}/mem")
        self._head = address_of(symbols, "gwport_listed")
        self._fields = [
            KernelVariable(pid, symbols, "gwport_layout", size_bytes=4, index=index)
            for index in range(_FIELDS)
        ]
        self._names: dict[int, str] = {}

    def read(self) -> dict[str, list[PortSample]]:
        """The samples of each port that has any, by its interface; empty before the guest has
        ports, and when it is gone. `ifindex` of these samples is 0: names tell ports apart."""
        numbers = [field.read() for field in self._fields]
        if any(number is None for number in numbers):
            return {}
        layout = _Layout(*(number or 0 for number in numbers))
        if layout.sample_bytes != _SAMPLE.size or layout.block_samples == 0:
            return {}
        try:
            with open(self._memory, "rb", buffering=0) as memory:
                file = memory.fileno()
                found = {}
                for port in self._ports(file, layout):
                    samples = _samples(file, layout, port)
                    if samples:
                        found[self._name(file, layout, port)] = samples
                return found
        except (OSError, struct.error):  # it has ended, or a port went while it was read
            return {}

    def _ports(self, file: int, layout: _Layout) -> Iterator[int]:
        at = _pointer(file, self._head)
        for _ in range(_MOST_PORTS):
            if at in (0, self._head):
                return
            yield at - layout.listed
            at = _pointer(file, at)

    def _name(self, file: int, layout: _Layout, port: int) -> str:
        if port not in self._names:
            device = _pointer(file, port + layout.device)
            text = os.pread(file, _NAME_BYTES, device + layout.name)
            self._names[port] = text.partition(b"\0")[0].decode("ascii", "replace")
        return self._names[port]


def _samples(file: int, layout: _Layout, port: int) -> list[PortSample]:
    """The samples of a port but its last, which may be half written; none where its interval
    changed."""
    interval_ns, count = _state(file, layout, port)
    if not 1 < count <= _MOST_SAMPLES:
        return []
    found: list[PortSample] = []
    head = port + layout.samples
    block = _pointer(file, head)
    while len(found) < count and block not in (0, head):
        many = min(layout.block_samples, count - len(found))
        data = os.pread(file, many * _SAMPLE.size, block + layout.in_block)
        for time_ns, backlog, peak, sent, drops, marks, paused in _SAMPLE.iter_unpack(data):
            found.append(
                PortSample(0, interval_ns, time_ns, backlog, peak, sent, drops, marks, paused)
            )
        block = _pointer(file, block)
    now_interval_ns, now_count = _state(file, layout, port)
    if now_interval_ns != interval_ns or now_count < count or len(found) != count:
        return []
    del found[-1]
    times = [sample.time_ns for sample in found]
    return found if all(a < b for a, b in pairwise(times)) else []


def _state(file: int, layout: _Layout, port: int) -> tuple[int, int]:
    """A port's interval in nanoseconds, and how many samples it has."""
    (count,) = struct.unpack("<I", os.pread(file, 4, port + layout.count))
    return _pointer(file, port + layout.interval), count


def _pointer(file: int, address: int) -> int:
    (found,) = struct.unpack("<Q", os.pread(file, 8, address))
    return int(found)
