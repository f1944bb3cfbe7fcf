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
        Torch("/torch", "2.13.0+cpu", "/include", "cpython-311", ("-D_GLIBCXX_USE_CXX11_ABI=0",)),
    ],
    ids=["another torch", "another Python", "another compiler"],
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
    assert told == ["compiling virtual GPUs for torch " + other.version + ": some minutes, once"]


def test_what_a_wheel_carries_is_taken(
    gpu_library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building.carry(tmp_path / "carried")
    monkeypatch.setattr(building, "CARRIED", tmp_path / "carried")
    found = building.library_for(Torch.of(sys.executable))
    assert found == tmp_path / "carried"
    assert {LIBRARY, NVML, PROGRAMS, "operators.txt", "key"} == {x.name for x in found.iterdir()}
    assert (found / LIBRARY).stat().st_size < Path(gpu_library, LIBRARY).stat().st_size
