"""Captures as tables: flows between ranks, and every byte on the wire by collective."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import numpy.typing as npt

from analysis.decode.attribution import Attribution
from analysis.decode.phase_bytes import bytes_by_phase
from analysis.decode.roce.queue_pair_metrics import queue_pair_metrics
from analysis.decode.segmented import percentiles
from analysis.metrics.flow import Flows
from analysis.report.tables.table import Column, Table, Unit, Value, table
from analysis.runs.collectives import ALIGNMENT

Float64 = npt.NDArray[np.float64]


def flows_table(flows: Flows) -> Table:
    """A row per direction of each connection between ranks."""
    columns = (
        Column("source", "from rank", Unit.COUNT),
        Column("destination", "to rank", Unit.COUNT),
        Column("group", "group"),
        Column("payload_bytes", "payload", Unit.SIZE),
        Column("messages", "messages", Unit.COUNT),
        Column("fct_median_ns", "FCT, median", Unit.DURATION),
        Column("fct_p99_ns", "FCT, 99%", Unit.DURATION),
        Column("slowdown_median", "slowdown, median", Unit.NUMBER),
        Column("slowdown_p99", "slowdown, 99%", Unit.NUMBER),
        Column("rtt_min_ns", "RTT, least", Unit.DURATION),
        Column("rtt_median_ns", "RTT, median", Unit.DURATION),
        Column("packets", "packets", Unit.COUNT),
        Column("retransmitted_packets", "retransmitted", Unit.COUNT),
        Column("ce_share", "CE marked", Unit.SHARE),
        Column("reordered", "reordered", Unit.COUNT),
        Column("most_reordered", "behind at most", Unit.COUNT),
    )
    messages, count = flows.messages, len(flows.flows)
    known = np.flatnonzero(messages.collective >= 0)
    of, fct, slowdown = messages.flow[known], messages.fct_ns[known], messages.slowdown[known]
    rtt_of = np.repeat(np.arange(count), [len(flow.rtt_ns) for flow in flows.flows])
    columns_by_flow = (
        np.bincount(of, minlength=count).tolist(),
        *(_rounded(percentiles(fct, of, count, percent), 0) for percent in (50, 99)),
        *(_rounded(percentiles(slowdown, of, count, percent), 6) for percent in (50, 99)),
        *(_rounded(percentiles(flows.rtt_ns, rtt_of, count, percent), 0) for percent in (0, 50)),
    )
    rows = []
    for flow, figures in zip(flows.flows, zip(*columns_by_flow, strict=True), strict=True):
        row: list[Value] = [
            flow.source,
            flow.destination,
            flow.group,
            flow.payload_bytes,
            *figures,
            flow.packets,
            flow.retransmitted_packets,
            round(flow.ce_fraction, 6),
            flow.reordered,
            int(flow.reordering.max(initial=0)),
        ]
        rows.append(row)
    return table("flows", "Flows", columns, rows)


def reordering_table(flows: Flows) -> Table:
    """A histogram: how many packets arrived behind so many others, of all flows; none of those that
    arrived in order."""
    columns = (
        Column("least", "behind at least", Unit.COUNT),
        Column("most", "at most", Unit.COUNT),
        Column("packets", "packets", Unit.COUNT),
        Column("share", "of all packets", Unit.SHARE),
    )
    total = sum(flow.packets for flow in flows.flows)
    extents = flows.reordering
    rows = []
    least = 1
    while least <= int(extents.max(initial=0)):
        most = 2 * least - 1
        held = int(np.count_nonzero((extents >= least) & (extents <= most)))
        rows.append((least, most, held, round(held / total, 9)))
        least = most + 1
    return table("reordering", "Packets that arrived behind later ones", columns, rows)


def queue_pairs_table(attribution: Attribution) -> Table:
    """A row per queue pair that ranks send from over RoCE, as captured where it sends."""
    columns = (
        Column("source", "from rank", Unit.COUNT),
        Column("destination", "to rank", Unit.COUNT),
        Column("group", "group"),
        Column("packets", "packets", Unit.COUNT),
        Column("retransmitted_packets", "retransmitted", Unit.COUNT),
        Column("acknowledgements", "ACKs", Unit.COUNT),
        Column("sequence_naks", "NAKs of a wrong PSN", Unit.COUNT),
        Column("not_ready_naks", "NAKs of a receiver not ready", Unit.COUNT),
        Column("cnps", "CNPs", Unit.COUNT),
    )
    rows = [astuple(each) for each in queue_pair_metrics(attribution)]
    return table("queue_pairs", "Queue pairs", columns, rows)


def wire_table(attribution: Attribution) -> Table:
    """A row per collective with all its bytes on the wire; then set-up, teardown and what could not
    be attributed. Together they are every byte of the data connections, each packet once."""
    columns = (
        Column("collective", "bytes of"),
        Column("kind", "kind"),
        Column("messages", "messages", Unit.COUNT),
        Column("data_bytes", "data", Unit.SIZE),
        Column("preamble_bytes", "preambles", Unit.SIZE),
        Column("header_bytes", "headers", Unit.SIZE),
        Column("ack_bytes", "acknowledgements", Unit.SIZE),
        Column("retransmitted_bytes", "retransmitted", Unit.SIZE),
        Column("wire_bytes", "on the wire", Unit.SIZE),
        Column("overhead", "wire / data - 1", Unit.SHARE),
    )
    rows = [
        (
            each.kind if each.collective is None else each.collective.id,
            each.kind,
            each.messages,
            each.data_bytes,
            each.preamble_bytes,
            each.header_bytes,
            each.ack_bytes,
            each.retransmitted_bytes,
            each.wire_bytes,
            round(each.overhead, 6) if each.data_bytes else None,
        )
        for each in attribution.by_collective()
    ]
    return table("wire", "Bytes on the wire", columns, rows)


def phases_table(attribution: Attribution) -> Table:
    """A row per phase of each chunk of the collectives that ran as programs: the same bytes as in
    the table of collectives, further divided. Alignments are left out."""
    columns = (
        Column("collective", "bytes of"),
        Column("chunk", "chunk", Unit.COUNT),
        Column("phase", "phase"),
        Column("dimension", "dimension", Unit.COUNT),
        Column("messages", "messages", Unit.COUNT),
        Column("data_bytes", "data", Unit.SIZE),
        Column("wire_bytes", "on the wire", Unit.SIZE),
    )
    rows = [
        (
            each.collective.id,
            each.chunk,
            each.phase.name,
            each.phase.dimension,
            each.messages,
            each.data_bytes,
            each.wire_bytes,
        )
        for each in bytes_by_phase(attribution)
        if each.collective.phase != ALIGNMENT
    ]
    return table("phases", "Bytes on the wire by chunk and phase", columns, rows)


def _rounded(values: Float64, digits: int) -> list[float | int | None]:
    """To so many digits, an integer for 0; None for NaN."""
    return [None if value != value else round(value, digits or None) for value in values.tolist()]
