"""Queues made of the kernel's own qdiscs, for the native kernel: the nearest to each `QueueSpec`.

At the sender's egress a token bucket (tbf) holds the rate and, as its child, the queue and its AQM.
At the receiver's ingress an IFB with netem serialises once more and then delays: a packet that
finds the link idle, which a token bucket lets go at once, gets its serialisation there, and packets
in flight are never counted as queued. How far each discipline deviates from the port qdisc is
measured by `benchmarks/stock_deviation.py`; the table is in docs/queues.md.

Queues that must know of the other ports of their switch are in `emulator/stock_switch.py`.

Formats: include/uapi/linux/pkt_sched.h. RED's idle table: tc_red_eval_idle_damping in iproute2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.netlink import Request, attribute, u32
from emulator.ports import (
    Impairment,
    PortContext,
    QdiscStatistics,
    QueueCounters,
    Unattended,
    UnsupportedPort,
    netem_options,
    root_drops,
    tbf_options,
)
from emulator.rtnetlink import TC_H_ROOT, change_qdisc, qdisc, redirect_ingress
from topologies.fabric import L1_OVERHEAD_BYTES, Fabric, Link
from topologies.queue_spec import Codel, Dctcp, DropTail, FqCodel, QueueSpec, Red

SHAPER_HANDLE, SHAPER_CLASS, QUEUE_HANDLE = 0x10000, 0x10001, 0x20000
_RED_PARMS, _RED_STAB, _RED_MAX_P, _RED_FLAGS = 1, 2, 3, 4
_RED_ECN, _RED_NODROP = 1, 8
_CODEL_TARGET, _CODEL_LIMIT, _CODEL_INTERVAL, _CODEL_ECN, _CODEL_CE = 1, 2, 3, 4, 5
_FQ_FLOWS, _FQ_QUANTUM, _FQ_CE = 6, 7, 8
_MARK_FIELDS = {"red": (3,), "codel": (6, 8), "fq_codel": (3, 7)}
"""Which 32-bit words of a qdisc's xstats count marks: tc_red_xstats.marked, and ecn_mark and
ce_mark of tc_codel_xstats and tc_fq_codel_xstats."""
_STAB_BYTES = 256
_DELAY_LINE_BYTES = 10**10
"""So much that a delay line never drops: the queue is before it."""


@dataclass(frozen=True)
class StockArrangement(Unattended):
    """A token bucket with the queue at the egress, a delay line at the far end's ingress."""

    name: str = "stock"
    needs_delay_device: bool = True
    cuts_links: bool = False

    def requests(self, context: PortContext) -> Sequence[Request]:
        """The port's shaper and queue, and the delay line for what arrives at it."""
        link, port, index = context.link, context.port, context.ifindex
        shaper = qdisc(
            index,
            "tbf",
            TC_H_ROOT,
            SHAPER_HANDLE,
            tbf_options(link, port.queue.buffer_bytes),
            port.interface,
        )
        kind, options = stock_queue(port.queue, link, port.interface)
        queue = qdisc(index, kind, SHAPER_CLASS, QUEUE_HANDLE, options, port.interface)
        return (shaper, queue, *delay_line(context))

    def counters(self, context: PortContext, qdiscs: Sequence[QdiscStatistics]) -> QueueCounters:
        """Drops of the shaper (its queue's are in them) and marks of its queue."""
        drops = root_drops(qdiscs, "tbf")
        return QueueCounters(
            drops=drops,
            drops_by_reason={"queue": drops} if drops else {},
            ecn_marks=sum(marks_of(q) for q in qdiscs),
        )

    def impair(self, context: PortContext, impairment: Impairment) -> Sequence[Request]:
        """Another rate for the shaper; loss and delay in the delay line of what arrives, which is
        the other direction: faults are on both."""
        if context.delay_device is None:
            raise UnsupportedPort(f"{context.port.interface}: its delay line needs a device (ifb)")
        link, name = impairment.link, context.port.interface
        shaper = tbf_options(link, context.port.queue.buffer_bytes)
        delay = netem_options(link, _DELAY_LINE_BYTES, impairment.loss, impairment.corruption)
        return (
            change_qdisc(context.ifindex, "tbf", TC_H_ROOT, SHAPER_HANDLE, shaper, name),
            change_qdisc(context.delay_device, "netem", TC_H_ROOT, SHAPER_HANDLE, delay, name),
        )


def needed_qdiscs(fabric: Fabric) -> frozenset[str]:
    """The stock qdiscs that `StockArrangement` makes a fabric of. Raises UnsupportedPort for a
    queue that it cannot make at all."""
    kinds = {
        stock_queue(port.queue, link, port.interface)[0]
        for link in fabric.links
        for port in (link.a, link.b)
    }
    return frozenset({"tbf", "netem", "clsact", *kinds})


def delay_line(context: PortContext) -> tuple[Request, Request, Request]:
    """What delays all that arrives at a port: the netem of its intermediate device, the port's
    hooks, and the redirection from one to the other. Raises UnsupportedPort without a device."""
    link, name = context.link, context.port.interface
    if context.delay_device is None:
        raise UnsupportedPort(f"{name}: its delay line needs a device (ifb)")
    netem = qdisc(
        context.delay_device,
        "netem",
        TC_H_ROOT,
        SHAPER_HANDLE,
        netem_options(link, _DELAY_LINE_BYTES),
        f"the delay line of {name}",
    )
    return (netem, *redirect_ingress(context.ifindex, context.delay_device, name))


def marks_of(statistics: QdiscStatistics) -> int:
    """How many packets a qdisc has marked; 0 for one that marks none."""
    words = struct.unpack(f"={len(statistics.application) // 4}I", statistics.application)
    return sum(words[i] for i in _MARK_FIELDS.get(statistics.kind, ()) if i < len(words))


def stock_queue(queue: QueueSpec, link: Link, interface: str) -> tuple[str, bytes]:
    """The qdisc kind and options that come nearest. Raises UnsupportedPort where none does."""
    frame = link.frame_bytes
    match queue:
        case DropTail():
            return "bfifo", struct.pack("=I", queue.buffer_bytes)
        case Red():
            log_weight = min(31, max(0, round(-math.log2(queue.weight))))
            return "red", red_options(
                link, queue.buffer_bytes, queue.kmin_bytes, queue.kmax_bytes, queue.pmax,
                log_weight, queue.ecn,
            )  # fmt: skip
        case Dctcp():
            k = queue.k_bytes + 1  # RED acts from its threshold on, the step above it
            return "red", red_options(link, queue.buffer_bytes, k, k, 1, 0, True)
        case Codel():
            limit = max(1, queue.buffer_bytes // frame)
            options = u32(_CODEL_TARGET, _microseconds(queue.target_ns))
            options += u32(_CODEL_LIMIT, limit)
            options += u32(_CODEL_INTERVAL, _microseconds(queue.interval_ns))
            options += u32(_CODEL_ECN, int(queue.ecn))
            flows = isinstance(queue, FqCodel)
            if isinstance(queue, FqCodel):
                options += u32(_FQ_FLOWS, queue.flows)
                options += u32(_FQ_QUANTUM, queue.quantum_bytes or frame)
            if queue.ce_threshold_ns is not None:
                kind = _FQ_CE if flows else _CODEL_CE
                options += u32(kind, _microseconds(queue.ce_threshold_ns))
            return "fq_codel" if flows else "codel", options
        case _:
            raise UnsupportedPort(
                f"{interface}: a {queue.kind} queue has no equivalent among stock qdiscs alone"
            )


def _microseconds(time_ns: int) -> int:
    return max(1, round(time_ns / 1000))


def red_options(
    link: Link,
    limit_bytes: int,
    min_bytes: int,
    max_bytes: int,
    pmax: float,
    log_weight: int,
    ecn: bool,
) -> bytes:
    """The body of TCA_OPTIONS of a RED whose average moves by 2^-log_weight per packet.

    With ECN, what cannot be marked is let through (nodrop), as the port qdisc does. Where the line
    says p, the kernel draws the distance to the next mark evenly from 1 to 1/p packets (Floyd and
    Jacobson 1993, section 7), which on average is half of 1/p; so it is given half of the line.
    """
    cell_log, table = _idle_table(link, log_weight)
    # struct tc_red_qopt: limit, qth_min, qth_max, Wlog, Plog, Scell_log, flags
    parameters = struct.pack(
        "=IIIBBBB", limit_bytes, min_bytes, max_bytes, log_weight, 0, cell_log, 0
    )
    flags = _RED_ECN | _RED_NODROP if ecn else 0
    return (
        attribute(_RED_PARMS, parameters)
        + attribute(_RED_STAB, table)
        + u32(_RED_MAX_P, round(pmax / 2 * 2**32))
        + attribute(_RED_FLAGS, struct.pack("=II", _RED_ECN | _RED_NODROP, flags))
    )


def _idle_table(link: Link, log_weight: int) -> tuple[int, bytes]:
    """By how many bits the average has decayed after an idle time, in cells of 2^cell_log us."""
    if log_weight == 0:
        return 0, bytes([31] * _STAB_BYTES)
    wire = link.frame_bytes + L1_OVERHEAD_BYTES
    packet_us = wire * 8e6 / link.rate_bps
    # After t the average is (1 - w)^(t / packet) of what it was: so many halvings per us.
    halvings_per_us = -math.log2(1 - 2.0**-log_weight) / packet_us
    cell_log = max(0, math.ceil(math.log2(31 / halvings_per_us / (_STAB_BYTES - 1))))
    cells = (min(31, round((i << cell_log) * halvings_per_us)) for i in range(_STAB_BYTES - 1))
    return cell_log, bytes([*cells, 31])
