"""The compiled part of virtual GPUs that a wheel carries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workloads.virtual_gpu import building
from workloads.virtual_gpu.building import LIBRARY, NVML, PROGRAMS, Torch, VirtualGpuError

OURS = Torch("/torch", "2.13.0+cpu", "/include", "cpython-311")


def _carry(directory: Path, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    (directory / "key").write_text(f"{building._key(torch)}\n")
    monkeypatch.setattr(building, "CARRIED", directory)
    monkeypatch.setattr("shutil.which", lambda name: None)  # no compiler


@pytest.mark.parametrize(
    "other",
    [
        Torch("/torch", "2.13.0", "/include", "cpython-311"),
        Torch("/torch", "2.13.0+cpu", "/include", "cpython-312"),
    ],
    ids=["another torch", "another Python"],
)
def test_it_is_taken_for_the_torch_and_the_python_that_it_is_for(
    other: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _carry(tmp_path / "carried", OURS, monkeypatch)
    told: list[str] = []
    assert building.library_for(OURS, told.append) == tmp_path / "carried"
    assert told == []
    with pytest.raises(VirtualGpuError, match="without g"):
        building.library_for(other, told.append)
    assert told == ["compiling virtual GPUs for torch " + other.version + ": a minute or two, once"]


def test_what_a_wheel_carries_is_taken(
    gpu_library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building.carry(tmp_path / "carried")
    monkeypatch.setattr(building, "CARRIED", tmp_path / "carried")
    found = building.library_for(Torch.of(sys.executable))
    assert found == tmp_path / "carried"
    assert {LIBRARY, NVML, PROGRAMS, "operators.txt", "key"} == {x.name for x in found.iterdir()}
    assert (found / LIBRARY).stat().st_size < Path(gpu_library, LIBRARY).stat().st_size


@pytest.mark.parametrize(("version", "known"), [("2.8.0", False), ("2.9.1+cpu", True)])
def test_the_oldest_torch_is_named(
    version: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    of_package = tmp_path / f"torch-{version}.dist-info"
    of_package.mkdir()
    told = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    (of_package / "METADATA").write_text(told)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if known:
        assert Torch.of(sys.executable).version == version
        return
    with pytest.raises(VirtualGpuError, match=r"has torch 2\.8\.0; expected 2\.9 or later"):
        Torch.of(sys.executable)
