"""A table of measured kernels: a CSV file with what each operator took at which shapes.

    operator,shapes,dtypes,time_ns
    aten::mm,4096x4096;4096x1024,BFloat16;BFloat16,61200
    aten::add,4096x1024;4096x1024,,9100

`shapes` are those of the operator's tensors, in order of its arguments, without those of no
dimension. `dtypes` are torch's names of scalar types, of the same tensors; where they are empty,
the time is that of all types.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from workloads.models.operation_times import OperationTimes, OperationTimesError, Shapes

_COLUMNS = ["operator", "shapes", "dtypes", "time_ns"]


def read_kernel_table(path: Path) -> OperationTimes:
    """The times of a table. Raises OperationTimesError, which names the line."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise OperationTimesError(f"{path}: {said}, expected a table of kernels (CSV)") from error
    if not rows or rows[0] != _COLUMNS:
        found = ",".join(rows[0]) if rows else "nothing"
        raise OperationTimesError(f"{path}: line 1: found {found}; expected {','.join(_COLUMNS)}")
    times: dict[tuple[str, Shapes], int] = {}
    typed: dict[tuple[str, Shapes, str], int] = {}
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(_COLUMNS):
            raise OperationTimesError(
                f"{path}: line {number}: found {len(row)} cells; expected {len(_COLUMNS)}"
            )
        operator, text, types, time = (cell.strip() for cell in row)
        if re.fullmatch(r"\w+::\w+", operator) is None:
            raise _bad(path, number, "operator", operator, "a name such as aten::mm")
        if re.fullmatch(r"\d{1,15}", time) is None:
            raise _bad(path, number, "time_ns", time, "nanoseconds, a whole number")
        shapes = tuple(_shape(path, number, each) for each in text.split(";") if each)
        names = ";".join(each.strip() for each in types.split(";")) if types else ""
        if names and len(names.split(";")) != len(shapes):
            raise _bad(path, number, "dtypes", types, f"as many as shapes, {len(shapes)}, or none")
        if names:
            typed[operator, shapes, names] = int(time)
        else:
            times[operator, shapes] = int(time)
    return OperationTimes(times, of_device=True, typed=typed)


def write_kernel_table(path: Path, times: OperationTimes) -> None:
    """Write times as such a table. Raises OSError."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for operator, shapes, types, ns in times.typed_json():
            written = ";".join("x".join(map(str, shape)) for shape in shapes)
            writer.writerow((operator, written, types, ns))


def _shape(path: Path, number: int, text: str) -> tuple[int, ...]:
    if re.fullmatch(r"\d{1,15}(x\d{1,15})*", text.strip()) is None:
        raise _bad(path, number, "shapes", text, "shapes such as 64x128;128x32")
    return tuple(int(size) for size in text.strip().split("x"))


def _bad(path: Path, number: int, column: str, found: str, expected: str) -> OperationTimesError:
    return OperationTimesError(
        f"{path}: line {number}: {column}: found {found or 'nothing'}; expected {expected}"
    )
