"""A study as one table: a row for each case, and as CSV and Parquet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from analysis.report.tables.table import Column, Table, Unit, Value
from analysis.studies.cases import OF_SOME, RESPONSES, Case, StudyCases
from topologies.extras import install_line


class NoParquet(RuntimeError):
    """The package that writes Parquet is not installed."""


def study_table(study: StudyCases) -> Table:
    """A row for each case, in the order of cases. Nothing in it depends on who ran what when."""
    of_machines = any(case.machine is not None for case in study.cases)
    priced = any(case.cost is not None for case in study.cases)
    columns = [
        Column("case", "case", Unit.COUNT),
        Column("directory", "directory"),
        *(
            Column(f"factor_{f.name}", f.name, f.unit if f.quantity else Unit.TEXT)
            for f in study.factors
        ),
        Column("seed", "seed", Unit.COUNT),
        Column("ranks", "ranks", Unit.COUNT),
        Column("how", "how"),
        *([Column("machine", "machine")] if of_machines else []),
        Column("valid", "valid"),
        *(Column(name, *RESPONSES[name]) for name in _shown(study)),
        Column("predicted_ns", f"{study.predictor} predicts", Unit.DURATION),
        Column("prediction_error", "its error", Unit.ERROR),
        *([Column("cost", "cost", Unit.NUMBER)] if priced else []),
        Column("beyond_limits", "beyond limits"),
        Column("failure", "failure"),
    ]
    rows = tuple(tuple(_row(study, case, of_machines, priced)) for case in study.cases)
    return Table("study", study.name, tuple(columns), rows)


def _shown(study: StudyCases) -> list[str]:
    """The responses that have columns: those of all workloads, and those that a case has."""
    had = {name for case in study.cases for name in case.responses}
    return [name for name in RESPONSES if name not in OF_SOME or name in had]


def _row(study: StudyCases, case: Case, of_machines: bool, priced: bool) -> list[Value]:
    return [
        case.number,
        case.key,
        *(case.levels[factor.name] for factor in study.factors),
        case.seed,
        case.ranks,
        case.how,
        *([case.machine] if of_machines else []),
        None if case.valid is None else "yes" if case.valid else "no",
        *(case.responses.get(name) for name in _shown(study)),
        case.predicted_ns,
        case.error,
        *([case.cost] if priced else []),
        ", ".join(study.beyond_limits(case)) or None,
        case.failure,
    ]


def render_table_csv(table: Table) -> str:
    """Raw values, units in the column names; empty is "not known"."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table.keys)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return target.getvalue()


def write_parquet(table: Table, path: Path) -> None:
    """The table as one Parquet file. Raises NoParquet without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise NoParquet(
            f"Parquet needs pyarrow, which is not installed: {install_line('studies')}"
        ) from error
    types = {
        Unit.TEXT: pyarrow.string(),
        Unit.COUNT: pyarrow.int64(),
        Unit.DURATION: pyarrow.int64(),
    }
    arrays = [
        pyarrow.array(table.column(column.key), types.get(column.unit, pyarrow.float64()))
        for column in table.columns
    ]
    parquet.write_table(pyarrow.table(arrays, names=list(table.keys)), path)
