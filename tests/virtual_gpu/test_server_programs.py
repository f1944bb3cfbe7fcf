"""nvidia-smi, lspci and NVML of a server with virtual GPUs."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from topologies.spec.compute_section import ComputeSpec
from workloads.virtual_gpu.building import NVML, PROGRAMS
from workloads.virtual_gpu.plan import DEVICES_VARIABLE, write_devices

_SAMPLE_NS = 10**9 // 6
_USED = 3 << 30


@pytest.fixture
def server(tmp_path: Path) -> dict[str, str]:
    """The environment of a server whose second GPU is in use, half of the time."""
    write_devices(tmp_path, ComputeSpec.model_validate({"device": "h100"}), 2)
    now = time.monotonic_ns() // _SAMPLE_NS
    samples = {number % 64: (number, _SAMPLE_NS // 2) for number in range(now - 2, now + 60)}
    page = struct.pack("<qq", _USED, 4711)
    page += b"".join(struct.pack("<qq", *samples.get(i, (-1, 0))) for i in range(64))
    (tmp_path / "use.1.1").write_bytes(page)
    return dict(os.environ) | {DEVICES_VARIABLE: str(tmp_path), "GROUP_RANK": "1"}


def _say(library: str, name: str, env: dict[str, str], *arguments: str, status: int = 0) -> str:
    command = [str(Path(library) / PROGRAMS / name), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_nvidia_smi_tells_of_memory_and_use(gpu_library: str, server: dict[str, str]) -> None:
    fields = "--query-gpu=index,name,memory.used,memory.total,utilization.gpu"
    said = _say(gpu_library, "nvidia-smi", server, fields, "--format=csv,noheader,nounits")
    name = "NVIDIA H100 80GB HBM3"
    assert said == f"0, {name}, 0, 81008, 0\n1, {name}, 3072, 81008, 50\n"
    with_units = _say(gpu_library, "nvidia-smi", server, "--query-gpu=memory.used", "-i", "1")
    assert with_units == "memory.used [MiB]\n3072 MiB\n"
    assert _say(gpu_library, "nvidia-smi", server, "-L").count(f": {name} (UUID: GPU-") == 2
    table = _say(gpu_library, "nvidia-smi", server)
    assert "3072MiB / 81008MiB" in table and "50%" in table and "pid 4711" in table


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--query-gpu=fan.speed",), 2, 'Field "fan.speed" is not a valid field to query.'),
        (("-i", "2"), 6, "No devices were found: 2"),
    ],
)
def test_nvidia_smi_names_what_it_has_not(
    gpu_library: str, server: dict[str, str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    assert said in _say(gpu_library, "nvidia-smi", server, *arguments, status=status)


def test_without_devices_there_is_no_driver(gpu_library: str, server: dict[str, str]) -> None:
    del server[DEVICES_VARIABLE]
    assert "communicate" in _say(gpu_library, "nvidia-smi", server, status=9)


def test_lspci_lists_the_gpus(gpu_library: str, server: dict[str, str]) -> None:
    lines = _say(gpu_library, "lspci", server).splitlines()
    assert len(lines) == 2 and all("NVIDIA" in line and "H100" in line for line in lines)


def test_nvml_answers_as_its_header_says(
    gpu_library: str, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (DEVICES_VARIABLE, "GROUP_RANK"):
        monkeypatch.setenv(name, server[name])
    nvml = ctypes.CDLL(str(Path(gpu_library) / NVML))
    assert nvml.nvmlInit_v2() == 0
    count, handle = ctypes.c_uint(), ctypes.c_void_p()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 2
    assert nvml.nvmlDeviceGetHandleByIndex_v2(5, ctypes.byref(handle)) == 2
    assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(handle)) == 0
    memory = (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    assert memory[0] == 81008 << 20 and memory[2] == _USED and memory[1] == memory[0] - _USED
    use = (ctypes.c_uint * 2)()
    assert nvml.nvmlDeviceGetUtilizationRates(handle, use) == 0 and use[0] == 50
    short = ctypes.create_string_buffer(4)
    assert nvml.nvmlDeviceGetName(handle, short, 4) == 7
    assert not hasattr(nvml, "nvmlDeviceGetFanSpeed")
