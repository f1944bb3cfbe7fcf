#!/usr/bin/env -S python3 -S -E
"""nvidia-smi of a server with virtual GPUs: the table, -L and --query-gpu, by NVML's stand-in."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

PLACE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
LIBRARY = os.path.join(PLACE, "libnvidia-ml.so.1")
MIB = 1 << 20


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Utilization(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Gpu:
    def __init__(self, nvml: ctypes.CDLL, number: int) -> None:
        self._nvml, self.index = nvml, number
        self._handle = ctypes.c_void_p()
        nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(self._handle))
        self.name, self.uuid = self._text("Name"), self._text("UUID")
        self.memory = Memory()
        nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(self.memory))
        self.use = Utilization()
        nvml.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(self.use))
        count, process = ctypes.c_uint(1), Process()
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(
            self._handle, ctypes.byref(count), ctypes.byref(process)
        )
        self.process = process if count.value else None
        capability = ctypes.c_int(), ctypes.c_int()
        nvml.nvmlDeviceGetCudaComputeCapability(self._handle, *map(ctypes.byref, capability))
        self.capability = f"{capability[0].value}.{capability[1].value}"

    def _text(self, what: str) -> str:
        room = ctypes.create_string_buffer(96)
        getattr(self._nvml, f"nvmlDeviceGet{what}")(self._handle, room, len(room))
        return room.value.decode()


Field = Callable[[Gpu], tuple[object, str]]


def fields(driver: str, count: int) -> dict[str, Field]:
    """The fields of --query-gpu: a value and its unit."""
    return {
        "index": lambda gpu: (gpu.index, ""),
        "name": lambda gpu: (gpu.name, ""),
        "gpu_name": lambda gpu: (gpu.name, ""),
        "uuid": lambda gpu: (gpu.uuid, ""),
        "gpu_uuid": lambda gpu: (gpu.uuid, ""),
        "count": lambda gpu: (count, ""),
        "driver_version": lambda gpu: (driver, ""),
        "compute_cap": lambda gpu: (gpu.capability, ""),
        "memory.total": lambda gpu: (gpu.memory.total // MIB, " MiB"),
        "memory.used": lambda gpu: (gpu.memory.used // MIB, " MiB"),
        "memory.free": lambda gpu: (gpu.memory.free // MIB, " MiB"),
        "utilization.gpu": lambda gpu: (gpu.use.gpu, " %"),
        "utilization.memory": lambda gpu: ("[N/A]", ""),
        "temperature.gpu": lambda gpu: ("[N/A]", ""),
        "power.draw": lambda gpu: ("[N/A]", ""),
        "timestamp": lambda gpu: (time.strftime("%Y/%m/%d %H:%M:%S.000"), ""),
    }


def query(
    names: Sequence[str],
    formats: Sequence[str],
    gpus: Sequence[Gpu],
    known: Mapping[str, Field],
) -> int:
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f'Field "{unknown[0]}" is not a valid field to query.')
        return 2
    units = "nounits" not in formats
    if "noheader" not in formats:
        heads = []
        for name in names:
            unit = known[name](gpus[0])[1] if gpus else ""
            heads.append(f"{name} [{unit.strip()}]" if unit and units else name)
        print(", ".join(heads))
    for gpu in gpus:
        told = (known[name](gpu) for name in names)
        print(", ".join(f"{value}{unit if units else ''}" for value, unit in told))
    return 0


def table(gpus: Sequence[Gpu], driver: str) -> None:
    line = f"+{'-' * 77}+"
    print(time.strftime("%a %b %e %H:%M:%S %Y"))
    print(line)
    print(f"| {f'NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: 12.8':<75} |")
    print(f"| {'GPU  Name':<41} {'Memory-Usage':>21} {'GPU-Util':>11} |")
    print(f"|{'=' * 77}|")
    for gpu in gpus:
        memory = f"{gpu.memory.used // MIB}MiB / {gpu.memory.total // MIB}MiB"
        print(f"| {gpu.index:>3}  {gpu.name:<36} {memory:>21} {f'{gpu.use.gpu}%':>11} |")
    print(line)
    for gpu in gpus:
        if gpu.process is not None:
            words = f"{gpu.index:>3}  pid {gpu.process.pid}, {gpu.process.used // MIB}MiB"
            print(f"| {words:<75} |")
    print(line)


def main() -> int:
    nvml = ctypes.CDLL(LIBRARY)
    if nvml.nvmlInit_v2() != 0:
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        return 9
    parser = argparse.ArgumentParser(prog="nvidia-smi", description=__doc__, allow_abbrev=False)
    parser.add_argument("-L", "--list-gpus", action="store_true")
    parser.add_argument("-i", "--id", metavar="N,...", help="Only these GPUs, by index.")
    parser.add_argument("--query-gpu", metavar="FIELD,...")
    parser.add_argument("--format", default="csv", metavar="csv[,noheader][,nounits]")
    given = parser.parse_args()
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    numbers = list(range(count.value))
    if given.id is not None:
        wanted = given.id.split(",")
        bad = [one for one in wanted if not (one.isdigit() and int(one) in numbers)]
        if bad:
            print(f"No devices were found: {bad[0]}; there are {count.value} GPUs, from 0 on")
            return 6
        numbers = [int(one) for one in wanted]
    room = ctypes.create_string_buffer(96)
    nvml.nvmlSystemGetDriverVersion(room, len(room))
    driver = room.value.decode()
    gpus = [Gpu(nvml, number) for number in numbers]
    if given.list_gpus:
        for gpu in gpus:
            print(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})")
        return 0
    if given.query_gpu is not None:
        names = [name.strip() for name in given.query_gpu.split(",")]
        return query(names, given.format.split(","), gpus, fields(driver, count.value))
    table(gpus, driver)
    return 0


sys.exit(main())
