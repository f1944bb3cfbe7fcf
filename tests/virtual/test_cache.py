"""Where kernels are kept."""

from emulator.virtual.cache import kernel_cache


def test_a_relative_cache_folder_counts_as_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert kernel_cache() == tmp_path / ".cache" / "groundwire" / "kernel"
