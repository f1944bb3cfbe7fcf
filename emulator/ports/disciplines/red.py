"""RED: random early detection on the averaged queue (Floyd and Jacobson 1993).

RED's idle table: tc_red_eval_idle_damping in iproute2.
"""

from __future__ import annotations

import math
from dataclasses import replace

from emulator.linux.messages import formats
from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import NO_FLAGS, Flag, PortOptions, QueueKind
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link
from topologies.spec.queue_section import Red
from topologies.units import q32

_ECN, _NODROP = 1, 8  # TC_RED_ECN, TC_RED_NODROP of include/uapi/linux/pkt_sched.h
_STAB_BYTES = 256


class EmulatedRed(Discipline):
    """Two thresholds of the average."""

    def own(self, queue: Red, plain: PortOptions, port: EgressPort) -> PortOptions:
        """The line from KMin to KMax."""
        return replace(
            plain,
            kind=QueueKind.RED,
            kmin_bytes=queue.kmin_bytes,
            kmax_bytes=queue.kmax_bytes,
            red_pmax_q32=q32(queue.pmax),
            red_weight_q32=q32(queue.weight),
            flags=Flag.ECN if queue.ecn else NO_FLAGS,
        )

    def stock(self, queue: Red, link: Link) -> tuple[str, bytes]:
        """red, whose average's weight is a power of two."""
        log_weight = min(31, max(0, round(-math.log2(queue.weight))))
        return "red", red_options(
            link, queue.buffer_bytes, queue.kmin_bytes, queue.kmax_bytes, queue.pmax,
            log_weight, queue.ecn,
        )  # fmt: skip

    def acts_at_bytes(self, queue: Red, link: Link) -> int:
        """KMin."""
        return min(queue.kmin_bytes, queue.buffer_bytes)


PART = EmulatedRed()


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
    return formats.RED.fill(
        limit_bytes, min_bytes, max_bytes, log_weight, cell_log, table,
        round(pmax / 2 * 2**32), _ECN | _NODROP if ecn else 0, _ECN | _NODROP,
    )  # fmt: skip


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
