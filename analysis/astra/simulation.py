"""A simulation: ASTRA-sim's inputs, read from its own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from analysis.astra.errors import AstraInputError
from analysis.astra.files.memory import MemoryConfig, read_memory
from analysis.astra.files.network import NetworkConfig, read_network
from analysis.astra.files.system import SystemConfig, read_system
from analysis.astra.files.task import POINT_TO_POINT, Task, read_tasks
from analysis.chakra.codec import decode, unpacked
from analysis.chakra.errors import ChakraError
from analysis.chakra.group_file import CommunicatorGroup, read_groups


@dataclass(frozen=True)
class Simulation:
    """Everything that a run depends on. `tasks[rank]` is that rank's graph."""

    network: NetworkConfig
    system: SystemConfig
    tasks: Sequence[Sequence[Task]]
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    groups: Mapping[int, CommunicatorGroup] = field(default_factory=dict)
    backend: str = "unaware"
    queues_per_dimension: int = 1
    rendezvous: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """The keys of the system file that do nothing, or less than they seem to."""
        dimensions = len(self.network.dimensions)
        found = [f"{key}: ignored" for key in self.system.ignored]
        distinct = {id(tasks): tasks for tasks in self.tasks}.values()
        kinds = {t.collective for tasks in distinct for t in tasks if t.collective is not None}
        run = {kind.name.lower().replace("_", "-") for kind in kinds}
        for name, algorithms in self.system.implementations.items():
            if name not in run:
                continue
            if len(algorithms) < dimensions and not any(each.one for each in algorithms):
                members = prod(d.npus for d in self.network.dimensions[: len(algorithms)])
                found.append(
                    f"{name}-implementation: {len(algorithms)} algorithms for {dimensions} "
                    f"dimensions: as in ASTRA-sim, {name} runs over the first "
                    f"{len(algorithms)} alone, which {members} of {self.network.npus} ranks share"
                )
        return tuple(found)


def read_simulation(
    workload_prefix: Path | str,
    system_path: Path | str,
    network_path: Path | str,
    memory_path: Path | str | None = None,
    groups_path: Path | str | None = None,
    *,
    backend: str = "unaware",
    queues_per_dimension: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
) -> Simulation:
    """Read ASTRA-sim's own files. Raises AstraInputError."""
    network = read_network(network_path)
    return Simulation(
        network,
        read_system(system_path, injection_scale),
        _read_workload(workload_prefix, network.npus),
        MemoryConfig() if memory_path is None else read_memory(memory_path),
        {} if groups_path is None else _read_groups(groups_path, network.npus),
        backend,
        queues_per_dimension,
        rendezvous,
    )


def _read_groups(path: Path | str, npus: int) -> dict[int, CommunicatorGroup]:
    try:
        return read_groups(path, npus)
    except ChakraError as error:
        raise AstraInputError(path, error.place, error.what) from None


def _read_workload(prefix: Path | str, npus: int) -> list[tuple[Task, ...]]:
    # Ranks of a symmetric workload have byte-identical files; read each content once.
    seen: dict[bytes, tuple[Task, ...]] = {}
    workload = []
    for rank in range(npus):
        path = Path(f"{prefix}.{rank}.et")
        try:
            data = unpacked(path.read_bytes(), path)
            tasks = seen.get(data)
            if tasks is None:
                tasks = read_tasks(decode(data, path), rank, path)
                if not any(task.type in POINT_TO_POINT for task in tasks):
                    # Sends and receives are checked against the rank that has them.
                    seen[data] = tasks
        except OSError as error:
            raise AstraInputError(
                path, None, f"cannot be read: {error.strerror} (the network has {npus} ranks)"
            ) from None
        except ChakraError as error:
            raise AstraInputError(path, error.place, error.what) from None
        workload.append(tasks)
    return workload
