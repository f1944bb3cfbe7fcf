"""The process of an aggregation node, in the network namespace of its switch."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from collectives.in_network.node import Aggregator
from collectives.in_network.of_run import nodes_of, trees_of
from emulator.linux import namespaces
from emulator.linux.real_time import RANK, use_real_time_priority
from emulator.linux.signals import end_with_parent
from emulator.network.network import Network
from emulator.ranks.copies.place import copies_place
from emulator.ranks.gate import Gate, Seat
from emulator.ranks.rank_process import end_process, set_name, use_one_heap, write_to
from emulator.ranks.torch_import import renew_thread_pool
from topologies.aggregation_tree import OUTSIDE
from topologies.spec.collectives_section import CollectivesOfRun, TreeOfGroup
from topologies.spec.workload_types import Payload
from workloads.execution.aggregation.given import node_pipe, tell
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.aggregation.place import TreePlace, rescue_pipe
from workloads.execution.clock import sleep_until_ns
from workloads.execution.traffic_class import TrafficOfGroups


@dataclass(frozen=True, slots=True)
class AggregationJob:
    """An aggregation node and where it runs, started and watched as ranks are. Where ranks go on
    without it, `tells` are the pipes by which they are told that it has died."""

    plan: NodePlan
    netns: Path
    names: Path
    stderr: Path
    real_time_priority: bool = False
    tells: tuple[Path, ...] = ()

    @property
    def serves_program(self) -> bool:
        """Whether it is told of its trees as a program makes groups, and ends when that does."""
        return self.plan.directory is not None

    def end(self) -> None:
        """Have such a node end. Raises OSError."""
        assert self.plan.directory is not None
        tell(node_pipe(self.plan.directory, self.plan.node.name), {})

    @property
    def rank(self) -> int:
        """Its number, which goes on from the ranks'."""
        return self.plan.node.number

    @property
    def who(self) -> str:
        return f"the aggregation node of switch {self.plan.node.name}"

    def become(self, start_ns: int, reports: socket.socket, gate: Gate) -> NoReturn:
        """In a process just forked: be this node, from a time of the clock on, to its end."""
        status = 1
        try:
            end_with_parent()
            set_name(f"agg {self.plan.node.name}"[:15])
            write_to(self.stderr)
            namespaces.enter(self.netns)
            namespaces.cover_file(Path("/etc/hosts"), self.names)
            from workloads.execution.aggregation.node import run_node

            use_one_heap()
            renew_thread_pool()
            if self.real_time_priority:
                use_real_time_priority(RANK)
            sleep_until_ns(start_ns)
            run_node(self.plan)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            end_process(status)


@dataclass(frozen=True, slots=True)
class Trees:
    """The aggregation trees of a run, or of one of its jobs, with a directory that all their
    participants see. `shared` is that of all jobs."""

    settings: CollectivesOfRun
    hosts: Sequence[str]
    directory: Path
    traffic: TrafficOfGroups
    shared: Path
    seat: Seat | None = None

    @classmethod
    def of_run(
        cls,
        settings: CollectivesOfRun,
        hosts: Sequence[str],
        network: Network,
        traffic: TrafficOfGroups,
        seat: Seat | None = None,
    ) -> Trees | None:
        """Makes the pipes of the switches; None for a run, or a job, whose switches take no
        part. A job has a `seat`."""
        if not trees_of(settings):
            return None
        assert network.session is not None
        shared = network.session.directory / "aggregation"
        directory = shared if seat is None else shared / seat.job
        directory.mkdir(parents=True)
        found = cls(settings, hosts, directory, traffic, shared, seat)
        for number, tree in enumerate(trees_of(settings)):
            found.directory_of(number).mkdir()
            for participant in range(len(tree.members), len(tree.parents)):
                os.mkfifo(found.directory_of(number) / f"requests.{participant}")
        for pipe in found.rescues:
            os.mkfifo(pipe)
        return found

    @property
    def rescues(self) -> tuple[Path, ...]:
        """The pipe of each rank in each of its groups, through which it is told that a node has
        died, and how far the others have come. Empty where no node may be lost."""
        of_run = self.settings.aggregation
        if of_run is None or of_run.section.when_lost == "fail":
            return ()
        return tuple(
            rescue_pipe(self.directory_of(number), member)
            for number, tree in enumerate(trees_of(self.settings))
            if tree.part == 0
            for member in range(len(tree.members))
        )

    def directory_of(self, number: int) -> Path:
        """The directory through which the participants of a tree agree on what comes."""
        return self.directory / str(number)

    def places_of(
        self, rank: int, network: Network
    ) -> dict[tuple[int, ...], tuple[TreePlace, ...]]:
        """A rank's places in the trees of its groups, by the ranks of these."""
        found: dict[tuple[int, ...], tuple[TreePlace, ...]] = {}
        for number, tree in enumerate(trees_of(self.settings)):
            if rank in tree.members:
                place = self._place(number, tree, tree.members.index(rank), network)
                found[tree.members] = (*found.get(tree.members, ()), place)
        return found

    def _place(
        self, number: int, tree: TreeOfGroup, participant: int, network: Network
    ) -> TreePlace:
        names = (*(self.hosts[rank] for rank in tree.members), *tree.switches)
        node = names[participant]
        interface = network.fabric.links_of[node][0].port(node).interface
        directory, traffic = self.directory_of(number), self.traffic.of(tree.members)
        return TreePlace(
            participant,
            tree.parents,
            interface,
            directory,
            traffic,
            tree.part,
            tree.parts,
            bool(self.rescues),
            tree.beside,
            names,
            copies_place(network, node, self.seat),
        )

    def jobs(
        self, network: Network, ranks: Path, names: Path, real_time: bool, payload: Payload
    ) -> list[AggregationJob]:
        """The processes of all nodes; what they write goes beside what ranks write, and who held
        their slots into `switches`, beside the ranks' directory."""
        switches = ranks.parent / "switches"
        switches.mkdir(exist_ok=True)
        return [
            AggregationJob(
                NodePlan(
                    node,
                    self._places_of(node, network),
                    self.shared,
                    switches / f"{node.name}.jsonl",
                    self.settings,
                    payload,
                    self.shared / f"unit.{node.name}" if self.seat is not None else None,
                ),
                network.netns_path(node.name),
                names,
                ranks / f"{node.name}.log",
                real_time,
                self.rescues,
            )
            for node in nodes_of(self.settings)
        ]

    def _places_of(
        self, node: Aggregator, network: Network
    ) -> tuple[tuple[tuple[int, ...], TreePlace], ...]:
        """The trees that a node is in."""
        found = []
        for number, tree in enumerate(trees_of(self.settings)):
            if node.name not in tree.switches:
                continue
            participant = len(tree.members) + tree.switches.index(node.name)
            if tree.parents[participant] != OUTSIDE:
                found.append((tree.members, self._place(number, tree, participant, network)))
        return tuple(found)
