"""The `compute` section of a spec: how long a rank's arithmetic takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from topologies.spec.fabric_section import Integer
from topologies.spec.published_kernels import PUBLISHED, Shares, Steps, share
from topologies.spec.queue_section import SpecSection
from topologies.units import BytesPerSecond, FlopsPerSecond, SizeBytes, TimeNs


@dataclass(frozen=True, slots=True)
class Device:
    """Peak arithmetic at 16 and 32 bit, and memory bandwidth, of one accelerator; how much memory a
    program can have of it, and the rate of its link to the host."""

    flops_16bit: int
    flops_32bit: int
    memory_bytes_per_s: int
    memory_bytes: int
    host_link_bytes_per_s: int


# PCI Express 3.0, 4.0 and 5.0 at 16 lanes: 8, 16 and 32 GT/s in 128b/130b (PCI-SIG).
_PCIE_3, _PCIE_4, _PCIE_5 = 15_754_000_000, 31_508_000_000, 63_015_000_000
_GIB = 1 << 30


# Memory is that which torch.cuda.mem_get_info tells of: 31.74, 79.15 and 79.11 GiB.
DEVICES: dict[str, Device] = {
    # NVIDIA V100 SXM2 data sheet: 125 TFLOPS tensor, 15.7 TFLOPS single precision, 900 GB/s.
    "v100": Device(125 * 10**12, 157 * 10**11, 900 * 10**9, 32501 * _GIB // 1024, _PCIE_3),
    # NVIDIA A100 80GB SXM data sheet: 312 TFLOPS tensor, 19.5 TFLOPS single precision, 2039 GB/s.
    "a100": Device(312 * 10**12, 195 * 10**11, 2039 * 10**9, 81050 * _GIB // 1024, _PCIE_4),
    # NVIDIA H100 SXM data sheet, dense: 989 TFLOPS tensor, 67 TFLOPS single precision, 3.35 TB/s.
    "h100": Device(989 * 10**12, 67 * 10**12, 3350 * 10**9, 81008 * _GIB // 1024, _PCIE_5),
}


class ComputeSpec(SpecSection):
    """A roofline (Williams et al., CACM 2009): max(flops / peak, bytes / bandwidth) + overhead.

    `device`: a named accelerator, `custom` (then `flops` and `memory_bandwidth` are required),
    `none` (compute takes no time) or `real` (it takes as long as it runs here). `flops` and
    `memory_bandwidth` replace a named device's own peaks; `efficiency` is the share of both that is
    reached. With `kernels: published` kernels reach shares of their own in place of that, by class
    and size (`published_kernels`). `overhead` is added to each kernel. `slowdown` multiplies all of
    it; scaling sets it.

    The rest is of virtual GPUs (docs/virtual-gpu.md). `launch` is the host's time for each kernel
    that it launches. `contents: full` has all tensors computed; `small` those of integers up to
    `integer_elements` and of floating-point numbers up to `float_elements`. `memory` is a GPU's,
    `host_link` the rate between it and its host, `tokens` how many a whole job's iteration trains
    on, for its tokens/s. Where `topk`, `sort` or `argmax` have to choose among values
    without contents, the choice with index i has a weight of (i + 1) ^ -`routing_skew`.
    """

    device: Literal["v100", "a100", "h100", "custom", "none", "real"] = "v100"
    flops_per_s: FlopsPerSecond | None = Field(default=None, alias="flops", gt=0)
    memory_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="memory_bandwidth", gt=0)
    efficiency: Annotated[float, Field(strict=True)] = Field(default=1.0, gt=0, le=1)
    kernels: Literal["published"] | None = None
    overhead_ns: TimeNs = Field(default=0, alias="overhead")
    slowdown: Integer = Field(default=1, ge=1)
    launch_ns: TimeNs = Field(default=0, alias="launch")
    contents: Literal["small", "full"] = "small"
    float_elements: Integer = Field(default=4096, ge=0)
    integer_elements: Integer = Field(default=1 << 22, ge=0)
    memory_bytes: SizeBytes | None = Field(default=None, alias="memory", gt=0)
    host_link_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="host_link", gt=0)
    tokens: Integer | None = Field(default=None, ge=1)
    routing_skew: Annotated[float, Field(strict=True)] = Field(default=0.0, ge=0, le=10)

    @model_validator(mode="after")
    def _complete(self) -> ComputeSpec:
        given = (self.flops_per_s is not None, self.memory_bytes_per_s is not None)
        if self.device == "custom" and not all(given):
            raise ValueError("expected flops and memory_bandwidth with device: custom")
        if self.device in ("none", "real") and any(given):
            raise ValueError(f"expected no flops or memory_bandwidth with device: {self.device}")
        if self.kernels is not None:
            if self.device not in PUBLISHED:
                allowed = ", ".join(sorted(PUBLISHED))
                raise ValueError(
                    f"kernels: published is for device {allowed}; found device: {self.device}"
                )
            if self.efficiency != 1.0:
                raise ValueError("expected efficiency or kernels: published, found both")
        return self

    @property
    def shares(self) -> Shares | None:
        """The shares of the peaks that kernels reach, by class and size; None where all reach
        `efficiency`."""
        return None if self.kernels is None else PUBLISHED[self.device]

    @property
    def shares_plan(self) -> dict[str, Steps]:
        """The same by name; empty where all reach `efficiency`."""
        return {} if self.shares is None else self.shares.plan()

    @property
    def modelled(self) -> bool:
        """Whether compute takes the roofline's time, rather than none or its own."""
        return self.device not in ("none", "real")

    def peak_flops_per_s(self, item_bytes: int) -> float:
        """Arithmetic rate reached at `item_bytes` per number, before `shares`. Raises ValueError if
        not modelled."""
        if not self.modelled:
            raise ValueError(f"device {self.device} has no roofline")
        if self.flops_per_s is not None:
            return self.flops_per_s * self.efficiency
        device = DEVICES[self.device]
        return (device.flops_16bit if item_bytes <= 2 else device.flops_32bit) * self.efficiency

    def peak_memory_bytes_per_s(self) -> float:
        """Memory bandwidth reached, before `shares`. Raises ValueError if not modelled."""
        if not self.modelled:
            raise ValueError(f"device {self.device} has no roofline")
        if self.memory_bytes_per_s is not None:
            return self.memory_bytes_per_s * self.efficiency
        return DEVICES[self.device].memory_bytes_per_s * self.efficiency

    def device_memory_bytes(self) -> int:
        """Memory of a virtual GPU; an H100's where neither it nor an accelerator is named."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return DEVICES.get(self.device, DEVICES["h100"]).memory_bytes

    def peak_host_link_bytes_per_s(self) -> int:
        """The rate between a virtual GPU and its host; an H100's as above."""
        if self.host_link_bytes_per_s is not None:
            return self.host_link_bytes_per_s
        return DEVICES.get(self.device, DEVICES["h100"]).host_link_bytes_per_s

    def time_ns(self, flops: int, memory_bytes: int, item_bytes: int) -> int:
        """Modelled time of one kernel; 0 for device none. Raises ValueError for device real."""
        if self.device == "none":
            return 0
        arithmetic_s = flops / self.peak_flops_per_s(item_bytes)
        memory_s = memory_bytes / self.peak_memory_bytes_per_s()
        if self.shares is not None:
            arithmetic_s /= share(self.shares.matrix, flops)
            memory_s /= share(self.shares.memory, memory_bytes)
        return (round(max(arithmetic_s, memory_s) * 1e9) + self.overhead_ns) * self.slowdown
