"""A run's counters as OpenMetrics text, for monitoring that reads standard counters.

Format: OpenMetrics 1.0 (RFC draft-ietf-opsawg-openmetrics-00), content type
`application/openmetrics-text; version=1.0.0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from analysis.metrics.collective import collective_metrics
from analysis.metrics.ecmp import ecmp_groups
from analysis.metrics.flow import NoFlows, read_flows
from analysis.metrics.iteration import iteration_breakdowns
from analysis.metrics.link import port_metrics
from analysis.metrics.tier_over_time import tiers_over_time
from analysis.results.verdict import verdict_of
from analysis.runs.run import Run
from analysis.runs.samples.ports import port_series

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | int | None]]


def render_openmetrics(run: Run) -> str:
    """The exposition of one run, every sample labelled with the run's name. Raises RunError."""
    text = _Exposition({"run": run.spec.name, "kernel": run.environment.kernel})
    text.gauge("valid", "1 when the fidelity verdict is valid", [({}, int(verdict_of(run).valid))])
    _add_ports(text, run)
    text.counter(
        "tcp_retransmitted_segments",
        "TCP segments sent again, over all hosts",
        [({}, run.environment.retransmits)],
    )
    if run.environment.roce is not None:
        text.counter(
            "roce_retries",
            "Times that queue pairs went back and sent again, over all hosts",
            [({}, run.environment.roce.retries)],
        )
        text.counter(
            "roce_requests_sent_again",
            "Requests that selective repeat sent again alone, over all hosts",
            [({}, run.environment.roce.resent_alone)],
        )
        text.counter(
            "roce_early_requests",
            "Requests that came before their turn, over all hosts",
            [({}, run.environment.roce.early_requests)],
        )
        text.counter(
            "roce_trimmed_requests_sent_again",
            "Requests that ports had trimmed and that were sent again, over all hosts",
            [({}, run.environment.roce.resent_trimmed)],
        )
        text.counter(
            "roce_paths_skipped",
            "Times that an entropy value was to be skipped once, over all queue pairs",
            [({}, run.environment.roce.paths_skipped)],
        )
        text.counter(
            "roce_paths_assumed_bad",
            "Times that an entropy value lost a packet and was left, over all queue pairs",
            [({}, run.environment.roce.paths_bad)],
        )
        text.counter(
            "roce_path_probes",
            "Probes of entropy values that had been left, over all queue pairs",
            [({}, run.environment.roce.probes)],
        )
    _add_paths(text, run)
    _add_reordering(text, run)
    _add_collectives(text, run)
    text.gauge(
        "iteration_duration_seconds",
        "From the first rank's start to the last one's end",
        [({"iteration": str(b.index)}, b.duration_ns / 1e9) for b in iteration_breakdowns(run)],
        unit="seconds",
    )
    return text.render()


def _add_paths(text: _Exposition, run: Run) -> None:
    groups = ecmp_groups(run)
    labels = [
        {"node": group.node, "peers": " ".join(port.record.peer for port in group.ports)}
        for group in groups
    ]
    text.gauge(
        "paths_imbalance_ratio",
        "Load of the busiest of equal-cost ports over their mean",
        zip(labels, (group.imbalance for group in groups), strict=True),
        unit="ratio",
    )
    text.gauge(
        "paths_used",
        "Equal-cost ports that an even spread of the same entropy would use",
        zip(labels, (group.paths_used for group in groups), strict=True),
    )
    text.gauge(
        "paths_possible",
        "Equal-cost ports that there are",
        zip(labels, (len(group.ports) for group in groups), strict=True),
    )
    tiers = tiers_over_time(run, port_series(run))
    of_tier = [{"tier": tier.link_class, "direction": tier.direction} for tier in tiers]
    text.gauge(
        "tier_imbalance_ratio",
        "Busiest port of a tier over the mean of its ports, on average over time, by bytes",
        zip(of_tier, (tier.mean_imbalance for tier in tiers), strict=True),
        unit="ratio",
    )
    text.gauge(
        "tier_worst_imbalance_ratio",
        "The same in the worst of the windows in which much was sent",
        zip(of_tier, (tier.worst[1] for tier in tiers), strict=True),
        unit="ratio",
    )
    choices = run.environment.next_hops
    nodes = [{"node": node} for node in choices]
    text.counter(
        "next_hop_choices",
        "Packets for which a node chose among next hops by more than a hash",
        zip(nodes, (each.packets for each in choices.values()), strict=True),
    )
    text.counter(
        "next_hop_moves",
        "Times that a flow went on by another next hop of a node",
        zip(nodes, (each.moves for each in choices.values()), strict=True),
    )


def _add_reordering(text: _Exposition, run: Run) -> None:
    """By captures; nothing of a run that has none, or too much of them."""
    flows = read_flows(run)
    if isinstance(flows, NoFlows):
        return
    text.counter(
        "payload_packets",
        "Captured packets of collectives that carry payload",
        [({}, sum(flow.packets for flow in flows.flows))],
    )
    text.histogram(
        "reordering_extent_packets",
        "Packets that arrived behind later ones of their flow, by behind how many (RFC 4737)",
        flows.reordering.tolist(),
        unit="packets",
    )


def _add_ports(text: _Exposition, run: Run) -> None:
    ports = port_metrics(run)
    labels = [{"node": p.record.node, "port": p.record.port, "peer": p.record.peer} for p in ports]

    def of_ports(values: Iterable[float | int | None]) -> Samples:
        return zip(labels, values, strict=True)

    text.counter(
        "port_transmit_bytes",
        "Bytes sent by an egress port, L1 overhead not counted",
        of_ports(p.record.bytes for p in ports),
        unit="bytes",
    )
    text.counter(
        "port_transmit_packets",
        "Packets sent by an egress port",
        of_ports(p.record.packets for p in ports),
    )
    if any(p.record.copies for p in ports):
        text.counter(
            "port_copies",
            "Copies of memory that a port has carried beside packets",
            of_ports(p.record.copies for p in ports),
        )
        text.counter(
            "port_copied_bytes",
            "Bytes of copies of memory that a port has carried beside packets",
            of_ports(p.record.copied_bytes for p in ports),
            unit="bytes",
        )
    text.counter(
        "port_drops",
        "Packets dropped at an egress port, by reason",
        [
            (labels[i] | {"reason": reason}, amount)
            for i, p in enumerate(ports)
            for reason, amount in _reasons(p.record.drops, p.record.drops_by_reason)
        ],
    )
    text.counter(
        "port_ecn_marked_packets",
        "Packets marked Congestion Experienced",
        of_ports(p.record.ecn_marks for p in ports),
    )
    text.counter(
        "port_trimmed_packets",
        "Packets that went on without their payload",
        of_ports(p.record.trims for p in ports),
    )
    text.counter(
        "port_pauses",
        "Times that the port was paused by its peer",
        of_ports(p.record.pauses for p in ports),
    )
    text.counter(
        "port_paused_seconds",
        "Time for which the port was paused",
        of_ports(p.record.paused_ns / 1e9 for p in ports),
        unit="seconds",
    )
    text.gauge(
        "port_backlog_max_bytes",
        "Deepest backlog of an egress port",
        of_ports(p.record.max_backlog_bytes for p in ports),
        unit="bytes",
    )
    text.gauge(
        "port_utilisation_ratio",
        "Share of the communicating time spent sending",
        of_ports(p.utilisation for p in ports),
        unit="ratio",
    )
    text.gauge(
        "port_speed_bps",
        "Rate of the port's link in bits per second",
        of_ports(p.rate_bps for p in ports),
    )


def _add_collectives(text: _Exposition, run: Run) -> None:
    collectives = collective_metrics(run)
    named: list[Labels] = [
        {
            "collective": c.collective.id,
            "group": c.collective.group,
            "kind": c.collective.kind,
            "iteration": str(c.collective.iteration),
        }
        for c in collectives
    ]
    text.gauge(
        "collective_duration_seconds",
        "From the last post to the last completion",
        zip(named, (c.duration_ns / 1e9 for c in collectives), strict=True),
        unit="seconds",
    )
    text.gauge(
        "collective_busbw_bps",
        "Bus bandwidth as nccl-tests defines it, bits per second",
        (
            (labels, each.busbw_gbps * 1e9)
            for labels, each in zip(named, collectives, strict=True)
            if each.busbw_gbps is not None
        ),
    )


def _reasons(drops: int, by_reason: Mapping[str, int]) -> list[tuple[str, int]]:
    """Drops by reason; what no reason explains is `other`, so that the sum is right."""
    known = sum(by_reason.values())
    rest = [("other", drops - known)] if drops > known or not by_reason else []
    return [*sorted(by_reason.items()), *rest]


class _Exposition:
    """Metric families in order; names get the prefix `groundwire_`."""

    def __init__(self, common: Labels) -> None:
        self._common = common
        self._lines: list[str] = []

    def counter(self, name: str, help_: str, samples: Samples, unit: str = "") -> None:
        self._family(name, "counter", help_, unit, "_total", samples)

    def gauge(self, name: str, help_: str, samples: Samples, unit: str = "") -> None:
        self._family(name, "gauge", help_, unit, "", samples)

    def histogram(self, name: str, help_: str, values: Sequence[int], unit: str) -> None:
        """A family of whole numbers from 1 on, in buckets that end before each power of two."""
        tops = [2**power - 1 for power in range(1, max(values, default=0).bit_length() + 1)]
        buckets = [({"le": f"{top}.0"}, sum(each <= top for each in values)) for top in tops]
        samples = [*buckets, ({"le": "+Inf"}, len(values))]
        self._family(name, "histogram", help_, unit, "_bucket", samples)
        for suffix, amount in (("_count", len(values)), ("_sum", sum(values))):
            self._sample(f"groundwire_{name}{suffix}", {}, amount)

    def render(self) -> str:
        return "\n".join([*self._lines, "# EOF", ""])

    def _family(
        self, name: str, kind: str, help_: str, unit: str, suffix: str, samples: Samples
    ) -> None:
        full = f"groundwire_{name}"
        self._lines.append(f"# TYPE {full} {kind}")
        if unit:
            self._lines.append(f"# UNIT {full} {unit}")
        self._lines.append(f"# HELP {full} {help_}")
        for labels, value in samples:
            if value is not None:
                self._sample(f"{full}{suffix}", labels, value)

    def _sample(self, name: str, labels: Labels, value: float | int) -> None:
        pairs = ",".join(f'{k}="{_escape(text)}"' for k, text in {**self._common, **labels}.items())
        self._lines.append(f"{name}{{{pairs}}} {value!r}")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
