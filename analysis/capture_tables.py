"""What was captured as tables: flows between ranks, and every byte on the wire by collective."""

from __future__ import annotations

import numpy as np

from analysis.attribution import Attribution
from analysis.metrics.flow import Flows
from analysis.table import Column, Table, Unit, Value, table


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
    )
    messages = flows.messages
    order = np.argsort(messages.flow, kind="stable")
    bounds = np.searchsorted(messages.flow[order], np.arange(len(flows.flows) + 1))
    rows = []
    for index, flow in enumerate(flows.flows):
        mine = order[bounds[index] : bounds[index + 1]]
        mine = mine[messages.collective[mine] >= 0]
        fct, slowdown = messages.fct_ns[mine], messages.slowdown[mine]
        row: list[Value] = [
            flow.source,
            flow.destination,
            flow.group,
            flow.payload_bytes,
            len(mine),
            _whole(fct, 50),
            _whole(fct, 99),
            _share(slowdown, 50),
            _share(slowdown, 99),
            _whole(flow.rtt_ns, 0),
            _whole(flow.rtt_ns, 50),
            flow.packets,
            flow.retransmitted_packets,
            round(flow.ce_fraction, 6),
            flow.reordered,
        ]
        rows.append(row)
    return table("flows", "Flows", columns, rows)


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


def _whole(values: np.ndarray[tuple[int], np.dtype[np.int64]], percent: float) -> int | None:
    return round(float(np.percentile(values, percent))) if len(values) else None


def _share(values: np.ndarray[tuple[int], np.dtype[np.float64]], percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 6) if len(values) else None
