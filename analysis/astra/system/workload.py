"""ASTRA-sim's workload layer on one rank: issues the graph's nodes as they become free."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence

from analysis.astra.errors import AstraRefused
from analysis.astra.files.memory import RemoteMemory
from analysis.astra.files.task import Task
from analysis.astra.rank_result import RankResult
from analysis.astra.system.phase import AstraCollective
from analysis.astra.system.system import TAG_RANGE, System
from analysis.chakra.group_file import CommunicatorGroup
from analysis.chakra.schema import CollectiveType, NodeType

_COLLECTIVES = {
    CollectiveType.ALL_REDUCE: AstraCollective.ALL_REDUCE,
    CollectiveType.ALL_GATHER: AstraCollective.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER: AstraCollective.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL: AstraCollective.ALL_TO_ALL,
}
# The original subtracts 64-bit unsigned numbers; overlapping replays wrap round.
_UNSIGNED = 1 << 64


class Workload:
    """One rank's graph under way (workload/Workload.cc, HardwareResource.cc).

    A rank has one place for computation, one for CPU work, and one for communication;
    receives take none.
    """

    def __init__(
        self,
        system: System,
        tasks: Sequence[Task],
        groups: Mapping[int, CommunicatorGroup],
        memory: RemoteMemory,
        on_finish: Callable[[RankResult], None],
    ) -> None:
        self._system = system
        self._groups = groups
        self._memory = memory
        self._on_finish = on_finish
        self._tasks = {task.id: task for task in tasks}
        self._children: dict[int, list[int]] = {task.id: [] for task in tasks}
        self._parents_left: dict[int, int] = {}
        for task in tasks:
            self._parents_left[task.id] = len(task.parents)
            for parent in task.parents:
                self._children[parent].append(task.id)
        self._free = sorted(task.id for task in tasks if not task.parents)
        self._running = 0
        self._busy: set[str] = set()
        self._computed_ns = 0
        self.finished = False

    def start(self) -> None:
        """Issue what depends on nothing."""
        self._issue_free()
        self._finish_if_done()

    def unfinished(self) -> str:
        """The nodes that the rank still waits for, for a message."""
        return f"{len(self._free)} nodes ready, {self._running} running, of {len(self._tasks)}"

    def _issue_free(self) -> None:
        # Nodes that become free while these are issued wait for the next event, as they do in
        # the original.
        for task_id in tuple(self._free):
            task = self._tasks[task_id]
            if _place(task) not in self._busy:
                self._free.remove(task_id)
                self._issue(task)

    def _issue(self, task: Task) -> None:
        self._running += 1
        place = _place(task)
        if place is not None:
            self._busy.add(place)
        config = self._system.config
        if config.replay_only:
            self._sleep(task, task.runtime_ns)
        elif task.type in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
            self._memory.access(
                self._system.rank, self._system.local, task.tensor_bytes or 0, self._done, task
            )
        elif task.type is NodeType.COMP:
            if config.roofline_enabled and not task.on_cpu:
                self._compute(task)
            else:
                self._sleep(task, task.runtime_ns)
        elif task.type is NodeType.COMM_COLL:
            self._collective(task)
        elif task.type is NodeType.COMM_SEND:
            way = (self._system.rank, task.peer, task.tag % TAG_RANGE, task.size_bytes)
            self._system.network.send(way, self._done, task)
        elif task.type is NodeType.COMM_RECV:
            way = (task.peer, self._system.rank, task.tag % TAG_RANGE, task.size_bytes)
            self._system.network.receive(way, self._done, task)
        else:
            self._release(task)

    def _sleep(self, task: Task, duration_ns: int) -> None:
        if not task.on_cpu:
            self._computed_ns += duration_ns
        self._system.local.after(duration_ns, self._done, task)

    def _compute(self, task: Task) -> None:
        """Roofline: the lower of peak performance and what memory can feed (Roofline.cc)."""
        if task.num_ops is None or task.tensor_bytes is None:
            raise AstraRefused(
                f"rank {self._system.rank}, node {task.id}: computation needs num_ops and "
                "tensor_size when roofline-enabled is 1"
            )
        if task.tensor_bytes == 0:
            self._release(task)
            return
        config = self._system.config
        intensity = task.num_ops / task.tensor_bytes
        performance = min(
            config.local_mem_bw_gbps * 1_000_000_000 * intensity,
            config.peak_perf_tflops * 1_000_000_000_000,
        )
        if task.num_ops == 0:
            raise AstraRefused(
                f"rank {self._system.rank}, node {task.id}: num_ops is 0 with roofline-enabled 1: "
                "ASTRA-sim makes 2^63 ns of it"
            )
        # Without local-mem-bw or peak-perf the original divides by zero, and its cast makes that
        # no time at all.
        seconds = task.num_ops / performance if performance else 0.0
        self._sleep(task, int(seconds * 1e9))

    def _collective(self, task: Task) -> None:
        group = None
        if task.group:
            group = self._groups.get(int(task.group))
            if group is None:
                raise AstraRefused(
                    f"rank {self._system.rank}, node {task.id}: group {task.group} is not in the "
                    "groups file: ASTRA-sim exits"
                )
        if task.collective is CollectiveType.BROADCAST:
            # The original has no broadcast: it waits for the recorded duration.
            self._system.local.after(task.runtime_ns, self._done, task)
            return
        collective = _COLLECTIVES.get(task.collective) if task.collective is not None else None
        if collective is None:
            assert task.collective is not None
            raise AstraRefused(
                f"rank {self._system.rank}, node {task.id}: ASTRA-sim has no {task.collective.name}"
            )
        self._system.collective(
            collective,
            task.size_bytes,
            task.involved,
            group,
            task.priority,
            lambda: self._done(task),
        )

    def _release(self, task: Task) -> None:
        self._running -= 1
        self._busy.discard(_place(task) or "")
        for child in self._children[task.id]:
            self._parents_left[child] -= 1
            if self._parents_left[child] == 0:
                insort(self._free, child)

    def _done(self, task: Task) -> None:
        self._release(task)
        self._issue_free()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._free or self._running or self.finished:
            return
        self.finished = True
        now = self._system.events.now
        exposed = (now - self._computed_ns) % _UNSIGNED
        self._on_finish(RankResult(self._system.rank, now, exposed))


def _place(task: Task) -> str | None:
    """The resource that a task occupies."""
    if task.on_cpu:
        return "cpu"
    if task.type is NodeType.COMP:
        return "compute"
    return None if task.type is NodeType.COMM_RECV else "communication"
