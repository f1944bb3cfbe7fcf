"""A whole simulation: inputs in, each rank's closing line out."""

from __future__ import annotations

from dataclasses import replace

from analysis.astra.errors import AstraRefused, AstraStalled
from analysis.astra.events import EventQueue
from analysis.astra.files.memory import RemoteMemory
from analysis.astra.lockstep import (
    LOCKSTEP_BACKENDS,
    LockstepEvents,
    OrderMattersError,
    can_run_in_lockstep,
)
from analysis.astra.network.aware import AwareNetwork
from analysis.astra.network.mailbox import MessageTransport
from analysis.astra.network.rendezvous import Rendezvous
from analysis.astra.network.unaware import UnawareNetwork
from analysis.astra.rank_result import RankResult
from analysis.astra.simulation import Simulation
from analysis.astra.system.planner import Planner
from analysis.astra.system.system import System
from analysis.astra.system.workload import Workload

BACKENDS = {"unaware": UnawareNetwork, "aware": AwareNetwork}


def simulate(simulation: Simulation, *, short_cuts: bool = True) -> list[RankResult]:
    """Run it. The results come in the order in which the ranks finish, as ASTRA-sim prints them.

    `short_cuts` simulates one rank for all where that is exact (lockstep.py).
    Raises AstraRefused where ASTRA-sim stops with an error, and AstraStalled, which carries the
    ranks that did finish, where it ends without all ranks finishing.
    """
    if short_cuts and can_run_in_lockstep(simulation):
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
    simulation: Simulation, events: EventQueue, network: MessageTransport, ranks: range
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
