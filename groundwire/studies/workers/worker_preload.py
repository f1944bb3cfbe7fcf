"""Loaded by the workers of a local cluster: signals that a terminal sends to every process of a
command are for the command alone, which ends its workers."""

from __future__ import annotations

from typing import Any

from emulator.linux.signals import ignore_ending_signals


def dask_setup(worker: Any) -> None:
    """Called by Dask once in each worker."""
    ignore_ending_signals()
