"""Virtual GPUs for a torch that is not Groundwire's own: which versions, and that they train."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testing.foreign_programs import ENVIRONMENTS, programs_folder
from testing.torch_interfaces import LACKED, lacking, listed
from testing.training_programs import PROGRAMS
from tests.exec.programs import execute
from tests.session.command import ROOT, result_of
from workloads.virtual_gpu import building
from workloads.virtual_gpu.building import (
    NEWEST_TORCH,
    OLDEST_TORCH,
    TRIED,
    TRIED_TORCH,
    Torch,
    VirtualGpuError,
    library_for,
)

OLDEST = ".".join(map(str, OLDEST_TORCH))
OTHERS = ("oldest-torch", "torch-2.7", "torch-2.8", "newest-torch")
COMPILED = {
    "libc10.so": b"\0_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcE\0",
    "libtorch_python.so": b"\0__pybind11_internals_v5_gcc_libstdcpp_cxxabi1014__\0",
}
"""The words that are looked for in the libraries of a torch."""


def _put_torch(place: Path, version: str) -> None:
    (place / "torch" / "lib").mkdir(parents=True)
    (place / "torch" / "__init__.py").write_text("")
    for name, content in COMPILED.items():
        (place / "torch" / "lib" / name).write_bytes(content)
    about = place / f"torch-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def test_one_place_says_which_versions_are_tried() -> None:
    page = (ROOT / "docs" / "virtual-gpu.md").read_text()
    assert f"{OLDEST} or later" in page
    assert f"{TRIED} are tried" in page
    assert f"| torch before {OLDEST}" in page
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (ours,) = (each for each in pinned if each.startswith("torch=="))
    released = [_release(name) for name in OTHERS]
    assert (released[0], released[-1]) == (OLDEST_TORCH, NEWEST_TORCH)
    assert {*released, Torch("", ours.partition("==")[2], "", "").release} <= set(TRIED_TORCH)


def test_an_older_torch_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_torch(tmp_path, "2.5.1+cu124")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    expected = (
        f"virtual GPUs: {tmp_path}/torch: found torch 2.5.1+cu124; expected {OLDEST} or later "
        f"({TRIED} are tried)"
    )
    with pytest.raises(VirtualGpuError) as error:
        Torch.of(sys.executable)
    assert str(error.value) == expected


def test_how_torch_was_compiled_is_found_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_torch(tmp_path, f"{OLDEST}.0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = Torch.of(sys.executable)
    assert found.version == f"{OLDEST}.0"
    assert found.flags == ("-D_GLIBCXX_USE_CXX11_ABI=1", '-DPYBIND11_BUILD_ABI="_cxxabi1014"')
    core = tmp_path / "torch" / "lib" / "libc10.so"
    core.write_bytes(b"\0_ZN3c105ErrorC1ESs\0")
    assert Torch.of(sys.executable).flags[0] == "-D_GLIBCXX_USE_CXX11_ABI=0"


@pytest.mark.parametrize("newer", [False, True], ids=["tried", "newer"])
def test_one_that_cannot_be_compiled_for_is_named(
    newer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    major, minor = NEWEST_TORCH
    version = f"{major}.{minor + newer}.0"

    def fails(*given: object) -> None:
        raise VirtualGpuError("`g++` failed")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(building, "_build", fails)
    (tmp_path / "Python.h").write_text("")
    with pytest.raises(VirtualGpuError) as error:
        library_for(Torch("/there/torch", version, str(tmp_path), "cpython-311"))
    named = f"/there/torch: found torch {version}, newer than those that are tried ({TRIED})"
    assert (named in str(error.value)) == newer
    assert "`g++` failed" in str(error.value)


def _release(environment: str) -> tuple[int, ...]:
    (named,) = ENVIRONMENTS[environment].pip
    return Torch("", named.partition("==")[2], "", "").release


def _program(environment: str, name: str) -> Path:
    found = programs_folder() / environment / "bin" / name
    if not found.exists():
        pytest.skip(f"{found} is missing: make programs")
    return found


@pytest.mark.long
@pytest.mark.parametrize("environment", OTHERS)
def test_it_has_what_is_used_of_it(environment: str) -> None:
    asked = [str(_program(environment, "python")), "-c", LACKED, *listed()]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    version = ".".join(map(str, _release(environment)))
    assert set(done.stdout.split()) == lacking(version)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["torch-ddp", "torch-fsdp2", "torch-tp"])
@pytest.mark.parametrize("environment", OTHERS)
def test_a_script_trains_with_it(environment: str, name: str, tmp_path: Path) -> None:
    torchrun, program = _program(environment, "torchrun"), PROGRAMS[name]
    (tmp_path / "servers.yaml").write_text(program.fabric())
    options = ("--gpus-per-host", str(program.gpus), "--device", "h100", "--out", "run", "--")
    argv = (str(torchrun), *program.argv()[1:])
    done = execute(tmp_path, "servers.yaml", *options, *argv, timeout_s=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    result = result_of(tmp_path / "run")
    assert result["valid"] and len(result["iterations"]) >= 3
    used = result["gpus"]["ranks"]
    assert len(used) == program.servers * program.gpus
    assert all(0 < gpu["mfu"] < 1 and gpu["peak_reserved_bytes"] > 1 << 20 for gpu in used)
    assert len(result["collectives"]) > 10
