"""The plan of a run's virtual GPUs: the spec's words, in the form that the compiled part takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from topologies.spec.compute_section import ComputeSpec
from topologies.spec.payload_scaling import LEAST_BYTES

# The properties that torch.cuda.get_device_properties tells of the accelerators that a spec can
# name (NVIDIA's data sheets and CUDA's programming guide). A `custom` device has a H100's.
_H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "max_threads_per_multi_processor": 2048,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 50 << 20,
    "clock_rate": 1980000,
    "memory_clock_rate": 2619000,
    "memory_bus_width": 5120,
}
_PROPERTIES: dict[str, dict[str, Any]] = {
    "h100": _H100,
    "a100": _H100
    | {
        "name": "NVIDIA A100-SXM4-80GB",
        "major": 8,
        "multi_processor_count": 108,
        "shared_memory_per_block_optin": 166912,
        "shared_memory_per_multiprocessor": 167936,
        "L2_cache_size": 40 << 20,
        "clock_rate": 1410000,
        "memory_clock_rate": 1593000,
    },
    "v100": _H100
    | {
        "name": "Tesla V100-SXM2-32GB",
        "major": 7,
        "multi_processor_count": 80,
        "shared_memory_per_block_optin": 98304,
        "shared_memory_per_multiprocessor": 98304,
        "L2_cache_size": 6 << 20,
        "clock_rate": 1530000,
        "memory_clock_rate": 877000,
        "memory_bus_width": 4096,
    },
    "custom": _H100 | {"name": "custom"},
}
PLAN_KEY = "gpu"
"""In the plan that a rank's Python reads."""
DEVICES_VARIABLE = "GROUNDWIRE_GPUS"
"""Names the folder by which a server's programs know its devices (`extension/nvml/nvml.cpp`)."""
GROUP_VARIABLES = {
    "TORCH_DIST_USE_NCCL2": "0",
    "TORCH_DIST_INIT_BARRIER": "1",
    "GLOO_ENABLE_STORE_V2_API": "1",
}
"""Variables of torch: its `nccl` is ProcessGroupNCCL, which in 2.15 has become another; nobody goes
on before all have made a group, whose meeting would share links with what others send; and a rank
asks for the addresses of all others at once (Gloo: common/utils.cc), not one after the other."""
KEPT_KERNELS = 500_000
"""The most kernels of a rank that keep their times; those behind are counted only."""


def gpu_plan(
    compute: ComputeSpec,
    devices: int,
    library: str,
    marks: str,
    times: list[list[Any]],
    steps_clock: bool = False,
    kept_kernels: int = KEPT_KERNELS,
    simulated: str = "",
    payload_share: int = 1,
    programs: str = "",
) -> dict[str, Any]:
    """The plan for `interpreter/loading.py`. `library` is the directory of `building.library_for`,
    `marks` one that all ranks share, `times` has [operator, shapes, types, nanoseconds] of each,
    `simulated` is the directory of the simulated network, where there is one. One byte in
    `payload_share` of a large message is sent. `programs` is where Groundwire's packages lie, where
    ranks run programs of collectives. Without a modelled device kernels take no time."""
    modelled = compute.modelled
    return {
        "library": library,
        "devices": devices,
        "contents": compute.contents,
        "memory_bytes": compute.device_memory_bytes(),
        "float_elements": compute.float_elements,
        "integer_elements": compute.integer_elements,
        "flops_16bit_per_s": compute.peak_flops_per_s(2) if modelled else 0,
        "flops_32bit_per_s": compute.peak_flops_per_s(4) if modelled else 0,
        "memory_bytes_per_s": compute.peak_memory_bytes_per_s() if modelled else 0,
        "link_bytes_per_s": compute.peak_host_link_bytes_per_s() if modelled else 0,
        "overhead_ns": compute.overhead_ns,
        "shares": compute.shares_plan,
        "launch_ns": compute.launch_ns,
        "routing_skew": compute.routing_skew,
        "payload_share": payload_share,
        "payload_least_bytes": LEAST_BYTES if payload_share > 1 else 0,
        "slowdown": compute.slowdown,
        "steps_clock": steps_clock,
        "kept_kernels": kept_kernels,
        "marks": marks,
        "simulated": simulated,
        "programs": programs,
        "times": times,
        "properties": _PROPERTIES.get(compute.device, _H100),
    }


def write_devices(folder: Path, compute: ComputeSpec, devices: int) -> None:
    """Write what NVML's stand-in tells of a server's devices, into the folder of
    `DEVICES_VARIABLE`: how many, memory, compute capability and name, a line each."""
    told = _PROPERTIES.get(compute.device, _H100)
    capability = f"{told['major']} {told['minor']}"
    words = [devices, compute.device_memory_bytes(), capability, told["name"]]
    (folder / "devices").write_text("".join(f"{word}\n" for word in words))
