"""`groundwire trace kernels`: tables of kernels' times from one form into another."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from groundwire.commands.console.outcome import outcome
from workloads.models.kernel_table import write_kernel_table
from workloads.models.phantora_table import write_phantora
from workloads.models.times_file import read_times_of


class KernelsFormat(StrEnum):
    """Forms that a table of kernels is written in."""

    csv = "csv"
    phantora = "phantora"


@outcome
def kernels(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="TIMES",
            help="A table (.csv), a folder of Phantora's, or a trace of PyTorch's profiler with "
            "recorded shapes: whatever --charge-by takes.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="The file to write; of phantora, the folder.")
    ],
    format_: Annotated[
        KernelsFormat,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="csv: operator, shapes, dtypes and nanoseconds. phantora: Phantora's database "
            "(compute.csv and manifest.md), of operators that it has a call for.",
        ),
    ] = KernelsFormat.csv,
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="phantora: the GPU that the times are of.")
    ] = "unknown",
) -> int:
    """Write the times of kernels in another form. A note tells what that cannot say."""
    times = read_times_of(source)
    left_out: tuple[str, ...] = ()
    if format_ is KernelsFormat.csv:
        write_kernel_table(out, times)
    else:
        left_out = write_phantora(out, times, gpu)
    print(out)
    for note in left_out:
        print(f"note: {note}", file=sys.stderr)
    return 0
