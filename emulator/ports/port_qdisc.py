"""The port qdisc (`emulator/kernel/sch_gwport.c`): its options and its statistics.

The two structs of `emulator/kernel/gwport.h` are declared in
`emulator/linux/messages/additions.py`; a size that does not agree is refused by the kernel and
here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

from emulator.linux.messages.formats import (
    GWPORT,
    GWPORT_CLASSES,
    GWPORT_PARMS,
    GWPORT_STATISTICS,
    TC_H_ROOT,
)
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import change_qdisc, qdisc
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES
from topologies.spec.queue_section import CLASSES

QDISC = "gwport"
HANDLE = 0x10000
VERSION = 4
_fields = attrgetter(*[name for name, _ in GWPORT_PARMS.fields])
NEVER = 2**64 - 1
"""No such threshold (`k_bytes`, `ce_threshold_ns`)."""

OWN_CLASS = sum(n << 4 * n for n in range(CLASSES))
"""`class_map` where each class selector is a class of its own."""


class QueueKind(IntEnum):
    """enum gwport_kind."""

    DROPTAIL = 0
    RED = 1
    DCTCP = 2
    CODEL = 3
    FQ_CODEL = 4
    SHARED = 5
    VOQ = 6
    LOSSLESS = 7
    CREDITS = 8
    CELLS = 9


class Flag(IntFlag):
    """GWPORT_F_*: mark rather than drop; the link carries nothing; samples that have no room are
    taken at twice the interval; what has no room loses its payload; the link leads to a host."""

    ECN = 1
    DOWN = 2
    COARSEN = 4
    TRIM = 8
    LAST = 16


NO_FLAGS = Flag(0)


DROP_REASONS = (
    "buffer",
    "red",
    "codel",
    "headroom",
    "link_down",
    "loss",
    "corruption",
    "receiver",
)
"""enum gwport_drop: no room; early; at the head; lossless, after headroom was used up; three
faults; refused by the device at the far end."""


def threshold_option(k_bytes: int | None) -> int:
    """A marking threshold as an option; None marks nothing."""
    return NEVER if k_bytes is None else k_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOptions:
    """struct tc_gwport_qopt. Rate is L1; `buffer_bytes` is the queue's, the switch's for shared
    and lossless, or a card's for cells; probabilities are `q32`, alpha is times 2^16. `classes` are
    those of all classes, in order, where each has a queue of its own; `class_map` has, 4 bits each,
    the class that serves a class selector."""

    version: ClassVar[int] = VERSION
    kind: QueueKind
    rate_bps: int
    delay_ns: int
    buffer_bytes: int
    k_bytes: int = NEVER
    kmin_bytes: int = 0
    kmax_bytes: int = 0
    target_ns: int = 0
    interval_ns: int = 0
    ce_threshold_ns: int = NEVER
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0
    extra_delay_ns: int = 0
    seed: int = 1
    sample_interval_ns: int = 0
    fabric_bps: int = 0
    fabric_ns: int = 0
    flags: Flag = NO_FLAGS
    overhead_bytes: int = L1_OVERHEAD_BYTES
    min_frame_bytes: int = 60
    queues: int = 1
    quantum_bytes: int = 0
    red_pmax_q32: int = 0
    red_weight_q32: int = 0
    alpha_q16: int = 0
    lossy_classes: int = 0
    loss_q32: int = 0
    corrupt_q32: int = 0
    sample_capacity: int = 0
    class_map: int = OWN_CLASS
    class_quantum_bytes: int = 0
    card: int = 0
    fabric_links: int = 0
    cell_bytes: int = 0
    cell_header_bytes: int = 0
    classes: tuple[PortOptions, ...] = ()

    def pack(self) -> bytes:
        """The body of TCA_OPTIONS. Raises ValueError for a value that does not fit its field."""
        try:
            packed = GWPORT.fill(*_fields(self))
            if self.classes:
                of_classes = [GWPORT_PARMS.pack(*_fields(each)) for each in self.classes]
                packed += GWPORT_CLASSES.fill(b"".join(of_classes))
        except struct.error as error:
            raise ValueError(f"{self}: {error}") from None
        return packed

    def add(self, ifindex: int, name: str = "") -> Request:
        """Makes the port of an interface, in place of its root qdisc."""
        return qdisc(ifindex, QDISC, TC_H_ROOT, HANDLE, self.pack(), name)

    def change(self, ifindex: int, name: str = "") -> Request:
        """Changes the port while it runs. The kind and the number of queues must stay; a new rate
        or delay holds from the next packet that is sent."""
        return change_qdisc(ifindex, QDISC, TC_H_ROOT, HANDLE, self.pack(), name)


@dataclass(frozen=True, slots=True)
class PortStatistics:
    """struct tc_gwport_xstats. Backlog is what waits: neither in transmission nor in flight. Bytes
    are frames as Linux counts them (without preamble, FCS and gap), except `wire_bytes`."""

    tx_bytes: int
    tx_packets: int
    wire_bytes: int
    delivered_bytes: int
    delivered_packets: int
    drops: Mapping[str, int]
    drop_bytes: int
    ecn_marks: int
    ecn_refused: int
    backlog_bytes: int
    backlog_packets: int
    max_backlog_bytes: int
    backlog_byte_us: int
    observed_ns: int
    wait_sum_ns: int
    wait_max_ns: int
    inflight_packets: int
    pauses: int
    resumes: int
    paused_ns: int
    class_paused_ns: tuple[int, ...]
    class_tx_bytes: tuple[int, ...]
    class_tx_packets: tuple[int, ...]
    class_drops: tuple[int, ...]
    class_ecn_marks: tuple[int, ...]
    class_max_backlog_bytes: tuple[int, ...]
    xoffs_sent: int
    xons_sent: int
    ingress_bytes: int
    ingress_max_bytes: int
    switch_bytes: int
    late_packets: int
    late_max_ns: int
    samples_lost: int
    trims: int
    trimmed_bytes: int
    paused_classes: int
    samples: int

    @property
    def dropped(self) -> int:
        """Packets lost at this port, for whatever reason."""
        return sum(self.drops.values())


def parse_statistics(data: bytes) -> PortStatistics:
    """The application statistics (TCA_XSTATS) of a port. Raises ValueError for another size."""
    if len(data) != GWPORT_STATISTICS.size:
        raise ValueError(
            f"the kernel's port statistics have {len(data)} bytes and {GWPORT_STATISTICS.size} are "
            "expected: the kernel was built from other sources"
        )
    found = GWPORT_STATISTICS.read(data)
    found["drops"] = dict(zip(DROP_REASONS, found["drops"], strict=True))
    return PortStatistics(**found)


SAMPLE_BYTES = 48
"""The kernel's sample (struct gw_sample)."""


@dataclass(frozen=True, slots=True)
class PortSample:
    """A port at `time_ns` (CLOCK_MONOTONIC), a sampling point every `interval_ns`: its backlog, the
    most since the sample before, what it had sent, dropped and marked since it was made, and the
    classes that it might not send (bit per class).
    """

    ifindex: int
    interval_ns: int
    time_ns: int
    backlog_bytes: int
    peak_bytes: int
    sent_bytes: int
    drops: int
    ecn_marks: int
    paused_classes: int


def read_samples() -> Iterator[PortSample]:
    """The samples of all ports of the namespace in which the calling thread is; a port's are in
    order of time, and one that equals its predecessor is left out. They are read as they are
    asked for: there may be millions."""
    with Path("/proc/thread-self/net/gwport_samples").open() as lines:
        for line in lines:
            yield PortSample(*map(int, line.split()))


@dataclass(frozen=True, slots=True)
class Waiting:
    """Packets of one class that came in by one interface and wait at another one."""

    egress: int
    ingress: int
    priority: int
    bytes: int
    paused: bool
    """Whether the egress may not send this class now."""


def read_waiting() -> list[Waiting]:
    """The backlog at the ports of the namespace in which the calling thread is."""
    text = Path("/proc/thread-self/net/gwport_waiting").read_text()
    found = []
    for line in text.splitlines():
        egress, ingress, priority, size, paused = map(int, line.split())
        found.append(Waiting(egress, ingress, priority, size, bool(paused)))
    return found
