"""All figures of a run that a report shows, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.decode.roce.notifications import Notifications, notifications
from analysis.metrics.collective import CollectiveMetrics, collective_metrics
from analysis.metrics.dimension import DimensionUse, dimension_uses
from analysis.metrics.ecmp import EcmpGroup, ecmp_groups
from analysis.metrics.flow import Flows, NoFlows, read_flows
from analysis.metrics.in_network.slots import SlotUse, slot_uses
from analysis.metrics.iteration import IterationBreakdown, iteration_breakdowns
from analysis.metrics.link import PortMetrics, port_metrics
from analysis.metrics.tier import TierUse, tier_uses
from analysis.metrics.tier_over_time import TierOverTime, tiers_over_time
from analysis.metrics.traffic import TrafficMatrix, captured_traffic, traffic_matrix
from analysis.report.tables.run_tables import tables
from analysis.report.tables.shared_tables import shared_links_table
from analysis.report.tables.table import Table
from analysis.runs.kernels import Stretch, side_stretches
from analysis.runs.run import Run, RunError, load_run
from analysis.runs.samples.ports import PortSeries, port_series
from analysis.runs.samples.rates import RateSeries, rate_series
from analysis.runs.several import labels_of


@dataclass(frozen=True)
class RunFigures:
    """A run and its metrics. `label` tells it from the other runs of the same report. A job that
    shared its fabric has `sharing`, the result of all jobs, and is called there as `label` says."""

    run: Run
    label: str
    sharing: dict[str, Any] | None = None

    @property
    def scale(self) -> int:
        return self.run.environment.scale

    @cached_property
    def result(self) -> dict[str, Any]:
        return self.run.result

    @cached_property
    def collectives(self) -> tuple[CollectiveMetrics, ...]:
        return collective_metrics(self.run)

    @property
    def collective_spans_ns(self) -> list[tuple[int, int]]:
        """(its first rank's post, its end) of each collective."""
        return [
            (min(r.start_ns for r in m.collective.by_rank.values()), m.collective.end_ns)
            for m in self.collectives
        ]

    @property
    def is_program(self) -> bool:
        """Whether its ranks are a program of the user's."""
        return self.run.spec.workload.program is not None

    @property
    def why_no_collectives(self) -> str:
        """The words in place of figures of collectives."""
        program = self.run.spec.workload.program
        if program is None:
            return "This run had no collectives."
        if any(log.observed for log in self.run.ranks):
            return "The program called no collectives. Its bytes are in the tables of links."
        asked = (
            "and its ranks are no observed PyTorch program"
            if program.observe
            else ("and it ran unobserved")
        )
        return (
            f"No collectives were found: the wire shows none that is known, {asked}. "
            "Its bytes are in the tables of links."
        )

    @cached_property
    def iterations(self) -> tuple[IterationBreakdown, ...]:
        return iteration_breakdowns(self.run)

    @cached_property
    def side_streams(self) -> dict[int, tuple[Stretch, ...]]:
        """The kernels of virtual GPUs on streams other than the default one, by rank."""
        found = {log.rank: side_stretches(self.run, log) for log in self.run.ranks if log.gpus}
        return {rank: stretches for rank, stretches in found.items() if stretches}

    @cached_property
    def ports(self) -> tuple[PortMetrics, ...]:
        return port_metrics(self.run)

    @cached_property
    def ecmp(self) -> tuple[EcmpGroup, ...]:
        return ecmp_groups(self.run)

    @cached_property
    def tiers(self) -> tuple[TierUse, ...]:
        return tier_uses(self.run)

    @cached_property
    def tiers_over_time(self) -> tuple[TierOverTime, ...]:
        """The balance of the tiers whose ports all were sampled."""
        return tiers_over_time(self.run, self.queues)

    @cached_property
    def dimensions(self) -> tuple[DimensionUse, ...]:
        return dimension_uses(self.run)

    @cached_property
    def slots(self) -> tuple[SlotUse, ...]:
        return slot_uses(self.run)

    @cached_property
    def traffic(self) -> TrafficMatrix:
        """As captured where every rank's host was, else as scheduled."""
        if self.flows is not None and self.flows.capture.covers_every_rank:
            return captured_traffic(self.flows)
        return traffic_matrix(self.run)

    @cached_property
    def _flows(self) -> Flows | NoFlows:
        return read_flows(self.run)

    def take_flows(self, other: RunFigures) -> None:
        """Take what the captures hold from other figures of the same run, where these have it."""
        if "_flows" in other.__dict__:
            self.__dict__["_flows"] = other._flows

    @property
    def flows(self) -> Flows | None:
        """The contents of the captures; None where `why_no_flows` says why not."""
        return None if isinstance(self._flows, NoFlows) else self._flows

    @property
    def why_no_flows(self) -> str:
        return self._flows.reason if isinstance(self._flows, NoFlows) else ""

    @cached_property
    def tables(self) -> dict[str, Table]:
        found = tables(self.run, self.flows)
        if self.sharing is not None:
            shared = shared_links_table(self.sharing, self.label)
            found |= {shared.name: shared} if shared.rows else {}
        return found

    @property
    def job(self) -> dict[str, Any] | None:
        """This job's part in the result of all jobs."""
        if self.sharing is None:
            return None
        found: dict[str, Any] = next(
            job for job in self.sharing["jobs"] if job["name"] == self.label
        )
        return found

    @cached_property
    def queues(self) -> tuple[PortSeries, ...]:
        return port_series(self.run)

    @cached_property
    def rates(self) -> tuple[RateSeries, ...]:
        """The rates of queue pairs under congestion control, as the kernel kept them."""
        return rate_series(self.run)

    @cached_property
    def notifications(self) -> tuple[Notifications, ...]:
        """The CNPs that the captures hold."""
        return () if self.flows is None else notifications(self.flows.capture)

    @cached_property
    def predicted(self) -> dict[tuple[str, str], dict[str, Any]]:
        """(group, collective id) -> predictor -> duration_ns and error, of result.json."""
        rows = self.result["collectives"]
        return {(row["group"], row["id"]): row["predicted"] for row in rows}

    @property
    def predictors(self) -> tuple[str, ...]:
        return tuple(self.result["summary"]["error"])


def figures_of(run: Run) -> RunFigures:
    """The figures of one run, labelled by its directory's name."""
    (label,) = labels_of([run.directory])
    return RunFigures(run, label)


def figures_of_jobs(run: Run, known: Sequence[RunFigures] = ()) -> tuple[RunFigures, ...]:
    """The figures of the jobs that came to their end, labelled by their names. `known` are the
    figures of the same parts with labels of their own; their captures are not read again."""
    found = tuple(RunFigures(own, name, run.result) for name, own in run.parts)
    for figures, other in zip(found, known, strict=bool(known)):
        figures.take_flows(other)
    return found


def run_figures(directories: Sequence[Path]) -> tuple[RunFigures, ...]:
    """Load runs and label them as `labels_of` does. Each job of a run of several is one.

    Raises SpecError, and RunError, also for runs of which all jobs have failed.
    """
    loaded = [load_run(directory) for directory in directories]
    for run in loaded:
        if not run.parts:
            reasons = "".join(f"\n  - {job.failed.said}" for job in run.jobs if job.failed)
            raise RunError(f"{run.directory}: no job of it came to its end:{reasons}")
    if len(loaded) == 1 and loaded[0].jobs:
        return figures_of_jobs(loaded[0])
    runs = [own for run in loaded for _, own in run.parts]
    labels = labels_of([run.directory for run in runs])
    return tuple(RunFigures(run, label) for run, label in zip(runs, labels, strict=True))
