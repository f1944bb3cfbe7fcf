"""Kernels that are not built here: one that a variable names, and one that a wheel carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.virtual.building import build, carried
from emulator.virtual.failure import VirtualKernelError


def _kernel(directory: Path, key: str | None = None) -> Path:
    directory.mkdir()
    for name in ("linux", "System.map"):
        (directory / name).write_text("")
    if key is not None:
        (directory / "key").write_text(f"{key}\n")
    return directory


def test_the_one_that_is_named_goes_before_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "CARRIED", _kernel(tmp_path / "carried", "0123"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    found = build.find_kernel()
    assert found is not None
    assert (found.path, found.key) == (tmp_path / "carried" / "linux", "0123")
    named = _kernel(tmp_path / "named")
    monkeypatch.setenv("GROUNDWIRE_KERNEL_IMAGE", str(named))
    found = build.ensure_kernel(print)
    assert (found.path, found.symbols) == (named / "linux", named / "System.map")
    assert found.key == "named"


def test_a_name_without_a_kernel_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDWIRE_KERNEL_IMAGE", str(tmp_path))
    with pytest.raises(VirtualKernelError, match="no linux and System"):
        build.ensure_kernel(print)
