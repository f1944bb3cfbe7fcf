"""The measurements of `nccl.csv`, and the servers that they were made on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hardware.rows import rows
from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator
from collectives.nccl.environment import Environment
from collectives.nccl.server import GPU_MODELS, Nic, PathType, Server

FILE = Path(__file__).parent / "nccl.csv"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A time that others measured: of a collective on servers with so many GPUs, 8 NICs each.
    `net_latency_us` is what the NICs' plugin tells NCCL: 75 and 35 by aws/aws-ofi-nccl
    src/platform-aws.cpp, 0 by InfiniBand's, not known of GPUDirect-TCPXO, for which 0 stands.
    `variables` are NCCL's; those of GPUDirect-TCPXO are its profile's, without which its plugin
    does not start (nccl-env-profile.sh of A3 Mega, as allenai/OLMo scripts/augusta has it)."""

    id: str
    source: str
    measured_on: str
    kind: Kind
    size_bytes: int
    time_us: float
    gpu: str
    servers: int
    gpus: int
    nic_gbps: int
    net_latency_us: float
    cpu: str
    nvls: bool
    variables: str
    not_stated: str

    @property
    def table(self) -> str:
        """The measurements that were made together have one name."""
        return self.id.split(".")[0]

    @property
    def setting(self) -> tuple[object, ...]:
        """All that NCCL's choice hangs on beside kind and size."""
        servers = self.gpu, self.servers, self.gpus, self.nic_gbps
        return (*servers, self.net_latency_us, self.cpu, self.nvls, self.variables)

    @property
    def given(self) -> Mapping[str, str]:
        """NCCL's variables, by name."""
        return dict(one.split("=") for one in self.variables.split())

    def communicator(self) -> Communicator:
        """NCCL's communicator on these servers."""
        model = GPU_MODELS[self.gpu]
        paired = self.gpu == "a100"
        server = Server(
            model,
            tuple(range(self.gpus)),
            tuple(
                Nic(number, self.nic_gbps / 8, number, self.net_latency_us) for number in range(8)
            ),
            model.nvlinks * model.nvlink_gbytes,
            self.cpu,
            2 if paired else 1,
            PathType.PXB if paired else PathType.PIX,
        )
        ranks = tuple(
            tuple(range(number * self.gpus, (number + 1) * self.gpus))
            for number in range(self.servers)
        )
        servers = (server,) * self.servers
        return Communicator(servers, ranks, Environment(self.given), nvls=self.nvls)


def measurements() -> tuple[Measurement, ...]:
    """All measurements, in the order of the file."""
    return rows(FILE, Measurement)
