"""The folder of built kernels."""

from pathlib import Path

import pytest

from emulator.virtual.building.cache import kernel_cache


def test_a_relative_cache_folder_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert kernel_cache() == tmp_path / ".cache" / "groundwire" / "kernel"
