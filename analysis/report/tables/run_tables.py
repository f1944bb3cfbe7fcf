"""A run as tables, for scripts, files and data frames: `tables(load_run(path))["collectives"]`."""

from __future__ import annotations

from analysis.metrics.collective import collective_metrics
from analysis.metrics.dimension import dimension_uses
from analysis.metrics.ecmp import ecmp_groups
from analysis.metrics.flow import Flows
from analysis.metrics.in_network.links import tree_links
from analysis.metrics.iteration import iteration_breakdowns
from analysis.metrics.link import communicating_spans, port_metrics
from analysis.metrics.phase_names import phase_name
from analysis.metrics.spans import length_ns
from analysis.metrics.tier import bisection_use, tier_uses
from analysis.metrics.tier_over_time import tiers_over_time
from analysis.metrics.traffic import traffic_matrix
from analysis.report.tables.capture_tables import (
    flows_table,
    phases_table,
    queue_pairs_table,
    reordering_table,
    wire_table,
)
from analysis.report.tables.copies_table import COPIED, copies_table
from analysis.report.tables.slots_table import slots_table
from analysis.report.tables.table import Column, Table, Unit, Value, table
from analysis.runs.run import Run, RunError
from analysis.runs.samples.ports import port_series


def tables(run: Run, flows: Flows | None = None) -> dict[str, Table]:
    """Every table that the run has the data for, by name.

    Times are nanoseconds of the target fabric. Captures are not read here: with
    `flows_of(load_capture(run))` as `flows`, the tables `flows` and `wire` are there as well.
    Raises RunError for a damaged run directory.
    """
    found = [
        collectives_table(run),
        iterations_table(run),
        ranks_table(run),
        ports_table(run),
        tiers_table(run),
        ecmp_table(run),
        traffic_table(run),
    ]
    balance = tiers_over_time_table(run)
    found += [balance] if balance.rows else []
    classes = classes_table(run)
    found += [classes] if classes.rows else []
    dimensions = dimensions_table(run)
    found += [dimensions] if dimensions.rows else []
    in_network = in_network_table(run)
    found += [in_network] if in_network.rows else []
    copies = copies_table(run)
    found += [copies] if copies.rows else []
    slots = slots_table(run)
    found += [slots] if slots.rows else []
    if flows is not None:
        found += [flows_table(flows), wire_table(flows.capture.attribution)]
        pairs = queue_pairs_table(flows.capture.attribution)
        found += [pairs] if pairs.rows else []
        reordering = reordering_table(flows)
        found += [reordering] if reordering.rows else []
        phases = phases_table(flows.capture.attribution)
        found += [phases] if phases.rows else []
    return {each.name: each for each in found}


def collectives_table(run: Run) -> Table:
    """A row per collective, with each predictor's time and error where result.json exists."""
    try:
        result = run.result
    except RunError:
        result = {"collectives": [], "summary": {"error": {}}}
    predicted = {(row["group"], row["id"]): row["predicted"] for row in result["collectives"]}
    predictors = list(result["summary"]["error"])
    columns = [
        Column("id", "collective"),
        Column("kind", "kind"),
        Column("phase", "phase"),
        Column("group", "group"),
        Column("iteration", "iteration", Unit.COUNT),
        Column("size_bytes", "size", Unit.SIZE),
        Column("ranks", "ranks", Unit.COUNT),
        Column("start_ns", "start", Unit.DURATION),
        Column("duration_ns", "measured", Unit.DURATION),
        Column("algbw_gbps", "algbw", Unit.GBPS),
        Column("busbw_gbps", "busbw", Unit.GBPS),
        Column("limit_ns", "limit", Unit.DURATION),
        Column("limit_share", "of limit", Unit.SHARE),
        Column("post_spread_ns", "post spread", Unit.DURATION),
        Column("end_spread_ns", "end spread", Unit.DURATION),
        Column("last_to_post", "last to post", Unit.COUNT),
        Column("last_to_end", "last to end", Unit.COUNT),
    ]
    for name in predictors:
        columns.append(Column(f"{name}_ns", name, Unit.DURATION))
        columns.append(Column(f"{name}_error", f"{name} error", Unit.ERROR))
    metrics = collective_metrics(run)
    scale = run.environment.scale
    origin_ns = min((m.collective.start_ns for m in metrics), default=0)
    rows = []
    for m in metrics:
        c = m.collective
        row: list[Value] = [
            c.id,
            c.kind,
            phase_name(c.phase),
            c.group,
            c.iteration,
            c.size_bytes,
            len(c.ranks),
            (c.start_ns - origin_ns) // scale,
            m.duration_ns,
            None if m.algbw_gbps is None else round(m.algbw_gbps, 6),
            None if m.busbw_gbps is None else round(m.busbw_gbps, 6),
            round(m.limit_ns),
            None if m.limit_share is None else round(m.limit_share, 6),
            m.post_spread_ns,
            m.end_spread_ns,
            m.last_to_post,
            m.last_to_end,
        ]
        for name in predictors:
            answer = predicted.get((c.group, c.id), {}).get(name, {})
            row += [answer.get("duration_ns"), answer.get("error")]
        rows.append(row)
    return table("collectives", "Collectives", columns, rows)


def iterations_table(run: Run) -> Table:
    """A row per iteration: means over the ranks, by phase."""
    breakdowns = iteration_breakdowns(run)
    phases = tuple(dict.fromkeys(phase for b in breakdowns for phase in b.phases))
    columns = [
        Column("iteration", "iteration", Unit.COUNT),
        Column("duration_ns", "first start to last end", Unit.DURATION),
        Column("mean_duration_ns", "mean of ranks", Unit.DURATION),
        Column("compute_ns", "compute", Unit.DURATION),
    ]
    for phase in phases:
        name = phase_name(phase)
        columns.append(Column(f"exposed_{phase}_ns", f"exposed {name}", Unit.DURATION))
        columns.append(Column(f"overlapped_{phase}_ns", f"overlapped {name}", Unit.DURATION))
    columns.append(Column("other_ns", "other", Unit.DURATION))
    rows = []
    for b in breakdowns:
        row: list[Value] = [
            b.index,
            b.duration_ns,
            round(b.mean_duration_ns),
            round(b.mean_compute_ns),
        ]
        for phase in phases:
            row += [round(b.mean_exposed_ns(phase)), round(b.mean_overlapped_ns(phase))]
        rows.append([*row, round(b.mean_other_ns)])
    return table("iterations", "Iterations", columns, rows)


def ranks_table(run: Run) -> Table:
    """A row per rank and iteration: its compute and its exposed communication."""
    rows = [
        (
            rank.rank,
            run.ranks[rank.rank].host,
            b.index,
            rank.duration_ns,
            rank.compute_ns,
            sum(rank.exposed_ns.values()),
            sum(rank.overlapped_ns.values()),
            rank.other_ns,
        )
        for b in iteration_breakdowns(run)
        for rank in b.ranks
    ]
    columns = (
        Column("rank", "rank", Unit.COUNT),
        Column("host", "host"),
        Column("iteration", "iteration", Unit.COUNT),
        Column("duration_ns", "duration", Unit.DURATION),
        Column("compute_ns", "compute", Unit.DURATION),
        Column("exposed_ns", "exposed communication", Unit.DURATION),
        Column("overlapped_ns", "overlapped communication", Unit.DURATION),
        Column("other_ns", "other", Unit.DURATION),
    )
    return table("ranks", "Ranks", columns, rows)


def ports_table(run: Run) -> Table:
    """A row per egress port, in the order of links.jsonl; with a column of trimmed packets where
    ports trim, and of copies where they carry some."""
    ports = port_metrics(run)
    copying = any(p.record.copies for p in ports)
    trimming = any(p.record.trims for p in ports)
    columns = (
        Column("port", "port"),
        Column("node", "from"),
        Column("peer", "to"),
        Column("link", "link", Unit.COUNT),
        Column("rate_bps", "rate", Unit.RATE),
        Column("utilisation", "busy", Unit.SHARE),
        Column("bytes", "sent", Unit.SIZE),
        Column("packets", "packets", Unit.COUNT),
        *(COPIED if copying else ()),
        Column("max_backlog_bytes", "deepest queue", Unit.SIZE),
        Column("mean_backlog_bytes", "mean queue", Unit.SIZE),
        Column("ecn_marks", "marks", Unit.COUNT),
        Column("drops", "drops", Unit.COUNT),
        *([Column("trims", "trimmed", Unit.COUNT)] if trimming else []),
        Column("pauses", "pauses", Unit.COUNT),
        Column("paused_ns", "paused", Unit.DURATION),
    )
    rows = [
        (
            p.record.port,
            p.record.node,
            p.record.peer,
            p.record.link,
            p.rate_bps,
            None if p.utilisation is None else round(p.utilisation, 6),
            p.record.bytes,
            p.record.packets,
            *((p.record.copied_bytes, p.record.copies) if copying else ()),
            p.record.max_backlog_bytes,
            None if p.mean_backlog_bytes is None else round(p.mean_backlog_bytes),
            p.record.ecn_marks,
            p.record.drops,
            *([p.record.trims] if trimming else []),
            p.record.pauses,
            p.record.paused_ns // run.environment.scale,
        )
        for p in ports
    ]
    return table("ports", "Ports", columns, rows)


def classes_table(run: Run) -> Table:
    """A row per class of traffic of a port, where ports have several."""
    columns = (
        Column("port", "port"),
        Column("class", "class"),
        Column("priority", "priority", Unit.COUNT),
        Column("bytes", "sent", Unit.SIZE),
        Column("packets", "packets", Unit.COUNT),
        Column("max_backlog_bytes", "deepest queue", Unit.SIZE),
        Column("ecn_marks", "marks", Unit.COUNT),
        Column("drops", "drops", Unit.COUNT),
        Column("paused_ns", "paused", Unit.DURATION),
    )
    rows = [
        (
            link.port,
            one.name,
            one.priority,
            one.bytes,
            one.packets,
            one.max_backlog_bytes,
            one.ecn_marks,
            one.drops,
            one.paused_ns // run.environment.scale,
        )
        for link in run.port_counters
        for one in link.classes
    ]
    return table("classes", "Classes of traffic", columns, rows)


def ecmp_table(run: Run) -> Table:
    """A row per group of equal-cost ports."""
    columns = (
        Column("node", "node"),
        Column("ports", "ports", Unit.COUNT),
        Column("peers", "towards"),
        Column("bytes", "sent", Unit.SIZE),
        Column("max_bytes", "busiest port", Unit.SIZE),
        Column("imbalance", "max / mean", Unit.NUMBER),
        Column("paths_used", "ports used", Unit.NUMBER),
        Column("heavy_flows", "heavy flows by port"),
        Column("collisions", "collisions", Unit.COUNT),
    )
    rows = [
        (
            group.node,
            len(group.ports),
            " ".join(p.record.peer for p in group.ports),
            sum(group.bytes),
            max(group.bytes),
            None if group.imbalance is None else round(group.imbalance, 6),
            None if group.paths_used is None else round(group.paths_used, 6),
            None if group.heavy_flows is None else " ".join(map(str, group.heavy_flows)),
            group.collisions,
        )
        for group in ecmp_groups(run)
    ]
    return table("ecmp", "Equal-cost groups", columns, rows)


def tiers_table(run: Run) -> Table:
    """A row per kind of link and direction, then the bisection (lower half of the ranks to the
    upper one, in the busier direction; its rate is goodput)."""
    columns = (
        Column("tier", "links"),
        Column("direction", "direction"),
        Column("ports", "ports", Unit.COUNT),
        Column("bytes", "sent", Unit.SIZE),
        Column("rate_bps", "rate, all together", Unit.RATE),
        Column("mean_utilisation", "busy, mean", Unit.SHARE),
        Column("max_utilisation", "busy, busiest", Unit.SHARE),
        Column("imbalance", "max / mean", Unit.NUMBER),
    )
    rows: list[tuple[Value, ...]] = []
    for tier in tier_uses(run):
        rows.append(
            (
                tier.link_class,
                tier.direction,
                len(tier.ports),
                sum(p.sent_bytes for p in tier.ports),
                sum(p.rate_bps for p in tier.ports),
                *(
                    None if each is None else round(each, 6)
                    for each in (tier.mean_utilisation, tier.max_utilisation, tier.imbalance)
                ),
            )
        )
    bisection = bisection_use(run, traffic_matrix(run))
    if bisection is not None:
        use = round(bisection.utilisation, 6)
        rows.append(
            (
                "bisection (payload)",
                "across",
                None,
                bisection.crossing_bytes,
                round(bisection.capacity_bps),
                use,
                None,
                None,
            )
        )
    return table("tiers", "Use by tier", columns, rows)


def tiers_over_time_table(run: Run) -> Table:
    """A row per kind of link and direction whose ports all were sampled: how evenly they were used,
    window by window."""
    columns = (
        Column("tier", "links"),
        Column("direction", "direction"),
        Column("ports", "ports", Unit.COUNT),
        Column("windows", "windows", Unit.COUNT),
        Column("mean_imbalance", "max / mean, on average", Unit.NUMBER),
        Column("worst_imbalance", "worst window", Unit.NUMBER),
        Column("worst_at_ns", "its begin", Unit.DURATION),
    )
    scale = run.environment.scale
    found = tiers_over_time(run, port_series(run))
    rows = [
        (
            tier.link_class,
            tier.direction,
            tier.ports,
            int((tier.mean > 0).sum()),
            round(tier.mean_imbalance, 6),
            round(tier.worst[1], 6),
            (tier.worst[0] - int(tier.begin_ns[0])) // scale,
        )
        for tier in found
    ]
    return table("tiers_over_time", "Balance of tiers over time", columns, rows)


def dimensions_table(run: Run) -> Table:
    """A row per dimension that programs went along: their payload, and its load (payload over the
    dimension's relative rate) as a share of the largest. Busy is the time in which some rank had a
    phase along it, as a share of that in which collectives were in flight."""
    uses = dimension_uses(run)
    columns = (
        Column("dimension", "dimension", Unit.COUNT),
        Column("payload_bytes", "payload", Unit.SIZE),
        Column("rate", "relative rate", Unit.NUMBER),
        Column("load_share", "of the largest load", Unit.SHARE),
        Column("busy_share", "busy", Unit.SHARE),
    )
    largest = max((use.load for use in uses), default=0.0)
    flight_ns = length_ns(communicating_spans(run))
    rows = [
        (
            use.dimension,
            use.payload_bytes,
            use.rate,
            round(use.load / largest, 6) if largest else None,
            round(use.busy_ns / flight_ns, 6) if flight_ns else None,
        )
        for use in uses
    ]
    return table("dimensions", "Load by dimension", columns, rows)


def in_network_table(run: Run) -> Table:
    """A row per link of the aggregation tree: payload of collectives in which switches took part,
    away from the hosts and back, and of the ring or tree that hosts would have run."""
    columns = (
        Column("child", "below"),
        Column("parent", "above"),
        Column("link_class", "link"),
        Column("up_bytes", "up", Unit.SIZE),
        Column("down_bytes", "down", Unit.SIZE),
        Column("by_hosts_up_bytes", "up, by hosts", Unit.SIZE),
        Column("by_hosts_down_bytes", "down, by hosts", Unit.SIZE),
    )
    rows = [
        (
            each.child,
            each.parent,
            each.link.link_class,
            each.up_bytes,
            each.down_bytes,
            each.by_hosts_up_bytes,
            each.by_hosts_down_bytes,
        )
        for each in tree_links(run)
    ]
    return table("in_network", "Links of the aggregation tree", columns, rows)


def traffic_table(run: Run) -> Table:
    """A row per ordered pair of ranks that exchanged anything."""
    matrix = traffic_matrix(run).bytes
    rows = [
        (source, destination, int(amount))
        for source, row in enumerate(matrix.tolist())
        for destination, amount in enumerate(row)
        if amount
    ]
    columns = (
        Column("source", "from rank", Unit.COUNT),
        Column("destination", "to rank", Unit.COUNT),
        Column("bytes", "payload", Unit.SIZE),
    )
    return table("traffic", "Bytes between ranks", columns, rows)
