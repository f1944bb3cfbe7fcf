"""What waits where in the switches of the native kernel, counted packet by packet with eBPF.

Stock qdiscs know nothing of a switch: neither by which port a packet came in, nor how much waits at
the other ports. Two classifiers do. One looks at every packet that is about to be queued at an
egress port: it admits it to the switch's memory or drops it, marks it, counts it for the port that
it came in by and says when that port is above XOFF. The other looks at every packet that comes out
of a port's shaper, at the far end of the link, and takes it off again. In between the packet
itself carries the number of the port that it came in by (`skb->tc_index`, which survives the veth).

The same definitions as `emulator/kernel/gwport_queue.c` (`gw_room`) and `gwport_switch.c`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from emulator.bpf import (
    KTIME_GET_NS,
    MAP_LOOKUP_ELEM,
    SKB_ECN_SET_CE,
    Program,
    load_classifier,
    make_array,
    make_table,
    read_table,
    share_array,
    write_table,
)
from topologies.fabric import Fabric, Link, Port

NEVER = 2**64 - 1
WORDS = 32
ENTRY_BYTES = 8 * WORDS
_FIRST_PORT = 2

COUNTED, PAUSES, BY_INGRESS = 1, 2, 4
"""Flags of a port: its queue takes of the switch's memory; what waits in it can pause neighbours;
its packets are put into a class per ingress port."""


class Word(IntEnum):
    """What a port's entry holds, by position. Bytes are frames as Linux counts them."""

    FLAGS = 0
    SWITCH = 1  # the entry of its switch, whose BACKLOG is what waits in all of it
    BUFFER = 2
    ALPHA_Q16 = 3  # 0: no dynamic threshold
    K = 4
    XOFF = 5
    XON = 6
    LIMIT = 7  # xoff + headroom
    # as an ingress: what came in by it and waits anywhere in its switch
    INGRESS = 8
    INGRESS_MAX = 9
    WANTED = 10  # 1: the neighbour is to be paused
    XOFF_AT = 11  # CLOCK_MONOTONIC, ns
    XON_AT = 12
    XOFFS = 13
    XONS = 14
    # as an egress
    BACKLOG = 15
    BACKLOG_MAX = 16
    MARKS = 17
    MARKS_REFUSED = 18
    DROPS_BUFFER = 19
    DROPS_HEADROOM = 20
    # as an egress, written by the pause controller
    PAUSED = 21
    PAUSED_SINCE = 22
    PAUSED_NS = 23
    PAUSES = 24
    # as an ingress, written by the pause controller: from XOFF to the neighbour's silence
    REACTIONS = 25
    REACTION_SUM = 26
    REACTION_WORST = 27
    # of entry 0 only
    CHANGES = 28  # how often any WANTED has changed


_NAMES = {
    **{word.name: 8 * word for word in Word},
    "F_COUNTED": COUNTED,
    "F_PAUSES": PAUSES,
    "F_BY_INGRESS": BY_INGRESS,
    "MAP_LOOKUP_ELEM": MAP_LOOKUP_ELEM,
    "KTIME_GET_NS": KTIME_GET_NS,
    "SKB_ECN_SET_CE": SKB_ECN_SET_CE,
    # struct __sk_buff
    "SKB_LEN": 0,
    "SKB_MARK": 8,
    "SKB_PRIORITY": 32,
    "SKB_TC_INDEX": 44,
    "SKB_CLASSID": 72,
    # on the stack: keys, and what must survive a call
    "EGRESS": 4,
    "INGRESS_KEY": 8,
    "KEY": 12,
    "SWITCH_ENTRY": 24,
    "OCCUPIED": 32,
    "FOUND": 40,
    # IPv4's type of service in a frame, and what a classifier says (TC_ACT_*)
    "TOS": 15,
    "GO_ON": -1,
    "DROP": 2,
}

_QUEUED = """
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_LEN)
    r1 = *(u32 *)(r6 + SKB_CLASSID)          # this port, by its filter's class id
    *(u32 *)(r10 - EGRESS) = r1
    r1 = map ports
    r2 = r10
    r2 += -EGRESS
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    r8 = r0
    r3 = *(u32 *)(r6 + SKB_MARK)             # the port that it came in by; 0: made here
    r2 = *(u64 *)(r8 + FLAGS)
    if r2 & F_BY_INGRESS goto by_ingress
    if r2 & F_PAUSES goto attributed
    r3 = 0
attributed:
    *(u32 *)(r10 - INGRESS_KEY) = r3
    r1 = map ports
    r2 = r10
    r2 += -INGRESS_KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    r9 = r0
    r1 = *(u64 *)(r8 + SWITCH)
    *(u32 *)(r10 - KEY) = r1
    r1 = map ports
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    *(u64 *)(r10 - SWITCH_ENTRY) = r0

    # room in the switch, and by the dynamic threshold alpha * room (Choudhury and Hahne 1998)
    r1 = *(u64 *)(r0 + BACKLOG)
    r2 = *(u64 *)(r8 + BUFFER)
    if r1 >= r2 goto no_room
    r2 -= r1
    if r7 > r2 goto no_room
    r3 = *(u64 *)(r8 + ALPHA_Q16)
    if r3 == 0 goto room
    r2 *= r3
    r2 >>= 16
    r4 = *(u64 *)(r8 + BACKLOG)
    r4 += r7
    if r4 > r2 goto no_room
room:
    r4 = r7
    r4 = atomic64_fetch_add((u64 *)(r9 + INGRESS), r4)
    r4 += r7
    r5 = *(u64 *)(r9 + LIMIT)
    if r4 <= r5 goto admitted
    r5 = r7
    r5 = -r5
    lock *(u64 *)(r9 + INGRESS) += r5
    r1 = 1
    lock *(u64 *)(r8 + DROPS_HEADROOM) += r1
    r0 = DROP
    exit
no_room:
    r1 = 1
    lock *(u64 *)(r8 + DROPS_BUFFER) += r1
    r0 = DROP
    exit

admitted:
    *(u64 *)(r10 - OCCUPIED) = r4
    r5 = *(u64 *)(r9 + INGRESS_MAX)
    if r4 <= r5 goto counted
    *(u64 *)(r9 + INGRESS_MAX) = r4
counted:
    r1 = r7
    r1 = atomic64_fetch_add((u64 *)(r8 + BACKLOG), r1)
    *(u64 *)(r10 - FOUND) = r1
    r1 += r7
    r2 = *(u64 *)(r8 + BACKLOG_MAX)
    if r1 <= r2 goto in_switch
    *(u64 *)(r8 + BACKLOG_MAX) = r1
in_switch:
    r2 = *(u64 *)(r10 - SWITCH_ENTRY)
    lock *(u64 *)(r2 + BACKLOG) += r7
    r1 = *(u32 *)(r10 - EGRESS)
    r1 <<= 16
    r2 = *(u32 *)(r10 - INGRESS_KEY)
    r1 |= r2
    *(u32 *)(r10 - KEY) = r1
    r1 = map pairs
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto xoff
    lock *(u64 *)(r0 + 0) += r7

xoff:
    r4 = *(u64 *)(r10 - OCCUPIED)
    r5 = *(u64 *)(r9 + XOFF)
    if r4 <= r5 goto mark
    r1 = *(u64 *)(r9 + WANTED)
    if r1 != 0 goto mark
    call KTIME_GET_NS
    *(u64 *)(r9 + XOFF_AT) = r0
    r0 = 0
    r1 = 1
    r0 = atomic64_cmpxchg((u64 *)(r9 + WANTED), r0, r1)
    if r0 != 0 goto mark
    lock *(u64 *)(r9 + XOFFS) += r1
    *(u32 *)(r10 - KEY) = 0
    r1 = map ports
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto mark
    r1 = 1
    lock *(u64 *)(r0 + CHANGES) += r1

mark:
    r1 = *(u64 *)(r10 - FOUND)
    r2 = *(u64 *)(r8 + K)
    if r1 <= r2 goto carry
    r0 = *(u8 *)skb[TOS]
    r0 &= 3
    if r0 == 3 goto carry                    # marked by an earlier port
    r1 = r6
    call SKB_ECN_SET_CE
    r1 = 1
    if r0 == 0 goto not_capable
    lock *(u64 *)(r8 + MARKS) += r1
    goto carry
not_capable:
    lock *(u64 *)(r8 + MARKS_REFUSED) += r1
carry:
    r1 = *(u32 *)(r10 - INGRESS_KEY)
    *(u32 *)(r6 + SKB_TC_INDEX) = r1
    goto pass

by_ingress:
    if r3 != 0 goto class
    r3 = OWN_TRAFFIC
class:
    r3 |= CLASSES
    *(u32 *)(r6 + SKB_PRIORITY) = r3
pass:
    r0 = GO_ON
    exit
"""

_ARRIVED = """
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_LEN)
    r1 = *(u32 *)(r6 + SKB_CLASSID)
    *(u32 *)(r6 + SKB_MARK) = r1             # what this node forwards came in by this port
    r1 ^= 1                                  # the other end of the link
    *(u32 *)(r10 - EGRESS) = r1
    r1 = *(u32 *)(r6 + SKB_TC_INDEX)
    *(u32 *)(r10 - INGRESS_KEY) = r1
    r1 = 0
    *(u32 *)(r6 + SKB_TC_INDEX) = r1
    r1 = map ports
    r2 = r10
    r2 += -EGRESS
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    r8 = r0
    r2 = *(u64 *)(r8 + FLAGS)
    if r2 & F_COUNTED goto counted
    goto pass
counted:
    r1 = map ports
    r2 = r10
    r2 += -INGRESS_KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    r9 = r0
    r7 = -r7
    lock *(u64 *)(r8 + BACKLOG) += r7
    r1 = *(u64 *)(r8 + SWITCH)
    *(u32 *)(r10 - KEY) = r1
    r1 = map ports
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    lock *(u64 *)(r0 + BACKLOG) += r7
    r1 = *(u32 *)(r10 - EGRESS)
    r1 <<= 16
    r2 = *(u32 *)(r10 - INGRESS_KEY)
    r1 |= r2
    *(u32 *)(r10 - KEY) = r1
    r1 = map pairs
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto xon
    lock *(u64 *)(r0 + 0) += r7
xon:
    r4 = r7
    r4 = atomic64_fetch_add((u64 *)(r9 + INGRESS), r4)
    r4 += r7
    r5 = *(u64 *)(r9 + XON)
    if r4 >= r5 goto pass
    r1 = *(u64 *)(r9 + WANTED)
    if r1 == 0 goto pass
    call KTIME_GET_NS
    *(u64 *)(r9 + XON_AT) = r0
    r0 = 1
    r1 = 0
    r0 = atomic64_cmpxchg((u64 *)(r9 + WANTED), r0, r1)
    if r0 != 1 goto pass
    lock *(u64 *)(r9 + XONS) += r0
    *(u32 *)(r10 - KEY) = 0
    r1 = map ports
    r2 = r10
    r2 += -KEY
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto pass
    r1 = 1
    lock *(u64 *)(r0 + CHANGES) += r1
pass:
    r0 = GO_ON
    exit
"""


@dataclass(frozen=True, slots=True)
class PortRules:
    """What a port's queue admits and marks (as an egress), and when it has its neighbour paused (as
    an ingress). Bytes; `alpha_q16` is times 2^16, 0 for no dynamic threshold."""

    flags: int = 0
    buffer_bytes: int = NEVER
    alpha_q16: int = 0
    k_bytes: int = NEVER
    xoff_bytes: int = NEVER
    xon_bytes: int = 0
    limit_bytes: int = NEVER


def port_number(link: Link, port: Port) -> int:
    """A port's number in the fabric. The other end of its link has the number with the last bit
    turned over; 0 stands for what a node itself sends."""
    return _FIRST_PORT + 2 * link.index + (port is not link.a)


class SwitchMemory:
    """The counters of a fabric's ports, and the two programs that keep them. `words` is shared with
    the kernel. Raises OSError when the kernel has no eBPF or refuses it."""

    OWN_TRAFFIC = 1
    """The class of what a node itself sends, where ingress ports have classes of their own."""

    def __init__(self, fabric: Fabric, classes_handle: int) -> None:
        ports = _FIRST_PORT + 2 * len(fabric.links)
        self._switch = {node.name: ports + i for i, node in enumerate(fabric.nodes)}
        self.entries = ports + len(fabric.nodes)
        self.descriptor = make_array(self.entries, ENTRY_BYTES)
        numbers = [
            [port_number(link, link.port(node.name)) for link in fabric.links_of[node.name]]
            for node in fabric.nodes
            if len(fabric.links_of[node.name]) > 1
        ]
        self._pairs = [(egress, ingress) for own in numbers for egress in own for ingress in own]
        self._table = make_table(max(1, len(self._pairs)))
        for egress, ingress in self._pairs:
            write_table(self._table, egress << 16 | ingress, 0)
        names = _NAMES | {"ports": self.descriptor, "pairs": self._table}
        names |= {"CLASSES": classes_handle, "OWN_TRAFFIC": self.OWN_TRAFFIC}
        self.queued = load_classifier(Program(_QUEUED, names).code)
        self.arrived = load_classifier(Program(_ARRIVED, names).code)
        weakref.finalize(self, _close, self.descriptor, self._table, self.queued, self.arrived)
        self.words = share_array(self.descriptor, self.entries, ENTRY_BYTES)
        self.rule(0, "", PortRules())

    def rule(self, number: int, node: str, rules: PortRules) -> None:
        """Sets what holds at a port of a node."""
        at = number * WORDS
        self.words[at + Word.FLAGS] = rules.flags
        self.words[at + Word.SWITCH] = self._switch.get(node, 0)
        self.words[at + Word.BUFFER] = rules.buffer_bytes
        self.words[at + Word.ALPHA_Q16] = rules.alpha_q16
        self.words[at + Word.K] = rules.k_bytes
        self.words[at + Word.XOFF] = rules.xoff_bytes
        self.words[at + Word.XON] = rules.xon_bytes
        self.words[at + Word.LIMIT] = rules.limit_bytes

    def read(self, number: int, word: Word) -> int:
        """What a port's entry holds now."""
        return self.words[number * WORDS + word]

    def waiting(self) -> Iterator[tuple[int, int, int]]:
        """(egress, ingress, bytes): what came in by one port of a switch and waits at another."""
        for egress, ingress in self._pairs:
            size = read_table(self._table, egress << 16 | ingress)
            if size:
                yield egress, ingress, size


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
