"""The bytes that every port of a native fabric really sent while it had something to send.

Two eBPF classifiers count, at no port's expense of order or time. One sees each packet that is
about to be queued at a port, the other the same packet at the far end of the link, when the port's
shaper has let it go. While something waits between two packets that come out, the port was busy:
from the one to the other it should have taken as long as its rate says. Time that it took longer is
lost, unless the same busy period makes up for it; time that it took less, an idle port's tokens
gave.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from emulator.linux.bpf import (
    KTIME_GET_NS,
    MAP_LOOKUP_ELEM,
    BpfProgram,
    close_all,
    load_classifier,
    make_array,
    share_array,
)
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import make_hooks, run_classifier
from emulator.ports.arrangement import PortContext
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric, Link, Port

_WORDS = 18
_ENTRY_BYTES = 8 * _WORDS
_FRACTION_BITS = 16
_WATCH_ORDER = 2
"""After a switch's own classifiers, which may drop the packet, and before a redirection."""
STALL_NS = 50_000_000
"""A longer time between two packets is no service: what was counted as waiting was dropped."""
_LONG_NS, _LONG_FRAMES = 5_000_000, 10
"""The least bytes of a busy period that is judged. A single late timer is a large part of a
shorter one, and what it costs is no rate but the time of one packet."""


class WatchWord(IntEnum):
    """The fields of a port's entry, by position. Bytes are L1; times are nanoseconds."""

    QUEUED = 0  # bytes that came to its queue
    OUT = 1  # bytes that came out of its shaper
    LAST_AT = 2  # CLOCK_MONOTONIC, when the last packet came out
    LAST_NS = 3  # what the last packet takes on the link
    WAITING = 4  # 1: something waited when the last packet had come out
    # of the busy period that goes on
    BUSY = 5
    SERVED = 6
    # of those that are over and were long
    LOST = 7  # busy longer than what was sent takes
    GAINED = 8  # and shorter
    BUSY_ALL = 9
    SERVED_ALL = 10
    PERIODS = 11
    # what holds for the port
    NS_PER_BYTE = 12  # times 2^16
    STALL = 13
    IN_FLIGHT = 14  # bytes that may be under way between the two classifiers
    AT_END = 15  # 1: its packets come out with their last bit, 0: with their first
    LONG = 16  # ns that a busy period must send to be judged
    OUT_PACKETS = 17  # that came out of its shaper


_NAMES = {
    **{word.name: 8 * word for word in WatchWord},
    "MAP_LOOKUP_ELEM": MAP_LOOKUP_ELEM,
    "KTIME_GET_NS": KTIME_GET_NS,
    "SKB_LEN": 0,
    "SKB_CLASSID": 72,
    "OVERHEAD": L1_OVERHEAD_BYTES,
    "FRACTION": _FRACTION_BITS,
    "KEY": 4,
    "GO_ON": -1,
}

FIND_PORT = """*(u32 *)(r10 - KEY) = r9
    r1 = map ports
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    r8 = r0"""
"""r8 is the entry of the port whose number is in r9."""

_QUEUED = f"""
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_LEN)
    r7 += OVERHEAD
    r9 = *(u32 *)(r6 + SKB_CLASSID)
    {FIND_PORT}
    lock *(u64 *)(r8 + QUEUED) += r7
pass:
    r0 = GO_ON
    exit
"""

_OUT = f"""
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_LEN)
    r7 += OVERHEAD
    r9 = *(u32 *)(r6 + SKB_CLASSID)
    r9 ^= 1                                  # the other end of the link
    {FIND_PORT}
    lock *(u64 *)(r8 + OUT) += r7
    r1 = 1
    lock *(u64 *)(r8 + OUT_PACKETS) += r1
    r3 = *(u64 *)(r8 + NS_PER_BYTE)
    r3 *= r7
    r3 >>= FRACTION
    r9 = r3                                  # what this packet takes
    call KTIME_GET_NS
    r7 = r0                                  # now
    r1 = *(u64 *)(r8 + WAITING)
    if r1 == 0 goto since
    r2 = *(u64 *)(r8 + LAST_AT)
    if r7 < r2 goto since                    # another processor was ahead of this one
    r3 = r7
    r3 -= r2
    r4 = *(u64 *)(r8 + STALL)
    if r3 > r4 goto stalled
    r5 = *(u64 *)(r8 + AT_END)
    r4 = r9
    if r5 == 1 goto serve
    r4 = *(u64 *)(r8 + LAST_NS)
serve:
    r5 = *(u64 *)(r8 + BUSY)
    r5 += r3
    *(u64 *)(r8 + BUSY) = r5
    r5 = *(u64 *)(r8 + SERVED)
    r5 += r4
    *(u64 *)(r8 + SERVED) = r5
    goto since
stalled:
    r1 = *(u64 *)(r8 + QUEUED)
    *(u64 *)(r8 + OUT) = r1
since:
    *(u64 *)(r8 + LAST_AT) = r7
    *(u64 *)(r8 + LAST_NS) = r9
    r1 = *(u64 *)(r8 + OUT)
    r2 = *(u64 *)(r8 + IN_FLIGHT)
    r1 += r2
    r2 = *(u64 *)(r8 + QUEUED)
    r3 = 1
    *(u64 *)(r8 + WAITING) = r3
    if r2 > r1 goto pass
    r3 = 0
    *(u64 *)(r8 + WAITING) = r3
    r1 = *(u64 *)(r8 + BUSY)
    r2 = *(u64 *)(r8 + SERVED)
    if r2 == 0 goto pass                     # no busy period
    *(u64 *)(r8 + BUSY) = r3
    *(u64 *)(r8 + SERVED) = r3
    r4 = *(u64 *)(r8 + LONG)
    if r2 < r4 goto pass
    r4 = *(u64 *)(r8 + BUSY_ALL)
    r4 += r1
    *(u64 *)(r8 + BUSY_ALL) = r4
    r4 = *(u64 *)(r8 + SERVED_ALL)
    r4 += r2
    *(u64 *)(r8 + SERVED_ALL) = r4
    r4 = *(u64 *)(r8 + PERIODS)
    r4 += 1
    *(u64 *)(r8 + PERIODS) = r4
    if r1 > r2 goto lost
    r2 -= r1
    r4 = *(u64 *)(r8 + GAINED)
    r4 += r2
    *(u64 *)(r8 + GAINED) = r4
    goto pass
lost:
    r1 -= r2
    r4 = *(u64 *)(r8 + LOST)
    r4 += r1
    *(u64 *)(r8 + LOST) = r4
pass:
    r0 = GO_ON
    exit
"""


@dataclass(frozen=True, slots=True)
class PortService:
    """A port's long busy periods so far: how long they were (`busy_ns`), what was sent in them
    takes (`served_ns`), by how much they were too long (`lost_ns`) or too short (`gained_ns`), each
    period by itself, and how many there were (`periods`)."""

    lost_ns: int = 0
    gained_ns: int = 0
    busy_ns: int = 0
    served_ns: int = 0
    periods: int = 0

    def since(self, before: PortService) -> PortService:
        """The difference to an earlier reading of the same port."""
        return PortService(
            self.lost_ns - before.lost_ns,
            self.gained_ns - before.gained_ns,
            self.busy_ns - before.busy_ns,
            self.served_ns - before.served_ns,
            self.periods - before.periods,
        )


class PortWatch:
    """The counters of a fabric's ports and the two programs that keep them. They live as long as
    this does. Raises OSError when the kernel has no eBPF or refuses it."""

    def __init__(self, fabric: Fabric) -> None:
        entries = 2 * len(fabric.links)
        self._descriptor = make_array(max(1, entries), _ENTRY_BYTES)
        names = _NAMES | {"ports": self._descriptor}
        self._queued = load_classifier(BpfProgram(_QUEUED, names).code)
        self._out = load_classifier(BpfProgram(_OUT, names).code)
        weakref.finalize(self, close_all, self._descriptor, self._queued, self._out)
        self._words = share_array(self._descriptor, max(1, entries), _ENTRY_BYTES)

    def requests(
        self, context: PortContext, has_hooks: bool, delays_at_sender: bool
    ) -> Sequence[Request]:
        """The classifiers of a port, for the port's own namespace. `has_hooks`: the interface has
        its clsact. `delays_at_sender`: the link's delay is in the port's own queue discipline,
        whose packets come out with their last bit."""
        self.set_link(context.link, context.port, delays_at_sender)
        number, name = port_number(context.link, context.port), context.port.interface
        made = [] if has_hooks else [make_hooks(context.ifindex, name)]
        for program, arriving in ((self._queued, False), (self._out, True)):
            made.append(
                run_classifier(
                    context.ifindex,
                    program,
                    number,
                    arriving=arriving,
                    name=name,
                    order=_WATCH_ORDER,
                )
            )
        return made

    def set_link(self, link: Link, port: Port, delays_at_sender: bool) -> None:
        """Set a port's state from now on: the rate and the delay of `link`."""
        at = port_number(link, port) * _WORDS
        frame_ns = 8 * 10**9 * (link.frame_bytes + L1_OVERHEAD_BYTES) // link.rate_bps
        self._words[at + WatchWord.NS_PER_BYTE] = (8 * 10**9 << _FRACTION_BITS) // link.rate_bps
        self._words[at + WatchWord.STALL] = STALL_NS + 2 * frame_ns
        self._words[at + WatchWord.LONG] = max(_LONG_NS, _LONG_FRAMES * frame_ns)
        self._words[at + WatchWord.AT_END] = int(delays_at_sender)
        self._words[at + WatchWord.IN_FLIGHT] = (
            link.rate_bps * link.delay_ns // (8 * 10**9) + link.frame_bytes + L1_OVERHEAD_BYTES
            if delays_at_sender
            else 0
        )

    def read(self, link: Link, port: Port) -> PortService:
        """A port's long busy periods until now. One that goes on counts as if it ended now."""
        at = port_number(link, port) * _WORDS
        over = PortService(
            *(self._words[at + w] for w in range(WatchWord.LOST, WatchWord.PERIODS + 1))
        )
        busy, served = self._words[at + WatchWord.BUSY], self._words[at + WatchWord.SERVED]
        if served < self._words[at + WatchWord.LONG]:
            return over
        return PortService(
            over.lost_ns + max(0, busy - served),
            over.gained_ns + max(0, served - busy),
            over.busy_ns + busy,
            over.served_ns + served,
            over.periods + 1,
        )

    def sent_bytes(self, link: Link, port: Port) -> int:
        """L1 bytes that have come out of a port so far."""
        return self._words[port_number(link, port) * _WORDS + WatchWord.OUT]

    def sent_packets(self, link: Link, port: Port) -> int:
        """Packets that have come out of a port so far."""
        return self._words[port_number(link, port) * _WORDS + WatchWord.OUT_PACKETS]

    def read_all(self, fabric: Fabric) -> dict[str, PortService]:
        """Interface -> its busy periods until now."""
        ports: Iterable[tuple[Link, Port]] = (
            (link, port) for link in fabric.links for port in (link.a, link.b)
        )
        return {port.interface: self.read(link, port) for link, port in ports}


def port_number(link: Link, port: Port) -> int:
    """The number of a port in the maps of eBPF programs. The other end of its link has the number
    with the last bit turned over."""
    return 2 * link.index + (port is not link.a)
