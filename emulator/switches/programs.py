"""The two classifiers that count for `emulator/switches/memory.py`, in the kernel's notation.

Names in capitals are the words of a port's entry (`Word`, as byte offsets), fields of struct
__sk_buff, and places on the stack. r6 is the packet, r7 its length, r8 the entry of the egress
port, r9 that of the ingress port, both of the packet's class. Programs of several processors run
at once, so what they share is changed by atomic additions.
"""


def _find(table: str, key: str, absent: str) -> str:
    """r0 is the entry for the key at this place on the stack; without one, to `absent`."""
    return f"""r1 = map {table}
    r2 = r10
    r2 += -{key}
    call MAP_LOOKUP_ELEM
    if r0 == 0 goto {absent}"""


def _pair(absent: str) -> str:
    """r0 is what waits at the egress port and came in by the ingress port."""
    return f"""r1 = *(u32 *)(r10 - EGRESS)
    r1 <<= 16
    r2 = *(u32 *)(r10 - INGRESS_KEY)
    r1 |= r2
    *(u32 *)(r10 - KEY) = r1
    {_find("pairs", "KEY", absent)}"""


_EGRESS = f"""r0 = *(u8 *)skb[TOS]
    r0 >>= 5                                 # the class selector (RFC 2474)
    r0 &= CLASS_MASK
    *(u32 *)(r10 - CLASS) = r0
    r9 <<= 3
    r9 |= r0
    *(u32 *)(r10 - EGRESS) = r9
    {_find("ports", "EGRESS", "pass")}
    r8 = r0"""
"""r8 is the entry of the egress port, whose number is in r9, of the packet's class."""

_SWITCH = f"""r1 = *(u64 *)(r8 + SWITCH)
    *(u32 *)(r10 - KEY) = r1
    {_find("ports", "KEY", "pass")}"""
"""r0 is the entry of the egress port's switch."""


def _want(frame: str, paused: int, done: str) -> str:
    """The controller is to send this frame for the ingress port; if it is already, to `done`."""
    return f"""r1 = *(u64 *)(r9 + WANTED)
    if r1 == {paused} goto {done}
    call KTIME_GET_NS
    *(u64 *)(r9 + {frame}_AT) = r0
    r0 = {1 - paused}
    r1 = {paused}
    r0 = atomic64_cmpxchg((u64 *)(r9 + WANTED), r0, r1)
    if r0 == {paused} goto {done}
    r1 = 1
    lock *(u64 *)(r9 + {frame}S) += r1
    *(u32 *)(r10 - KEY) = 0
    {_find("ports", "KEY", done)}
    r1 = 1
    lock *(u64 *)(r0 + CHANGES) += r1"""


QUEUED = f"""
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_LEN)
    r9 = *(u32 *)(r6 + SKB_CLASSID)          # this port, by its filter's class id
    {_EGRESS}
    r3 = *(u32 *)(r6 + SKB_MARK)             # the port that it came in by; 0: made here
    r2 = *(u64 *)(r8 + FLAGS)
    if r2 & F_BY_INGRESS goto by_ingress
    if r2 & F_COUNTED goto counted_port
    goto classify
counted_port:
    if r2 & F_PAUSES goto attributed
    r3 = 0
    goto ingress_known
attributed:
    r3 <<= 3
    r2 = *(u32 *)(r10 - CLASS)
    r3 |= r2
ingress_known:
    *(u32 *)(r10 - INGRESS_KEY) = r3
    {_find("ports", "INGRESS_KEY", "pass")}
    r9 = r0
    {_SWITCH}
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
    lock *(u64 *)(r9 + INGRESS_LOST) += r1
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
    {_pair("xoff")}
    lock *(u64 *)(r0 + 0) += r7

xoff:
    r4 = *(u64 *)(r10 - OCCUPIED)
    r5 = *(u64 *)(r9 + XOFF)
    if r4 <= r5 goto mark
    {_want("XOFF", 1, "mark")}

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
classify:
    r2 = *(u64 *)(r8 + FLAGS)
    if r2 & F_BY_CLASS goto by_class
    goto pass
by_class:
    r1 = *(u32 *)(r10 - CLASS)
    *(u32 *)(r6 + SKB_PRIORITY) = r1
    goto pass

by_ingress:
    if r3 != 0 goto from_outside
    r3 = OWN_TRAFFIC
from_outside:
    r3 |= CLASSES
    *(u32 *)(r6 + SKB_PRIORITY) = r3
pass:
    r0 = GO_ON
    exit
"""
"""The program for a packet that is about to be queued at a port: admit and count it, or drop it."""

ARRIVED = f"""
    r6 = r1
    r7 = *(u32 *)(r6 + SKB_LEN)
    r9 = *(u32 *)(r6 + SKB_CLASSID)
    *(u32 *)(r6 + SKB_MARK) = r9             # what this node forwards came in by this port
    r9 ^= 1                                  # the other end of the link
    r1 = *(u32 *)(r6 + SKB_TC_INDEX)
    *(u32 *)(r10 - INGRESS_KEY) = r1
    r1 = 0
    *(u32 *)(r6 + SKB_TC_INDEX) = r1
    {_EGRESS}
    r2 = *(u64 *)(r8 + FLAGS)
    if r2 & F_COUNTED goto counted
    goto pass
counted:
    {_find("ports", "INGRESS_KEY", "pass")}
    r9 = r0
    r7 = -r7
    lock *(u64 *)(r8 + BACKLOG) += r7
    {_SWITCH}
    lock *(u64 *)(r0 + BACKLOG) += r7
    {_pair("xon")}
    lock *(u64 *)(r0 + 0) += r7
xon:
    r4 = r7
    r4 = atomic64_fetch_add((u64 *)(r9 + INGRESS), r4)
    r4 += r7
    r5 = *(u64 *)(r9 + XON)
    if r4 >= r5 goto pass
    {_want("XON", 0, "pass")}
pass:
    r0 = GO_ON
    exit
"""
"""The program for a packet that has come out of a port's shaper, at the other end of the link: take
it off."""
