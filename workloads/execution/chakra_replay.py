"""Replay of a trace with real Gloo: compute nodes sleep, communication nodes communicate.

A rank is one device and its host: each runs its compute nodes one at a time, a device whose streams
are known those of each stream, the ready one of the lowest id first, while any number of messages
and collectives are under way. A node starts the moment that the last one it waits for is done.
Collectives of one group are posted in one order on every rank (`place`): that is how Gloo, like
NCCL, matches them.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from collectives.kinds import Kind
from topologies.spec.workload_section import (
    Barrier,
    CollectiveOperation,
    Operation,
    RootedCollective,
)
from topologies.spec.workload_types import Dtype
from workloads.execution.clock import now_ns
from workloads.execution.communicator import Communicator, subgroups
from workloads.execution.compute_model import ComputeModel
from workloads.execution.events import Pending
from workloads.execution.operations import RankOperation, post_message
from workloads.execution.rank_work import RankWork, Seat
from workloads.models.replay import (
    DIRECTORY,
    ReplayCollective,
    ReplayCompute,
    ReplayMessage,
    read_groups,
    read_program,
    replayed_element_bytes,
)

_DTYPE_OF: dict[int, Dtype] = {2: "float16", 4: "float32"}
_ROOTED = (Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER)

AnyNode = ReplayCompute | ReplayCollective | ReplayMessage


class _Replayed(RankWork):
    """Replays the rank's program of the run directory in every iteration. Raises ValueError for a
    program whose nodes wait for each other, too."""

    def run(self, seat: Seat) -> None:
        world = seat.world
        directory = seat.run_directory / DIRECTORY
        program = read_program(directory, world.rank)
        groups = {world.ranks: world}
        for number, ranks in enumerate(read_groups(directory)):
            # Every rank takes part in making every group (torch.distributed.new_group).
            mine = subgroups(
                seat.process_groups,
                seat.log,
                f"group{number}",
                [ranks],
                world.rank,
                world.size,
                tensors=world.tensors,
                lazy=seat.plan.lazy,
            )
            if mine is not None:
                groups[tuple(ranks)] = mine
        for iteration in range(seat.plan.workload.iterations):
            world.align(iteration)
            seat.on_iteration(iteration)
            start_ns = now_ns()
            _Replay(program, groups, world, seat.compute, iteration).run()
            seat.log.iteration(iteration, start_ns, now_ns())


class _Replay:
    """One pass over a program. The main thread starts nodes; threads and Gloo report their ends."""

    def __init__(
        self,
        program: Sequence[AnyNode],
        groups: dict[tuple[int, ...], Communicator],
        world: Communicator,
        compute: ComputeModel,
        iteration: int,
    ) -> None:
        self._nodes = {node.id: node for node in program}
        self._groups = groups
        self._world = world
        self._compute = compute
        self._iteration = iteration
        self._waits = {node.id: len(set(node.after)) for node in program}
        self._followers: dict[int, list[int]] = defaultdict(list)
        self._in_order: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for node in program:
            for before in set(node.after):
                self._followers[before].append(node.id)
            if isinstance(node, ReplayCollective):
                heapq.heappush(self._in_order[node.ranks], (node.place, node.id))
        self._done: SimpleQueue[int] = SimpleQueue()
        # By the line in which they follow each other.
        self._ready_to_compute: dict[int, list[int]] = defaultdict(list)
        self._computing: dict[int, bool] = defaultdict(bool)
        self._ready_to_post: set[int] = set()
        self._posted: dict[int, tuple[Communicator, Pending]] = {}
        self._sequence: Counter[object] = Counter()

    def run(self) -> None:
        left = len(self._nodes)
        for id in sorted(id for id, waits in self._waits.items() if waits == 0):
            self._make_ready(id)
        self._start()
        while left:
            if not any(self._computing.values()) and not self._posted:
                stuck = min(id for id, waits in self._waits.items() if waits)
                raise ValueError(
                    f"node {stuck} ({self._nodes[stuck].name}) can never start: it waits for "
                    f"{list(self._nodes[stuck].after)}"
                )
            idle_since_ns = now_ns()
            id = self._done.get()
            busy = any(self._computing.values())
            self._finish(id, 0 if busy else now_ns() - idle_since_ns)
            left -= 1
            self._start()

    def _make_ready(self, id: int) -> None:
        node = self._nodes[id]
        if isinstance(node, ReplayCompute):
            heapq.heappush(self._ready_to_compute[node.line], id)
        else:
            self._ready_to_post.add(id)

    def _start(self) -> None:
        """Start whatever may start now."""
        for id in sorted(self._ready_to_post):
            node = self._nodes[id]
            if isinstance(node, ReplayMessage):
                self._ready_to_post.discard(id)
                self._post(id, self._world, self._message(node))
        for ranks, ids in self._in_order.items():
            while ids and ids[0][1] in self._ready_to_post:
                _, id = heapq.heappop(ids)
                self._ready_to_post.discard(id)
                communicator = self._groups[ranks]
                self._post(id, communicator, self._collective(self._nodes[id], communicator))
        for line, ready in self._ready_to_compute.items():
            if ready and not self._computing[line]:
                self._computing[line] = True
                Thread(target=self._sleep, args=(heapq.heappop(ready),)).start()

    def _finish(self, id: int, idle_ns: int) -> None:
        """Node `id` is done, after the rank did nothing but wait for `idle_ns`."""
        if id in self._posted:
            communicator, pending = self._posted.pop(id)
            communicator.wait(pending, idle_ns)
        else:
            node = self._nodes[id]
            assert isinstance(node, ReplayCompute)
            self._computing[node.line] = False
        for follower in self._followers[id]:
            self._waits[follower] -= 1
            if self._waits[follower] == 0:
                self._make_ready(follower)

    def _sleep(self, id: int) -> None:
        node = self._nodes[id]
        assert isinstance(node, ReplayCompute)
        self._compute.pause(node.name, "replay", self._iteration, node.duration_ns)
        self._done.put(id)

    def _post(self, id: int, communicator: Communicator, pending: Pending) -> None:
        self._posted[id] = (communicator, pending)
        if pending.has_future:
            pending.work.get_future().add_done_callback(lambda _: self._done.put(id))
        else:
            Thread(target=self._await, args=(id, pending)).start()

    def _await(self, id: int, pending: Pending) -> None:
        pending.work.wait()
        pending.end_ns = now_ns()
        self._done.put(id)

    def _collective(self, node: AnyNode, communicator: Communicator) -> Pending:
        assert isinstance(node, ReplayCollective)
        number = self._sequence[node.ranks]
        self._sequence[node.ranks] += 1
        return RankOperation(
            communicator,
            f"i{self._iteration}.{communicator.name}.{number}.{node.collective}",
            _operation(node),
            _DTYPE_OF[replayed_element_bytes(node.element_bytes)],
            self._iteration,
            seed=0,
        ).start()

    def _message(self, node: ReplayMessage) -> Pending:
        me, peer = self._world.rank, node.peer
        source, destination = (me, peer) if node.kind == "send" else (peer, me)
        flow = (source, destination, node.tag)
        number = self._sequence[flow]
        self._sequence[flow] += 1
        id = f"i{self._iteration}.message.{source}.{destination}.{node.tag}.{number}"
        ends = (source, destination)
        return post_message(
            self._world, id, "message", self._iteration, ends, node.size_bytes, "float32", node.tag
        )


def _operation(node: ReplayCollective) -> Operation:
    kind = node.collective
    if kind == Kind.BARRIER:
        return Barrier(kind="barrier")
    if kind in _ROOTED:
        return RootedCollective.model_validate(
            {"kind": kind, "size": node.size_bytes, "root": node.root}
        )
    return CollectiveOperation.model_validate({"kind": kind, "size": node.size_bytes})


PART = _Replayed()
"""The part of workloads that are replayed traces."""
