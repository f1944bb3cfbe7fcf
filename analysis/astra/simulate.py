"""A whole simulation: inputs in, each rank's closing line out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.astra.aware import AwareNetwork
from analysis.astra.errors import AstraInputError, AstraRefused, AstraStalled
from analysis.astra.events import EventQueue
from analysis.astra.groups_file import Group, read_groups
from analysis.astra.lockstep import (
    LOCKSTEP_BACKENDS,
    LockstepEvents,
    OrderMattersError,
    moves_in_lockstep,
)
from analysis.astra.mailbox import Transport
from analysis.astra.memory_file import MemoryConfig, RemoteMemory, read_memory
from analysis.astra.network_file import NetworkConfig, read_network
from analysis.astra.planner import Planner
from analysis.astra.rendezvous import Rendezvous
from analysis.astra.system import System
from analysis.astra.system_file import SystemConfig, read_system
from analysis.astra.task import POINT_TO_POINT, Task, read_tasks
from analysis.astra.unaware import UnawareNetwork
from analysis.astra.workload import RankResult, Workload
from analysis.chakra.codec import decode
from analysis.chakra.errors import ChakraError

BACKENDS = {"unaware": UnawareNetwork, "aware": AwareNetwork}


@dataclass(frozen=True)
class Simulation:
    """Everything that a run depends on. `tasks[rank]` is that rank's graph."""

    network: NetworkConfig
    system: SystemConfig
    tasks: Sequence[Sequence[Task]]
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    groups: Mapping[int, Group] = field(default_factory=dict)
    backend: str = "unaware"
    queues_per_dimension: int = 1
    rendezvous: bool = False


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
        {} if groups_path is None else read_groups(groups_path, network.npus),
        backend,
        queues_per_dimension,
        rendezvous,
    )


def simulate(simulation: Simulation, *, short_cuts: bool = True) -> list[RankResult]:
    """Run it. The results come in the order in which the ranks finish, as ASTRA-sim prints them.

    `short_cuts` simulates one rank for all where that is exact (lockstep.py).
    Raises AstraRefused where ASTRA-sim stops with an error, and AstraStalled, which carries the
    ranks that did finish, where it ends without all ranks finishing.
    """
    if short_cuts and moves_in_lockstep(simulation):
        try:
            return _simulate_lockstep(simulation)
        except (OrderMattersError, AstraStalled):
            pass  # the full simulation knows, or tells which ranks stall
    events = EventQueue()
    network = BACKENDS[simulation.backend](events, simulation.network)
    return _run(simulation, events, network, range(simulation.network.npus))


def _simulate_lockstep(simulation: Simulation) -> list[RankResult]:
    events = LockstepEvents()
    network = LOCKSTEP_BACKENDS[simulation.backend](events, simulation.network)
    (result,) = _run(simulation, events, network, range(1))
    npus = simulation.network.npus
    order = (*range(events.first, npus), *range(events.first))
    return [replace(result, rank=rank) for rank in order]


def _run(
    simulation: Simulation, events: EventQueue, network: Transport, ranks: range
) -> list[RankResult]:
    planner = Planner(simulation.system, [d.npus for d in simulation.network.dimensions])
    memory = RemoteMemory(simulation.memory)
    if simulation.rendezvous:
        network = Rendezvous(network)
    results: list[RankResult] = []
    workloads = [
        Workload(
            System(
                rank, simulation.system, planner, events, network, simulation.queues_per_dimension
            ),
            simulation.tasks[rank],
            simulation.groups,
            memory,
            results.append,
        )
        for rank in ranks
    ]
    for workload in workloads:
        workload.start()
    if events.first_time() == 0:
        raise AstraRefused(
            "an event is due at time 0 (endpoint-delay 0, or a first computation of less than "
            "1 ns): ASTRA-sim aborts, its clock must advance"
        )
    events.run()
    waiting = [rank for rank, workload in enumerate(workloads) if not workload.finished]
    if waiting:
        raise AstraStalled(
            results,
            f"{len(waiting)} of {len(workloads)} ranks never finish; first is rank {waiting[0]}: "
            f"{workloads[waiting[0]].unfinished()}",
        )
    return results


def _read_workload(prefix: Path | str, npus: int) -> list[tuple[Task, ...]]:
    # Ranks of a symmetric workload have byte-identical files; read each content once.
    seen: dict[bytes, tuple[Task, ...]] = {}
    workload = []
    for rank in range(npus):
        path = Path(f"{prefix}.{rank}.et")
        try:
            data = path.read_bytes()
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
            raise AstraInputError(path, None, str(error)) from None
        workload.append(tasks)
    return workload
