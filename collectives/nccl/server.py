"""A server as NCCL sees it: GPUs, the NVLink switch between them, and NICs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType


class PathType(IntEnum):
    """The kind of way between two devices (PATH_* of src/graph/topo.h of 2.27); a higher one is
    farther."""

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    DIS = 11


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU as NCCL's search and tuner know it. Bandwidths are GB/s in one direction.

    `nvlinks` links of `nvlink_gbytes` (SM80_NVLINK_BW, SM90_NVLINK_BW, SM100_NVLINK_BW of
    src/graph/topo.h) go to the switch; `pci_gbytes` is 16 lanes as ncclTopoAddPci of
    src/graph/topo.cc counts them (lanes * speed / 80).
    """

    name: str
    compute_capability: int
    nvlinks: int
    nvlink_gbytes: float
    pci_gbytes: float
    multicast: bool = False


GPU_MODELS: Mapping[str, GpuModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            GpuModel("v100", 70, 6, 20.0, 12.0),
            GpuModel("a100", 80, 12, 20.0, 24.0),
            GpuModel("h100", 90, 18, 20.6, 48.0, multicast=True),
            GpuModel("h200", 90, 18, 20.6, 48.0, multicast=True),
            GpuModel("b200", 100, 18, 40.1, 48.0, multicast=True),
        )
    }
)
"""The GPUs that there are constants for, by name."""

_SOCKET_GBYTES: Mapping[str, float] = MappingProxyType({"intel": 22.0, "amd": 16.0})
"""Between two sockets: SRP_QPI_BW and AMD_BW of src/graph/topo.h."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC: GB/s (Mb/s / 8000, as ncclTopoAddNet counts), the GPU on its PCI switch, and the
    latency that its plugin tells NCCL, in us (ncclNetProperties_t), 0 with InfiniBand and sockets.
    """

    number: int
    gbytes: float
    gpu: int
    latency_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Server:
    """The part of a server that a communicator uses.

    `gpus` are local numbers, ascending. `gpus_per_switch` of them share a PCI switch with their
    NICs, `path_type` is the way from a GPU to a NIC of its own switch. Without `gdr` (GPU direct
    RDMA, which sockets do not have) what goes to a NIC goes by way of the processor. `switches` and
    `sockets` have the PCI switch and the socket of each GPU of the server, where these are known
    one by one.
    """

    model: GpuModel
    gpus: tuple[int, ...]
    nics: tuple[Nic, ...]
    nvlink_gbytes: float
    cpu: str = "intel"
    gpus_per_switch: int = 1
    path_type: PathType = PathType.PIX
    gdr: bool = True
    all_gpus: int = 8
    pxn: bool = True
    switches: tuple[int, ...] = ()
    sockets: tuple[int, ...] = ()

    @property
    def net_latency_us(self) -> float:
        """The time that NCCL adds for each step over the network (latencyInter of its
        src/graph/search.cc: that of the last NIC taken; here the longest)."""
        return max((nic.latency_us for nic in self.nics), default=0.0)

    @property
    def socket_gbytes(self) -> float:
        """GB/s between the server's two sockets."""
        return _SOCKET_GBYTES[self.cpu]

    def socket(self, gpu: int) -> int:
        """Which socket a GPU, or the NIC beside it, hangs on."""
        if self.sockets:
            return self.sockets[gpu]
        return 0 if gpu < max(1, self.all_gpus // 2) else 1

    def pci_switch(self, gpu: int) -> int:
        """Which PCI switch a GPU, or the NIC beside it, hangs on."""
        return self.switches[gpu] if self.switches else gpu // self.gpus_per_switch
