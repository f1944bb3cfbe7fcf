"""Fillers: frames that use up what an idle port's token bucket has saved.

A token bucket must hold a whole frame, or it could never send one. A port that was idle has its
bucket full, and so sends its first frame at once, as if the link took no time to serialise it. At
low rates that is long: 7 ms of 9000 bytes at 10 Mb/s. So, before a packet that comes to an idle
port, a filler takes the tokens that came in since the link was last free. The packet then waits for
its own, and leaves when its last bit would be on the wire. Tokens that come in while a timer is
late still make up for that. Time by which a timer is later than the bucket makes up for is lost,
and no filler takes it a second time: a port was not free before its last packet had come out.

A filler has an EtherType of its own. It is dropped at the far end of the link before anything sees
it, is not captured, and counts in no port's bytes.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Sequence
from enum import IntEnum

from emulator.linux.bpf import (
    CLONE_REDIRECT,
    KTIME_GET_NS,
    MAP_LOOKUP_ELEM,
    REDIRECT,
    SKB_CHANGE_TAIL,
    SKB_STORE_BYTES,
    BpfProgram,
    close_all,
    load_classifier,
    make_array,
    share_array,
)
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import run_classifier
from emulator.ports.arrangement import PortContext
from emulator.ports.port_watch import FIND_PORT, STALL_NS, port_number
from emulator.ports.token_depth import token_depth_bytes
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric, Link, Port

FILLER_ETHERTYPE = 0x88B5
"""Local Experimental EtherType 1 (IEEE Std 802, 9.2.4)."""

_FILL_ORDER, _DROP_ORDER = 1, 3
"""Before the classifiers that count what comes to a queue, and after those that count what comes
out of it: for them a filler is a packet like others."""
_LEAST_BYTES = 128
"""A shorter filler would have no room for the headers that the kernel keeps; what it would have
taken is left to the next one."""
_FRACTION_BITS, _INVERSE_BITS = 16, 32


class _Word(IntEnum):
    """The fields of a port's entry, by position. Bytes are L1; times are nanoseconds."""

    FREE_AT = 0  # CLOCK_MONOTONIC, when all that came to the port has been serialised
    NS_PER_BYTE = 1  # times 2^16
    BYTES_PER_NS = 2  # times 2^32
    FULL_NS = 3  # what fills the bucket; 0: no fillers here
    FRAME = 4  # the largest frame
    FILLERS = 5
    FILLER_BYTES = 6  # as the interface counts them, from the Ethernet header on
    LAST_OUT = 7  # CLOCK_MONOTONIC, when the last packet came out at the link's far end
    MAKES_UP = 8  # how late timers may be
    QUEUED = 9  # packets that came to the port, fillers among them
    OUT = 10  # and that came out at the far end


_NAMES = {
    **{word.name: 8 * word for word in _Word},
    "MAP_LOOKUP_ELEM": MAP_LOOKUP_ELEM,
    "KTIME_GET_NS": KTIME_GET_NS,
    "CLONE_REDIRECT": CLONE_REDIRECT,
    "REDIRECT": REDIRECT,
    "SKB_CHANGE_TAIL": SKB_CHANGE_TAIL,
    "SKB_STORE_BYTES": SKB_STORE_BYTES,
    # struct __sk_buff of linux/bpf.h
    "SKB_LEN": 0,
    "SKB_MARK": 8,
    "SKB_PROTOCOL": 16,
    "SKB_IFINDEX": 40,
    "SKB_CLASSID": 72,
    "OVERHEAD": L1_OVERHEAD_BYTES,
    "FRACTION": _FRACTION_BITS,
    "INVERSE": _INVERSE_BITS,
    "LEAST": _LEAST_BYTES,
    "STALL": STALL_NS,
    "CUT": 0x6757,
    "FILLER": 0x6758,
    "TO_CUT": 0x6757 << 16,
    "AS_FILLER": 0x6758 << 16,
    "ETHERTYPE": socket.htons(FILLER_ETHERTYPE),
    "AT_ETHERTYPE": 12,
    "KEY": 4,
    "OLD_MARK": 24,
    "GO_ON": -1,
    "SHOT": 2,
}

_SEND = """r1 = *(u64 *)(r8 + NS_PER_BYTE)
    r1 *= r7
    r1 >>= FRACTION
    lock *(u64 *)(r8 + FREE_AT) += r1
    r1 = r7
    r1 -= OVERHEAD
    r1 |= TO_CUT
    *(u32 *)(r6 + SKB_MARK) = r1
    r1 = r6
    r2 = *(u32 *)(r6 + SKB_IFINDEX)
    r3 = 0
    call CLONE_REDIRECT                      # a copy of it comes by here, marked
    r1 = *(u64 *)(r10 - OLD_MARK)
    *(u32 *)(r6 + SKB_MARK) = r1"""
"""Sends a filler of r7 bytes before the packet in r6."""

_FILL = f"""
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_MARK)
    r9 = *(u32 *)(r6 + SKB_CLASSID)
    r1 = r7
    r1 >>= 16
    if r1 == CUT goto cut
    if r1 == FILLER goto filler
    *(u64 *)(r10 - OLD_MARK) = r7
    {FIND_PORT}
    r1 = *(u64 *)(r8 + FULL_NS)
    if r1 == 0 goto pass
    call KTIME_GET_NS
    r3 = *(u32 *)(r6 + SKB_LEN)
    r3 += OVERHEAD
    r4 = *(u64 *)(r8 + NS_PER_BYTE)
    r3 *= r4
    r3 >>= FRACTION                          # what the packet takes
    r1 = *(u64 *)(r8 + FREE_AT)
    if r1 < r0 goto idle
busy:
    lock *(u64 *)(r8 + FREE_AT) += r3
    goto queue
idle:
    r2 = r0
    r2 -= STALL
    r4 = *(u64 *)(r8 + QUEUED)
    if r1 < r2 goto stalled
    r5 = *(u64 *)(r8 + OUT)
    if r4 > r5 goto busy                     # a timer is late, and is made up for
    goto free
stalled:
    *(u64 *)(r8 + OUT) = r4                  # what seemed to wait was dropped
free:
    r2 = r0
    r4 = *(u64 *)(r8 + FULL_NS)
    r2 -= r4
    r4 = *(u64 *)(r8 + LAST_OUT)
    r5 = *(u64 *)(r8 + MAKES_UP)
    r4 -= r5                                 # what was later than that is lost
    if r2 >= r4 goto not_lost
    if r4 > r0 goto not_lost
    r2 = r4
not_lost:
    r5 = r1
    if r5 >= r2 goto since
    r5 = r2
since:
    r9 = r0
    r9 -= r5                                 # how long tokens have come in
    r5 += r3
    r0 = r1
    r0 = atomic64_cmpxchg((u64 *)(r8 + FREE_AT), r0, r5)
    if r0 != r1 goto busy                    # another processor's packet was first
    r4 = *(u64 *)(r8 + BYTES_PER_NS)
    r9 *= r4
    r9 >>= INVERSE                           # and how many
    r7 = r9
    r1 = *(u64 *)(r8 + FRAME)
    if r7 <= r1 goto first
    r7 = r1
first:
    if r7 < LEAST goto queue
    r9 -= r7
    {_SEND}
    if r9 < LEAST goto queue
    r7 = r9                                  # less than a frame: the bucket holds less than two
    {_SEND}
queue:
    r1 = 1
    lock *(u64 *)(r8 + QUEUED) += r1
pass:
    r0 = GO_ON
    exit
cut:
    r2 = r7
    r2 &= 65535
    r1 = r6
    r3 = 0
    call SKB_CHANGE_TAIL
    if r0 != 0 goto drop
    *(u16 *)(r10 - OLD_MARK) = ETHERTYPE
    r1 = r6
    r2 = AT_ETHERTYPE
    r3 = r10
    r3 += -OLD_MARK
    r4 = 2
    r5 = 0
    call SKB_STORE_BYTES
    if r0 != 0 goto drop
    r1 = AS_FILLER
    *(u32 *)(r6 + SKB_MARK) = r1
    r1 = *(u32 *)(r6 + SKB_IFINDEX)
    r2 = 0
    call REDIRECT                            # comes by again: the queue has seen the old length
    exit
filler:
    {FIND_PORT}
    r1 = 1
    lock *(u64 *)(r8 + FILLERS) += r1
    r1 = *(u32 *)(r6 + SKB_LEN)
    lock *(u64 *)(r8 + FILLER_BYTES) += r1
    goto queue
drop:
    r0 = SHOT
    exit
"""

_DROP = f"""
    r6 = r1
    r9 = *(u32 *)(r6 + SKB_CLASSID)
    r9 ^= 1                                  # the other end of the link
    {FIND_PORT}
    call KTIME_GET_NS
    *(u64 *)(r8 + LAST_OUT) = r0
    r1 = 1
    lock *(u64 *)(r8 + OUT) += r1
    r2 = *(u32 *)(r6 + SKB_PROTOCOL)
    if r2 != ETHERTYPE goto pass
    r0 = SHOT
    exit
pass:
    r0 = GO_ON
    exit
"""


class IdleFiller:
    """The programs that send and drop a fabric's fillers, and what they count. They live as long as
    this does. Raises OSError when the kernel has no eBPF or refuses it."""

    def __init__(self, fabric: Fabric, lateness_ns: int) -> None:
        """`lateness_ns` is what the ports' buckets make up for."""
        self._lateness_ns = lateness_ns
        entries, size = 2 * len(fabric.links), 8 * len(_Word)
        self._descriptor = make_array(max(1, entries), size)
        names = _NAMES | {"ports": self._descriptor}
        self._fill = load_classifier(BpfProgram(_FILL, names).code)
        self._drop = load_classifier(BpfProgram(_DROP, names).code)
        weakref.finalize(self, close_all, self._descriptor, self._fill, self._drop)
        self._words = share_array(self._descriptor, max(1, entries), size)

    def requests(self, context: PortContext) -> Sequence[Request]:
        """The classifiers of a port that has its hooks, for the port's own namespace; none for a
        port whose bucket saves too little to matter."""
        link, port = context.link, context.port
        self.set_link(link, port)
        if not self._matters(link):
            return ()
        number, name = port_number(link, port), port.interface
        return [
            run_classifier(
                context.ifindex, program, number, arriving=arriving, name=name, order=order
            )
            for program, arriving, order in (
                (self._fill, False, _FILL_ORDER),
                (self._drop, True, _DROP_ORDER),
            )
        ]

    def set_link(self, link: Link, port: Port) -> None:
        """Set a port's state from now on: the rate of `link`. A port whose largest frame takes
        less than the lateness of timers gets no fillers: late timers hide what it saves."""
        at = port_number(link, port) * len(_Word)
        frame = link.frame_bytes + L1_OVERHEAD_BYTES
        full = frame + token_depth_bytes(link, port.queue, self._lateness_ns)
        self._words[at + _Word.NS_PER_BYTE] = (8 * 10**9 << _FRACTION_BITS) // link.rate_bps
        self._words[at + _Word.BYTES_PER_NS] = (link.rate_bps << _INVERSE_BITS) // (8 * 10**9)
        full_ns = 8 * 10**9 * full // link.rate_bps
        self._words[at + _Word.FULL_NS] = full_ns if self._matters(link) else 0
        self._words[at + _Word.FRAME] = frame
        self._words[at + _Word.MAKES_UP] = self._lateness_ns
        self._words[at + _Word.QUEUED] = self._words[at + _Word.OUT] = 0

    def _matters(self, link: Link) -> bool:
        frame = link.frame_bytes + L1_OVERHEAD_BYTES
        return 8 * 10**9 * frame > link.rate_bps * self._lateness_ns

    def sent(self, link: Link, port: Port) -> tuple[int, int]:
        """(fillers, their bytes as the interface counts them) that a port has sent so far."""
        at = port_number(link, port) * len(_Word)
        return self._words[at + _Word.FILLERS], self._words[at + _Word.FILLER_BYTES]
