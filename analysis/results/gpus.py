"""The use of virtual GPUs: memory, time of kernels, and the share of the peak that is reached."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from analysis.runs.run import RankLog, Run
from topologies.spec.compute_section import DEVICES, ComputeSpec


@dataclass(frozen=True)
class KernelTotal:
    """The kernels of one operator on all GPUs; nanoseconds of the target fabric."""

    operator: str
    kernels: int
    ns: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class GpuUse:
    """A GPU of a rank. `mfu` is the model FLOP utilization: FLOP of its kernels in an iteration
    over the iteration's time and the device's 16-bit peak, the mean without the first iteration
    (Chowdhery et al., PaLM, 2022, appendix B; here also of what is computed again). None where no
    iteration or no peak is known."""

    rank: int
    device: int
    memory_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    mfu: float | None


def gpus_of(run: Run) -> tuple[GpuUse, ...]:
    """The GPUs that ranks used, by rank."""
    return tuple(
        GpuUse(
            log.rank,
            gpu.device,
            gpu.memory_bytes,
            gpu.peak_allocated_bytes,
            gpu.peak_reserved_bytes,
            _utilization(log, run.spec.compute),
        )
        for log in run.ranks
        for gpu in log.gpus
    )


def kernels_of(run: Run) -> tuple[KernelTotal, ...]:
    """The kernels of all GPUs by operator, longest first."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for log in run.ranks:
        for gpu in log.gpus:
            for operator, own in gpu.kernels.items():
                totals[operator] = [a + b for a, b in zip(totals[operator], own, strict=True)]
    found = [
        KernelTotal(operator, count, ns // run.environment.scale, flops, moved)
        for operator, (count, ns, flops, moved) in totals.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.ns, each.operator)))


def gpu_section(run: Run) -> dict[str, Any] | None:
    """`gpus` of result.json; None where there are none."""
    gpus = gpus_of(run)
    if not gpus:
        return None
    return {
        "ranks": [vars(gpu) for gpu in gpus],
        "kernels": [vars(kernel) for kernel in kernels_of(run)],
    }


def _utilization(log: RankLog, compute: ComputeSpec) -> float | None:
    peak = compute.flops_per_s
    if peak is None and compute.device in DEVICES:
        peak = DEVICES[compute.device].flops_16bit
    iterations = log.iterations[1:] or log.iterations
    time_ns = sum(each.end_ns - each.start_ns for each in iterations)
    if peak is None or time_ns == 0:
        return None
    counted = {each.index for each in iterations}
    flops = sum(each.flops for each in log.computes if each.iteration in counted)
    return flops * compute.slowdown / (time_ns / 1e9 * peak)
