"""Gives trees to the groups that programs make, beside the network, as SHARP's aggregation manager
does, and has a node wait at each switch that may be in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread

from collectives.in_network.on_demand import TreesOnDemand, makes_trees, nodes_on_demand
from collectives.settings import settings_of
from emulator.network.network import Network
from emulator.ranks.aggregation.process import AggregationJob
from topologies.aggregation_tree import OUTSIDE
from topologies.spec.collectives_section import TreeOfGroup
from topologies.spec.spec import Spec
from workloads.execution.aggregation.given import (
    AskedTrees,
    GivenTrees,
    answer,
    ask_pipe,
    node_pipe,
    read_asked,
    tell,
    told,
)
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.traffic_class import TrafficOfGroups


class AggregationManager:
    """The slots of a run's switches, and who asks for them: the programs of its jobs."""

    def __init__(self, spec: Spec, network: Network) -> None:
        """Ranks of ours that aggregate beside the programs have their trees already."""
        self._network = network
        every = {job.name: spec.of_job(job) for job in spec.jobs} or {"": spec}
        self._parts = {name: part for name, part in every.items() if makes_trees(part)}
        fixed: list[tuple[str, TreeOfGroup]] = []
        for name, part in every.items() if self._parts else ():
            found = settings_of(part).aggregation
            if found is not None:
                fixed += [(name, tree) for tree in found.trees if not tree.reason]
        self._trees = TreesOnDemand(self._parts, fixed)
        self._lock = Lock()

    @contextmanager
    def program(self, job: str) -> Iterator[Path | None]:
        """The directory in which the groups of a job's program ask (a run without jobs has the job
        ""); they are answered inside of the block. None where switches take no part. Raises
        OSError."""
        if job not in self._parts:
            yield None
            return
        directory = _shared(self._network) / f"program.{job}"
        directory.mkdir(parents=True)
        nodes = nodes_on_demand(self._parts[job])
        pipes = [ask_pipe(directory), *(node_pipe(directory, node.name) for node in nodes)]
        for pipe in pipes:
            os.mkfifo(pipe)
        # A line stays for a later reader while somebody has the pipe open.
        opened = [os.open(pipe, os.O_RDWR) for pipe in pipes]
        server = Thread(target=self._serve, args=(job, directory), name="manager", daemon=True)
        server.start()
        try:
            yield directory
        finally:
            tell(ask_pipe(directory), {})
            server.join()
            for descriptor in opened:
                os.close(descriptor)

    def nodes(
        self, job: str, directory: Path, ranks: Path, names: Path, real_time: bool
    ) -> list[AggregationJob]:
        """The processes of a job's switches. Their logs go beside those of ranks, and the holders
        of their slots into `switches`, beside the ranks' directory."""
        spec = self._parts[job]
        switches = ranks.parent / "switches"
        switches.mkdir(exist_ok=True)
        shared = _shared(self._network)
        return [
            AggregationJob(
                NodePlan(
                    node,
                    (),
                    shared,
                    switches / f"{node.name}.jsonl",
                    spec.collectives,
                    shared_unit=shared / f"unit.{node.name}" if job else None,
                    directory=directory,
                ),
                self._network.netns_path(node.name),
                names,
                ranks / f"{node.name}.log",
                real_time,
            )
            for node in nodes_on_demand(spec)
        ]

    def _serve(self, job: str, directory: Path) -> None:
        """Answer until there is nobody left who asks."""
        for line in told(ask_pipe(directory)):
            with self._lock:
                if "over" in line:
                    self._trees.take_back(job, line["over"])
                else:
                    self._give(job, directory, read_asked(line))

    def _give(self, job: str, directory: Path, asked: AskedTrees) -> None:
        spec = self._parts[job]
        number, found = self._trees.give(job, asked.members)
        section = asked.section | {"aggregation": found.model_dump(mode="json", by_alias=True)}
        trees = [tree for tree in found.trees if not tree.reason]
        places = [directory / f"{number}.{part}" for part in range(len(trees))]
        traffic = TrafficOfGroups.of_spec(spec).of(asked.members)
        given = GivenTrees(
            section,
            tuple(map(str, places)),
            tuple(self._interfaces(spec, tree) for tree in trees),
            (traffic.sockets, traffic.rdma),
        )
        for place, tree in zip(places, trees, strict=True):
            place.mkdir()
            for participant in range(len(tree.members), len(tree.parents)):
                os.mkfifo(place / f"requests.{participant}")
        answer(asked, given)
        for part, tree in enumerate(trees):
            self._tell_nodes(directory, asked, part, tree, number)

    def _tell_nodes(
        self, directory: Path, asked: AskedTrees, part: int, tree: TreeOfGroup, number: int
    ) -> None:
        for participant, switch in enumerate(tree.switches, start=len(tree.members)):
            if tree.parents[participant] != OUTSIDE:
                line = {"given": str(asked.file), "tree": part, "participant": participant}
                tell(node_pipe(directory, switch), line | {"number": number})

    def _interfaces(self, spec: Spec, tree: TreeOfGroup) -> tuple[str, ...]:
        hosts = (spec.plan.hosts[rank] for rank in tree.members)
        links = self._network.fabric.links_of
        return tuple(links[node][0].port(node).interface for node in (*hosts, *tree.switches))


def _shared(network: Network) -> Path:
    """The directory of all participants of a run's trees."""
    assert network.session is not None
    return network.session.directory / "aggregation"
