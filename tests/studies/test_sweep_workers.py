"""How many runs of a sweep are at once when nobody says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emulator.session import KernelKind
from emulator.virtual.memory.host_memory import AvailableMemory
from groundwire import sweeping
from groundwire.studies import dask_engine

pytest.importorskip("distributed")

_MB = 10**6


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cores, 8 GB, both kernels."""
    memory = AvailableMemory(8000 * _MB, "8,000 MB")
    monkeypatch.setattr(dask_engine, "available_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setattr(sweeping, "choose_kernel", lambda spec, kernel: kernel)


def _workers(directory: Path, memory: list[str], kernel: KernelKind = "virtual") -> int:
    axes = {"virtual.memory": memory}
    return sweeping.workers_here(
        "topologies/two-hosts.yaml", axes, kernel=kernel, out=directory / "sweep"
    )


def test_a_run_is_on_each_core_as_memory_allows(tmp_path: Path) -> None:
    assert _workers(tmp_path, ["300MB", "301MB", "302MB", "303MB"]) == 3
    assert _workers(tmp_path, ["300MB", "301MB", "302MB", "2500MB"]) == 2


def test_few_runs_are_one_after_another(tmp_path: Path) -> None:
    assert _workers(tmp_path, ["300MB", "301MB", "302MB"]) == 1


def test_a_run_that_fits_nowhere_is_left_to_say_so(tmp_path: Path) -> None:
    assert _workers(tmp_path, ["300MB", "301MB", "302MB", "300GB"]) == 1


def test_runs_in_real_time_are_one_after_another(tmp_path: Path) -> None:
    assert _workers(tmp_path, ["300MB", "301MB", "302MB", "303MB"], "native") == 1


def test_runs_are_one_after_another_without_dask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "find_spec", lambda name: None)
    assert _workers(tmp_path, ["300MB", "301MB", "302MB", "303MB"]) == 1
