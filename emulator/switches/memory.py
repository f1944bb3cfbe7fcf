"""The packets that wait in the switches of the native kernel, counted packet by packet with eBPF.

Stock qdiscs know nothing of a switch: neither by which port a packet came in, nor how much waits at
the other ports. Two classifiers do. One looks at every packet that is about to be queued at an
egress port: it admits it to the switch's memory or drops it, marks it, counts it for the port that
it came in by and says when that port is above XOFF. The other looks at every packet that comes out
of a port's shaper, at the far end of the link, and takes it off again. In between the packet
itself carries the number of the port that it came in by (`skb->tc_index`, which survives the veth).

The same definitions as `emulator/kernel/gwport_shared.c`, `gwport_voq.c` and `gwport_lossless.c`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from emulator.linux.bpf import (
    KTIME_GET_NS,
    MAP_LOOKUP_ELEM,
    SKB_ECN_SET_CE,
    BpfProgram,
    close_all,
    load_classifier,
    make_array,
    make_table,
    read_table,
    share_array,
    write_table,
)
from emulator.switches.programs import ARRIVED, QUEUED
from topologies.fabrics.fabric import Fabric, Link, Port

NEVER = 2**64 - 1
WORDS = 32
ENTRY_BYTES = 8 * WORDS
_FIRST_PORT = 2

COUNTED, PAUSES, BY_INGRESS, BY_CLASS = 1, 2, 4, 8
"""Flags of a port: its queue takes of the switch's memory; what waits in it can pause neighbours;
its packets are put into a class per ingress port, or by their class selector."""

CLASSES = 8
"""DSCP class selectors, as in the port qdisc. A fabric without lossy ones has all in class 0."""


class Word(IntEnum):
    """The fields of the entry of a port's class, by position. Bytes are frames as Linux counts
    them."""

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
    INGRESS_LOST = 30  # came in by it after its headroom was full
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
    CLASS_PAUSED = 29  # 1: its plug is closed; written by the pause controller, as what follows
    # of class 0 for the whole port, as an egress: how many plugs are closed, and for how long any
    PAUSED = 21
    PAUSED_SINCE = 22
    PAUSED_NS = 23
    PAUSES = 24
    # as an ingress: from XOFF to the neighbour's silence
    REACTIONS = 25
    REACTION_SUM = 26
    REACTION_WORST = 27
    # of the first entry only
    CHANGES = 28  # how often any WANTED has changed


_NAMES = {
    **{word.name: 8 * word for word in Word},
    "F_COUNTED": COUNTED,
    "F_PAUSES": PAUSES,
    "F_BY_INGRESS": BY_INGRESS,
    "F_BY_CLASS": BY_CLASS,
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
    "CLASS": 44,
    # IPv4's type of service in a frame, and what a classifier says (TC_ACT_*)
    "TOS": 15,
    "GO_ON": -1,
    "DROP": 2,
}


@dataclass(frozen=True, slots=True)
class PortRules:
    """The limits at which a port's queue admits and marks (as an egress), and when it has its
    neighbour paused (as an ingress). Bytes; `alpha_q16` is times 2^16, 0 for no dynamic threshold.
    """

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
    the kernel. `classes_handle` is that of the qdisc that has a class per ingress port; `by_class`
    keeps the class selectors apart. Raises OSError when the kernel has no eBPF or refuses it."""

    OWN_TRAFFIC = 1
    """The class of what a node itself sends, where ingress ports have classes of their own."""

    def __init__(self, fabric: Fabric, classes_handle: int, by_class: bool) -> None:
        ports = CLASSES * (_FIRST_PORT + 2 * len(fabric.links))
        self._switch = {node.name: ports + i for i, node in enumerate(fabric.nodes)}
        self.entries = ports + len(fabric.nodes)
        self.classes = range(CLASSES if by_class else 1)
        self.descriptor = make_array(self.entries, ENTRY_BYTES)
        numbers = [
            [port_number(link, link.port(node.name)) for link in fabric.links_of[node.name]]
            for node in fabric.nodes
            if len(fabric.links_of[node.name]) > 1
        ]
        self._pairs = [(egress, ingress) for own in numbers for egress in own for ingress in own]
        self._table = make_table(max(1, len(self._pairs) * len(self.classes)))
        for egress, ingress in self._pairs:
            for priority in self.classes:
                write_table(self._table, _pair(egress, ingress, priority), 0)
        names = _NAMES | {"ports": self.descriptor, "pairs": self._table}
        names |= {"CLASSES": classes_handle, "OWN_TRAFFIC": self.OWN_TRAFFIC}
        names |= {"CLASS_MASK": len(self.classes) - 1}
        self.queued = load_classifier(BpfProgram(QUEUED, names).code)
        self.arrived = load_classifier(BpfProgram(ARRIVED, names).code)
        weakref.finalize(self, close_all, self.descriptor, self._table, self.queued, self.arrived)
        self.words = share_array(self.descriptor, self.entries, ENTRY_BYTES)
        for priority in self.classes:
            self.rule(0, priority, "", PortRules())

    def rule(self, number: int, priority: int, node: str, rules: PortRules) -> None:
        """Sets what holds for a class at a port of a node."""
        at = entry(number, priority) * WORDS
        self.words[at + Word.FLAGS] = rules.flags
        self.words[at + Word.SWITCH] = self._switch.get(node, 0)
        self.words[at + Word.BUFFER] = rules.buffer_bytes
        self.words[at + Word.ALPHA_Q16] = rules.alpha_q16
        self.words[at + Word.K] = rules.k_bytes
        self.words[at + Word.XOFF] = rules.xoff_bytes
        self.words[at + Word.XON] = rules.xon_bytes
        self.words[at + Word.LIMIT] = rules.limit_bytes

    def read(self, number: int, word: Word, priority: int = 0) -> int:
        """The entry of a port's class now."""
        return self.words[entry(number, priority) * WORDS + word]

    def total(self, number: int, word: Word) -> int:
        """The sum over a port's classes."""
        return sum(self.read(number, word, priority) for priority in self.classes)

    def waiting(self) -> Iterator[tuple[int, int, int, int]]:
        """(egress, ingress, class, bytes): what came in by one port of a switch and waits at
        another."""
        for egress, ingress in self._pairs:
            for priority in self.classes:
                size = read_table(self._table, _pair(egress, ingress, priority))
                if size:
                    yield egress, ingress, priority, size


def entry(number: int, priority: int) -> int:
    """The position of the entry of a class of a port."""
    return CLASSES * number + priority


def _pair(egress: int, ingress: int, priority: int) -> int:
    return entry(egress, priority) << 16 | entry(ingress, priority)
