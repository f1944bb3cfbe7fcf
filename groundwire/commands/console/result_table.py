"""A result as tables: collectives with their predictions, iterations, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.results.rows import rows_in_words
from analysis.results.unanswered import unanswered_in_words
from groundwire.commands.console.figures import (
    Figures,
    OutputConsole,
    Scale,
    percent,
    share,
    size_scale,
    time_scale,
)
from groundwire.commands.console.gpu_table import print_gpus
from groundwire.commands.console.jobs_table import print_jobs
from groundwire.commands.console.plain_text import unstyled

_SIMULATED = " (simulated network)"


def is_simulated(result: Mapping[str, Any]) -> bool:
    """Whether what ranks exchanged went through the simulator."""
    return result.get("network") == "simulated"


def _network_in_words(result: Mapping[str, Any]) -> str:
    """The ways in which the network was not the target's own, behind a title."""
    said = _SIMULATED if is_simulated(result) else ""
    share = result.get("scale_payload")
    return said if share is None else f"{said} ({share} of the payload)"


def print_result(result: dict[str, Any], directory: Path, console: OutputConsole) -> None:
    """Print the tables of a result and where its run directory is."""
    predictors = best_first(result["summary"]["error"])
    rows = result["collectives"]
    if rows:
        console.print_fitting(_titled(result, _variants(_collectives, rows, predictors)))
    if any(row.get("exact_ns") is not None for row in rows):
        console.print()
        console.print(_twin(rows))
    if result["iterations"]:
        console.print()
        tables = _variants(_iterations, result["iterations"], predictors)
        console.print_fitting(_titled(result, tables))
    if "gpus" in result:
        console.print()
        print_gpus(result["gpus"], console, _network_in_words(result))
    for line in recovery_lines(result.get("recovery")):
        console.print(line, highlight=False)
    if "jobs" in result:
        console.print()
        print_jobs(result, predictors, console)
        for job in result["jobs"]:
            for line in recovery_lines(job.get("recovery")):
                console.print(line and f"job {job['name']}: {line}", highlight=False)
    if predictors and (rows or result["iterations"]):
        errors = {name: result["summary"]["error"][name] for name in predictors}
        console.print()
        table = errors_table("Prediction error of collectives", errors)
        console.print_fitting(_titled(result, [table]))
        console.print(_KNOWN, highlight=False)
    for line in unanswered_in_words(result):
        console.print(unstyled(line), highlight=False)
    console.print()
    summary = result["summary"]
    counted = (
        *("retries", "sequence_naks", "not_ready_naks", "cnps_received", "resent_alone"),
        *(name for name in ("trims", "paths_skipped", "paths_bad", "probes") if summary.get(name)),
    )
    naks = "".join(
        f", {name.replace('_', ' ')} {summary[name]}" for name in counted if name in summary
    )
    console.print(
        f"drops {summary['drops']:,}, ECN marks {summary['ecn_marks']:,}, "
        f"pauses {summary['pauses']:,}, retransmits {summary['retransmits']:,}{naks}",
        highlight=False,
    )
    for key, words in rows_in_words(result):
        console.print(f"{key}: {words}", highlight=False)
    console.print(_verdict(result), highlight=False)
    for note in result.get("notes", ()):
        console.print(f"note: {unstyled(note)}", highlight=False)
    places = {"run directory": directory, "report": directory / "report.html"}
    for name, place in places.items():
        if place.exists():
            text = f"{name + ':':15}{unstyled(str(place))}"
            console.print(text, highlight=False, soft_wrap=True)


_KNOWN = (
    "An error is predicted / measured - 1: below zero the prediction is too short. A\n"
    "collective is predicted from when this run's ranks posted it, an iteration from\n"
    "the spec, so one collective can have two errors. Both know the ports that the\n"
    "switches choose by."
)


def _named(row: Mapping[str, Any], name: str) -> str:
    """With the job before it, where there are several."""
    return unstyled(f"{row['job']}/{name}" if "job" in row else name)


def best_first(summary: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Predictors by their mean error, the smallest first; those without an answer last."""

    def rank(name: str) -> tuple[bool, float]:
        mean = summary[name].get("mean")
        return mean is None, mean or 0.0

    return sorted(summary, key=rank)


_Rows = Sequence[dict[str, Any]]


def _variants(
    make: Callable[[_Rows, Sequence[str], int], Figures], rows: _Rows, predictors: Sequence[str]
) -> list[Figures]:
    """A table with what all predictors say in figures, then with fewer of them, at last with their
    errors alone."""
    return [make(rows, predictors, shown) for shown in range(len(predictors), -1, -1)]


def _titled(result: Mapping[str, Any], tables: list[Figures]) -> list[Figures]:
    """Tables that say so where the network was simulated, or the payload scaled."""
    for table in tables:
        table.title = f"{table.title}{_network_in_words(result)}"
    return tables


def _add_predictors(table: Figures, predictors: Sequence[str], shown: int, unit: str) -> None:
    for number, name in enumerate(predictors):
        if number < shown:
            table.figure(name, unit)
            table.figure("", "error")
        else:
            table.figure(name, "error")


def _predicted(
    row: Mapping[str, Any], predictors: Sequence[str], shown: int, time: Scale
) -> list[str]:
    cells = []
    for number, name in enumerate(predictors):
        predicted = row["predicted"][name]
        if number < shown:
            cells.append(time.cell(predicted["duration_ns"]))
        cells.append(percent(predicted["error"]))
    return cells


def _collectives(rows: _Rows, predictors: Sequence[str], shown: int) -> Figures:
    time = time_scale(row["duration_ns"] for row in rows)
    size = size_scale(row["size_bytes"] for row in rows)
    table = Figures("collective", title="Collectives")
    table.figure("size", size.unit)
    table.figure("measured", time.unit)
    _add_predictors(table, predictors, shown, time.unit)
    table.figure("busbw", "Gb/s")
    for row in rows:
        table.add_row(
            _named(row, row["id"]),
            size.cell(row["size_bytes"]),
            time.cell(row["duration_ns"]),
            *_predicted(row, predictors, shown, time),
            "-" if row["busbw_gbps"] is None else f"{row['busbw_gbps']:.2f}",
        )
    return table


def _twin(rows: _Rows) -> Figures:
    time = time_scale(row["duration_ns"] for row in rows)
    table = Figures("collective", title="Beside the exact twin")
    for heading in ("native", "exact"):
        table.figure(heading, time.unit)
    table.figure("difference")
    for row in rows:
        native_ns, exact_ns = row["duration_ns"], row["exact_ns"]
        difference = native_ns / exact_ns - 1 if exact_ns else None
        cells = (time.cell(native_ns), time.cell(exact_ns), percent(difference))
        table.add_row(_named(row, row["id"]), *cells)
    return table


def _iterations(rows: _Rows, predictors: Sequence[str], shown: int) -> Figures:
    time = time_scale(row["duration_ns"] for row in rows)
    table = Figures("iteration", title="Iterations")
    table.figure("measured", time.unit)
    _add_predictors(table, predictors, shown, time.unit)
    table.figure("compute", time.unit)
    table.figure("exposed", "communication", time.unit)
    table.figure("", "share")
    for row in rows:
        exposed_ns, duration_ns = row["exposed_comm_ns"], row["duration_ns"]
        known = exposed_ns is not None and duration_ns
        table.add_row(
            _named(row, str(row["index"])),
            time.cell(row["duration_ns"]),
            *_predicted(row, predictors, shown, time),
            time.cell(row["compute_ns"]),
            time.cell(exposed_ns),
            share(exposed_ns / duration_ns if known else None),
        )
    return table


def errors_table(title: str, summary: Mapping[str, Mapping[str, float | int | None]]) -> Figures:
    """`summary` as in result.json: by predictor."""
    table = Figures("predictor", title=title)
    for heading in (("mean", "|error|"), ("largest", "error"), ("collectives",)):
        table.figure(*heading)
    for name, errors in summary.items():
        largest = percent(errors["largest"])
        table.add_row(name, share(errors["mean"]), largest, str(errors["count"]))
    return table


def _verdict(result: dict[str, Any]) -> str:
    if result["valid"]:
        kernel = result["kernel"]
        time = "exact virtual time" if kernel == "virtual" else _why_valid(result.get("judged"))
        wall = f"; {result['wall_s']:.1f} s of wall time" if "wall_s" in result else ""
        network = ", SIMULATED network" if is_simulated(result) else ""
        if "scale_payload" in result:
            network += f", {result['scale_payload']} of the PAYLOAD"
        if network:
            return f"[bold green]VALID[/]{network} ({kernel} kernel: {time}{wall})"
        return f"[bold green]VALID[/] ({kernel} kernel: {time}{wall})"
    reasons = "".join(f"\n  - {unstyled(reason)}" for reason in result["invalid_reasons"])
    return f"[bold red]INVALID[/]: do not use these figures{reasons}"


def _why_valid(judged: dict[str, Any] | None) -> str:
    if judged is None or judged["by"] != "twin":
        return "the machine kept up"
    worst = max(judged["slower"], judged["faster"])
    doubts = len(judged["outweighed"])
    despite = f", whatever {doubts} figures of the machine say" if doubts else ""
    return f"within {worst:.1%} of its exact twin{despite}"


def recovery_lines(section: dict[str, Any] | None) -> Iterable[str]:
    """The cost of each failure in a line, and the goodput; none where nothing was killed."""
    if section is None:
        return
    yield ""
    for row in section["failures"]:
        detected, recovered = (
            "never" if row[key] is None else f"after {row[key] / 1e9:,.3f} s"
            for key in ("detected_ns", "recovered_ns")
        )
        yield (
            f"{row['what']} at {row['at_ns'] / 1e9:,.3f} s: started again {detected}, a step over "
            f"{recovered}; {row['lost_ns'] / 1e9:,.3f} s of work lost at least"
        )
    yield f"goodput {section['goodput']:.1%}: the time in which steps were made that were kept"
