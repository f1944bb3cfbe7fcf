"""A file of times of operations, in whichever of its forms it is."""

from __future__ import annotations

from pathlib import Path

from workloads.models.kernel_table import read_kernel_table
from workloads.models.operation_times import OperationTimes, read_operation_times
from workloads.models.phantora_table import is_phantora, read_phantora


def read_times_of(path: Path) -> OperationTimes:
    """A folder of Phantora's, a table (CSV), or a trace of PyTorch's profiler. Raises
    OperationTimesError."""
    if is_phantora(path):
        return read_phantora(path)
    return read_kernel_table(path) if path.suffix == ".csv" else read_operation_times(path)
