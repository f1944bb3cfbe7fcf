"""A run in short: key figures and findings in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.decode.roce.queue_pair_metrics import queue_pair_metrics
from analysis.metrics.phase_names import phase_name
from analysis.metrics.tier import TierUse
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import count, duration, number, share, signed_percent, size
from analysis.results.notes import NO_COLLECTIVES
from analysis.results.rows import row_figures, rows_in_words
from analysis.results.unanswered import unanswered_in_words

_UNEVEN = 1.25
_FULL = 0.9
"""A link that sends for this share of the time, or a tier with this share of marks and drops."""
_ON_THE_WIRE = ("loss", "corruption")
_LOSSY_NAMED = 3


@dataclass(frozen=True)
class KeyFigure:
    """A figure of the summary: what it is, its value as text, a remark, and its amount where it
    makes sense to compare it with another run's."""

    title: str
    value: str
    remark: str = ""
    amount: float | None = None

    def against(self, other: KeyFigure | None) -> str:
        """The change from another run's figure, as "+3.1%"; empty where there is none."""
        if other is None or not self.amount or not other.amount:
            return ""
        return signed_percent(self.amount / other.amount - 1)


def key_figures(figures: RunFigures) -> tuple[KeyFigure, ...]:
    """The same figures in the same order for every run, so that runs compare line by line."""
    summary = figures.result["summary"]
    found = _iteration_figures(figures) + _job_figures(figures)
    known = [(m.busbw_gbps, m) for m in figures.collectives if m.busbw_gbps is not None]
    if known:
        gbps, best = max(known, key=lambda each: each[0])
        value = f"{number(gbps)}\u202fGb/s"
        remark = f"{phase_name(best.collective.phase)}, {share(best.limit_share)} of limit"
        found.append(KeyFigure("best busbw", value, remark, gbps))
    for name, error in summary["error"].items():
        if error["count"]:
            remark = f"mean of collectives; largest {signed_percent(error['largest'])}"
            found.append(KeyFigure(f"{name} error", share(error["mean"]), remark))
    found += _row_figures(figures)
    again = [f"{count(summary['retransmits'])} retransmits"]
    if "retries" in summary:
        again.append(f"{count(summary['retries'])} retries of queue pairs")
    found.append(KeyFigure("drops", count(summary["drops"]), ", ".join(again)))
    pauses = f"{count(summary['pauses'])} pauses"
    found.append(KeyFigure("ECN marks", count(summary["ecn_marks"]), pauses, summary["ecn_marks"]))
    return tuple(found)


def _job_figures(figures: RunFigures) -> list[KeyFigure]:
    """The cost of sharing for a job: how long it took, and how much less it takes alone."""
    job = figures.job
    if job is None:
        return []
    predicted = [
        f"{name} {signed_percent(answer['error'])}"
        for name, answer in job["predicted"].items()
        if answer.get("error") is not None
    ]
    found = [KeyFigure("job", duration(job["duration_ns"]), ", ".join(predicted))]
    if job["slowdown"] is not None:
        expected = [
            f"{name} {number(answer['slowdown'])}"
            for name, answer in job["predicted"].items()
            if "slowdown" in answer
        ]
        remark = ", ".join([f"alone {duration(job['alone']['duration_ns'])}", *expected])
        found.append(KeyFigure("slow-down", number(job["slowdown"]), remark))
    return found


def _row_figures(figures: RunFigures) -> list[KeyFigure]:
    """Those of sections that a workload has of its own."""
    found = []
    for row in row_figures(figures.result):
        words = size if row.unit == "bytes" else share
        remark = row.remark.format(words(row.beside))
        found.append(KeyFigure(row.title, words(row.amount), remark, row.amount))
    return found


def _iteration_figures(figures: RunFigures) -> list[KeyFigure]:
    iterations = figures.iterations
    if not iterations:
        return []
    times = [b.duration_ns for b in iterations]
    mean = sum(times) / len(times)
    remark = "the only one"
    if len(times) > 1:
        remark = f"mean of {len(times)}, {duration(min(times))} to {duration(max(times))}"
    rows = figures.result["iterations"]
    exposed = [row["exposed_comm_ns"] for row in rows]
    total = sum(row["duration_ns"] for row in rows)
    blocked = sum(exposed) / total if total and None not in exposed else None
    remark_of_share = "communication, of iterations, on the rank that has most"
    return [
        KeyFigure("iteration", duration(mean), remark, mean),
        KeyFigure("exposed share", share(blocked), remark_of_share),
    ]


def findings(figures: RunFigures) -> tuple[str, ...]:
    """Sentences that the figures of the run support, the weightiest first."""
    return tuple(
        text
        for text in (
            "" if figures.collectives or not figures.is_program else figures.why_no_collectives,
            _where_time_went(figures),
            _busy_links(figures),
            _uneven_choices(figures),
            _prediction(figures),
            _losses(figures),
            _trims(figures),
            _lossy_ports(figures),
            _attributed(figures),
            *(f"{_capital(words)}." for words in unanswered_in_words(figures.result)),
            *(f"{words}." for _, words in rows_in_words(figures.result)),
            *(f"{_capital(n)}." for n in figures.result.get("notes", ()) if n != NO_COLLECTIVES),
        )
        if text
    )


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _where_time_went(figures: RunFigures) -> str:
    by_phase: dict[str, float] = {}
    for b in figures.iterations:
        for phase in b.phases:
            by_phase[phase] = by_phase.get(phase, 0.0) + b.mean_exposed_ns(phase)
    if len(by_phase) < 2:
        return ""
    exposed = sum(by_phase.values())
    first = max(by_phase, key=lambda phase: by_phase[phase])
    if not exposed:
        return "All communication was hidden behind computation."
    return (
        f"{share(by_phase[first] / exposed)} of the time in which ranks were blocked on "
        f"communication went to {phase_name(first)}."
    )


def _busy_links(figures: RunFigures) -> str:
    tiers = [tier for tier in figures.tiers if tier.max_utilisation]
    if not tiers:
        return ""
    parts = ", ".join(
        f"{tier.link_class} {tier.direction} {share(tier.mean_utilisation)}" for tier in tiers[:6]
    )
    worst = max(tiers, key=lambda tier: tier.max_utilisation or 0.0)
    busiest = max(worst.ports, key=lambda port: port.utilisation or 0.0)
    return (
        f"Link use while collectives were in flight, on average: {parts}; the busiest link, "
        f"{busiest.name}, {share(busiest.utilisation)}{_bottleneck(figures, worst)}."
    )


def _bottleneck(figures: RunFigures, busiest: TierUse) -> str:
    """Why the tier of the busiest link is the bottleneck; empty where nothing says so."""
    if (busiest.max_utilisation or 0.0) >= _FULL:
        return ", is the bottleneck: it has hardly any room left"
    full, here = (
        sum(port.record.ecn_marks + port.record.drops for port in ports)
        for ports in (figures.ports, busiest.ports)
    )
    if full and here >= _FULL * full:
        return (
            f": these are the bottleneck, as {share(here / full)} of all marks and drops are at "
            f"{busiest.link_class} {busiest.direction}"
        )
    return ""


def _uneven_choices(figures: RunFigures) -> str:
    groups = [g for g in figures.ecmp if g.imbalance is not None]
    if not groups:
        return ""
    worst = max(groups, key=lambda g: g.imbalance or 0)
    imbalance = worst.imbalance or 1.0
    mean = sum(g.imbalance or 0 for g in groups) / len(groups)
    if imbalance < _UNEVEN:
        return (
            f"Equal-cost paths were used evenly (busiest port at most {number(imbalance)} × mean)."
        )
    text = (
        f"Equal-cost paths were used unevenly: at {worst.node} the busiest of {len(worst.ports)} "
        f"ports carried {number(imbalance)} × the mean; {number(mean)} × on average over "
        f"{len(groups)} groups."
    )
    collisions = [g.collisions for g in groups if g.collisions is not None]
    if collisions and not sum(collisions):
        text += " No heavy flow shared a port needlessly: there are fewer of them than ports."
    elif collisions:
        text += f" The hash made {count(sum(collisions))} heavy flows share a port needlessly."
    return text


def _prediction(figures: RunFigures) -> str:
    parts = []
    for name, error in figures.result["summary"]["error"].items():
        if not error["count"]:
            continue
        signed = [
            answer["error"]
            for row in figures.predicted.values()
            if (answer := row.get(name, {})).get("error") is not None
        ]
        below = sum(e < 0 for e in signed)
        lean = "too fast" if below > 0.8 * len(signed) else "too slow"
        leaning = f", {lean}" if below > 0.8 * len(signed) or below < 0.2 * len(signed) else ""
        parts.append(f"{name} is off by {share(error['mean'])}{leaning}")
    return f"Predictions of collectives (mean error): {'; '.join(parts)}." if parts else ""


def _losses(figures: RunFigures) -> str:
    summary = figures.result["summary"]
    if summary["drops"]:
        dropping = sum(p.record.drops > 0 for p in figures.ports)
        return (
            f"{count(summary['drops'])} packets were dropped at {count(dropping)} ports; TCP "
            f"retransmitted {count(summary['retransmits'])}{_went_back(summary)}."
        )
    if summary["retransmits"]:
        return (
            "Nothing was dropped in the fabric's queues, yet TCP retransmitted "
            f"{count(summary['retransmits'])} times."
        )
    return ""


def _trims(figures: RunFigures) -> str:
    trimmed = [port.record for port in figures.ports if port.record.trims]
    if not trimmed:
        return ""
    worst = max(trimmed, key=lambda record: record.trims)
    return (
        f"{count(sum(record.trims for record in trimmed))} packets went on without their payload "
        f"from {count(len(trimmed))} ports, most of them ({count(worst.trims)}) from {worst.port} "
        f"to {worst.peer}."
    )


def _lossy_ports(figures: RunFigures) -> str:
    """The ports whose packets are lost on the wire though their link is up: grey failures."""
    lossy = []
    for record in (port.record for port in figures.ports):
        lost = sum(record.drops_by_reason.get(reason, 0) for reason in _ON_THE_WIRE)
        if lost:
            words = f"{count(lost)}, 1 in {count(max(record.packets // lost, 1))}"
            lossy.append(
                (lost / max(record.packets, 1), f"{record.port} to {record.peer} ({words})")
            )
    if not lossy:
        return ""
    worst = [words for _, words in sorted(lossy, key=lambda each: -each[0])]
    named = ", ".join(worst[:_LOSSY_NAMED])
    more = f" and {count(len(lossy) - _LOSSY_NAMED)} more" if len(lossy) > _LOSSY_NAMED else ""
    others = len(figures.ports) - len(lossy)
    return (
        f"Links that are up lost packets on the wire: {named}{more}; the other {count(others)} "
        "ports lost none."
    )


def _went_back(summary: Mapping[str, Any]) -> str:
    return (
        f", queue pairs went back {count(summary['retries'])} times" if "retries" in summary else ""
    )


def _attributed(figures: RunFigures) -> str:
    if figures.flows is None:
        return ""
    attribution = figures.flows.capture.attribution
    packets = sum(file.packets for file in attribution.files)
    total = sum(file.data_connection_bytes for file in attribution.files)
    if not total:
        return ""
    text = f"The captures hold {count(packets)} packets"
    over_roce = bool(queue_pair_metrics(attribution))
    ranks = "Gloo's connections" + (" and queue pairs" if over_roce else "")
    unknown = attribution.unattributed_bytes
    if unknown:
        held = f"{size(total)} on {ranks}"
        return f"{text}; all but {size(unknown)} of the {held} could be attributed."
    return f"{text}; every byte on {ranks} is attributed to a collective or set-up."
