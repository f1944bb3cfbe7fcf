"""The process of an aggregation node, in the network namespace of its switch."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from collectives.in_network.of_run import nodes_of
from emulator.linux import namespaces
from emulator.linux.real_time import RANK, use_real_time_priority
from emulator.linux.signals import end_with_parent
from emulator.network.network import Network
from emulator.ranks.gate import Gate
from emulator.ranks.rank_process import end_process, set_name, use_one_heap, write_to
from topologies.spec.collectives_section import CollectivesOfRun
from topologies.spec.workload_types import Payload
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.aggregation.place import TreePlace
from workloads.execution.clock import sleep_until_ns


@dataclass(frozen=True, slots=True)
class AggregationJob:
    """An aggregation node and where it runs, started and watched as ranks are."""

    plan: NodePlan
    netns: Path
    names: Path
    stderr: Path
    real_time_priority: bool = False

    @property
    def rank(self) -> int:
        """Its number, which goes on from the ranks'."""
        return self.plan.node.number

    @property
    def who(self) -> str:
        return f"the aggregation node of switch {self.plan.node.name}"

    def become(self, start_ns: int, reports: socket.socket, gate: Gate | None = None) -> NoReturn:
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
class Tree:
    """The aggregation tree of a run, with a directory that all its participants see."""

    settings: CollectivesOfRun
    hosts: Sequence[str]
    directory: Path

    @classmethod
    def of_run(
        cls, settings: CollectivesOfRun, hosts: Sequence[str], network: Network
    ) -> Tree | None:
        """Makes the pipes of the switches; None for a run whose switches take no part."""
        if not nodes_of(settings):
            return None
        assert network.session is not None
        directory = network.session.directory / "aggregation"
        directory.mkdir()
        tree = cls(settings, hosts, directory)
        for place in range(len(hosts), len(tree.names)):
            os.mkfifo(directory / f"requests.{place}")
        return tree

    @property
    def names(self) -> tuple[str, ...]:
        """The node of each participant."""
        assert self.settings.aggregation is not None
        return (*self.hosts, *self.settings.aggregation.switches)

    def place(self, participant: int, network: Network) -> TreePlace:
        """Where a participant stands."""
        assert self.settings.aggregation is not None
        node = self.names[participant]
        interface = network.fabric.links_of[node][0].port(node).interface
        return TreePlace(participant, self.settings.aggregation.parents, interface, self.directory)

    def jobs(
        self, network: Network, ranks: Path, names: Path, real_time: bool, payload: Payload
    ) -> list[AggregationJob]:
        """The processes of all nodes; what they write goes beside what ranks write."""
        return [
            AggregationJob(
                NodePlan(
                    node,
                    len(self.hosts),
                    self.place(len(self.hosts) + place, network),
                    self.settings,
                    payload,
                ),
                network.netns_path(node.name),
                names,
                ranks / f"{node.name}.log",
                real_time,
            )
            for place, node in enumerate(nodes_of(self.settings))
        ]
