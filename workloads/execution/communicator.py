"""A process group whose every collective is timed, checked and logged.

Gloo's slots carry a tag that counts the collectives of a group (docs/gloo-wire-format.md); the
communicator counts along, so that a capture can be split by collective without guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collectives.kinds import Kind, Shape
from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Schedule
from collectives.settings import AGREEMENT, agreement_of, entry_of, schedule_of
from collectives.start_order import CollectiveOrder
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.transports.connections import ONE, Connections, connection_name
from topologies.spec.workload_types import ReduceOp
from workloads.execution.aggregation.client import AggregationClient, Trees
from workloads.execution.aggregation.host_way import HostWay
from workloads.execution.clock import now_ns, round_time_ns, sleep_until_ns
from workloads.execution.copies.links import RankCopies
from workloads.execution.events import EventLog, Pending
from workloads.execution.payload.tensors import OWN_TENSORS, Tensors
from workloads.execution.process_groups import ProcessGroups
from workloads.execution.programs.agreement import find_highest
from workloads.execution.programs.engine import (
    ChunkTimes,
    ProgramEngine,
    ProgramWork,
)
from workloads.execution.traffic_class import TrafficClass
from workloads.execution.transports.interface import Links, RankEnds
from workloads.execution.transports.socket_links import SpreadLinks

# Far enough ahead for everybody to be asleep by then. Starts lie on a grid, so that a few
# microseconds more or less while connecting do not move everything that follows.
_ALIGN_MARGIN_NS = 1_000_000
_ALIGN_GRID_NS = 10_000_000
_REAL_TIME_MARGIN_NS = 100_000_000
"""The same in real time, where the ranks of a machine agree one after the other: some would wake up
when others have long begun, and that decides whose bytes go first."""
NO_CLASSES: Mapping[tuple[int, ...], TrafficClass] = {}
AT_THE_END = -1
"""The argument of `align` after the last iteration."""


class Communicator:
    """One Gloo process group over some ranks of the run.

    Switches take part in its programs by `tree`, where they aggregate. With `begin` its ranks do
    not align themselves before an iteration: it is called before the first one, and the others
    follow without a pause. With `ends` the messages of its programs go between these, else between
    its sockets and those of further `meshes`; those to its own server go by `copies`, where there
    are some.
    `tensors` are what its collectives move. With `real_time` it aligns its ranks further ahead.
    `aligned` is called when they have agreed on a time for the first time, before it has come.
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        ranks: Sequence[int],
        me: int,
        world_size: int,
        group: dist.ProcessGroup | None = None,
        settings: CollectivesSection | None = None,
        begin: Callable[[], None] | None = None,
        tree: AggregationClient | None = None,
        ends: RankEnds | None = None,
        tensors: Tensors = OWN_TENSORS,
        *,
        real_time: bool = False,
        connections: Connections = ONE,
        meshes: Sequence[dist.ProcessGroup] = (),
        copies: RankCopies | None = None,
        aligned: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.tensors = tensors
        self._tree = tree
        self._begin = begin
        self._begun = False
        self._aligned = aligned
        self._real_time = real_time
        self._agreed_in_ns = 0
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.rank = self.ranks.index(me)
        self._log = log
        self._everybody = self.size == world_size
        self._group = group
        self._links: Links | None = None
        if ends is not None and self.size > 1:
            store = dist.FileStore(str(ends.place.directory / f"{name}.ends"), -1)
            self._links = ends.links(store, name, self.ranks, me, log)
        elif meshes and self.size > 1:
            own = dist.group.WORLD if group is None else group
            self._links = SpreadLinks([own, *meshes], connections)
        if copies is not None and self.size > 1:
            self._links = copies.links(name, self.ranks, self.rank, self._carrier(group))
        self._next_tag = 0
        if log.posts is not None and not self._everybody:
            log.posts.group(name, self.ranks)
        self._settings = settings or CollectivesSection()
        self._engine = ProgramEngine(
            self.rank,
            self._settings.in_flight,
            CollectiveOrder(self._settings.order),
        )

    def schedule(self, shape: Shape, entry: Mapping[str, Any] | None = None) -> Schedule:
        """The schedule of a collective of this group. `entry` is the operation's own. Raises
        DoesNotFit."""
        return schedule_of(self._settings, shape, entry, self.ranks)

    def entry(self, kind: Kind, entry: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The spec's entry of a collective that runs as a program."""
        return entry or entry_of(self._settings, kind)

    def post_program(
        self,
        schedule: ProgramSchedule,
        source: torch.Tensor,
        target: torch.Tensor,
        id: str,
        phase: str,
        iteration: int,
        verify: Callable[[], None] | None = None,
        op: ReduceOp = "sum",
        **details: object,
    ) -> Pending:
        """Start a collective as a program, from `source` into `target`."""
        shape = schedule.shape
        if shape.kind.traits.reduces:
            details["op"] = op
        first_slot = self._engine.take_slots(schedule)
        number, way = 0, None
        if schedule.aggregators:
            assert self._tree is not None, "ranks of a tree have a place in it"
            if self._tree.rescue is not None:
                post = partial(self._post_by_hosts, f"{id}.by-hosts", iteration, op)
                take_slots = self._engine.take_slots
                way = HostWay(self._settings, shape, self.ranks, take_slots, post)
                admitted = self._tree.rescue.admit()
                if admitted is None:
                    schedule, first_slot = way.schedule, way.first_slot
                    details |= {"program": way.entry, "fell_back": True}
                else:
                    number = admitted

        def start(group: dist.ProcessGroup | None) -> ProgramWork:
            def report(times: ChunkTimes) -> None:
                self._log.chunk(self.name, id, times)

            if schedule.aggregators:
                assert self._tree is not None
                entry = details["program"]
                return self._tree.start(
                    schedule,
                    source,
                    target,
                    first_slot,
                    report,
                    entry,
                    op,
                    number,
                    way,
                    self._carrier(group),
                )
            return self._engine.start(
                schedule,
                self._carrier(group),
                source,
                target,
                first_slot,
                report,
                partial(self._agree, f"{id}.order", iteration),
                self.tensors.combine(op),
                self.tensors,
            )

        pending = self.post(
            id,
            shape.kind,
            phase,
            shape.size_bytes,
            iteration,
            start,
            verify,
            counted=False,
            has_future=True,
            members=None,
            **details,
            algorithm=schedule.algorithm,
            chunks=len(schedule.chunks),
            slots=[first_slot, schedule.slots],
        )
        if way is not None:
            way.note_in(pending.details)
        return pending

    def _post_by_hosts(
        self,
        id: str,
        iteration: int,
        op: ReduceOp,
        schedule: ProgramSchedule,
        entry: Mapping[str, Any],
        first_slot: int,
        data: torch.Tensor,
    ) -> ProgramWork:
        """Start what stands in for a collective that switches have not completed; it is logged by
        itself, and its chunks are not among those in flight."""
        pending = self.post(
            id,
            schedule.shape.kind,
            "fall-back",
            schedule.shape.size_bytes,
            iteration,
            lambda group: self._engine.start(
                schedule,
                self._carrier(group),
                data,
                data,
                first_slot,
                lambda times: self._log.chunk(self.name, id, times),
                combine=self.tensors.combine(op),
                tensors=self.tensors,
            ),
            counted=False,
            element_bytes=schedule.shape.element_bytes,
            root=schedule.shape.root,
            program=entry,
            algorithm=schedule.algorithm,
            chunks=len(schedule.chunks),
            slots=[first_slot, schedule.slots],
        )
        work: ProgramWork = pending.work
        work.add_done_callback(lambda _: self._log.collective(pending, 0))
        return work

    def _carrier(self, group: dist.ProcessGroup | None) -> Any:
        """The carrier by which programs send and receive."""
        if self._links is not None:
            return self._links
        return dist.group.WORLD if group is None else group

    def _agree(
        self,
        id: str,
        iteration: int,
        proposal: int,
        agreed: Callable[[int | BaseException], None],
    ) -> None:
        """Find the maximum of a number over all ranks, which takes part in no order itself."""
        numbers = torch.tensor([proposal], dtype=torch.int64)
        schedule = agreement_of(self.size, self._settings.endpoint_delay_ns)
        first_slot = self._engine.take_slots(schedule)
        pending = self.post(
            id,
            Kind.ALL_REDUCE,
            "align",
            8,
            iteration,
            lambda group: find_highest(
                self._engine,
                schedule,
                self._carrier(group),
                numbers,
                first_slot,
            ),
            counted=False,
            element_bytes=8,
            program=AGREEMENT,
            algorithm=schedule.algorithm,
            chunks=1,
            slots=[first_slot, schedule.slots],
        )

        def completed(work: ProgramWork) -> None:
            try:
                work.wait()
            except RuntimeError as error:
                agreed(error)
                return
            self._log.collective(pending, 0)
            agreed(int(numbers.item()))

        pending.work.add_done_callback(completed)

    def group_rank(self, rank: int) -> int:
        """Torch's number of a rank of this group: torch counts them in order."""
        return sorted(self.ranks).index(self.ranks[rank])

    def post(
        self,
        id: str,
        kind: str,
        phase: str,
        size_bytes: int,
        iteration: int,
        call: Callable[[dist.ProcessGroup | None], Any],
        verify: Callable[[], None] | None = None,
        counted: bool = True,
        has_future: bool = True,
        members: tuple[int, ...] | None = None,
        **details: object,
    ) -> Pending:
        """Start a collective. `call` gets the group and returns torch's Work.

        `counted` is False for point-to-point calls, whose slots carry the caller's tag.
        `has_future` is False for the works that torch gives no future (point to point, and
        reduce-scatter, which Gloo does as an all-reduce of a copy): they end when waited for.
        `members` are the ranks of the run that take part, where these are not the whole group.
        """
        tag = None
        if counted:
            tag = self._next_tag
            self._next_tag += 1
        ranks = members if members is not None else None if self._everybody else self.ranks
        pending = Pending(
            self.name,
            id,
            kind,
            phase,
            size_bytes,
            iteration,
            tag,
            ranks,
            now_ns(),
            self._log.work_logged,
            details,
            verify if self.tensors.checked else None,
            has_future,
        )
        self._log.begin(pending, members)
        pending.work = call(self._group)
        if has_future:
            # Taken where the collective completes, not where somebody waits for it.
            def completed(_: object) -> None:
                pending.end_ns = now_ns()
                self._log.mark(pending, "over")

            pending.work.get_future().add_done_callback(completed)
        return pending

    def wait(self, pending: Pending, waited_ns: int | None = None) -> None:
        """Block until done, check the numbers and log. Raises numbers.WrongResult, or torch's
        error. `waited_ns` is how long the rank was idle for it, when the caller waited before.
        """
        blocked_ns = now_ns()
        self._log.mark(pending, "waits")
        # Gloo's point-to-point works can be waited for once only: a second wait never returns.
        if pending.has_future or pending.end_ns is None:
            pending.work.wait()
        woken_ns = now_ns()
        self._log.mark(pending, "over")
        if pending.verify is not None:
            pending.verify()
            self._log.check(pending.id)
        if pending.end_ns is None:
            pending.end_ns = woken_ns
            pending.details["awaited"] = True
        self._log.collective(pending, woken_ns - blocked_ns if waited_ns is None else waited_ns)

    def begin(self) -> None:
        """Wait until it is time, where there is something that says when; the first time only."""
        if self._begin is not None and not self._begun:
            self._begun = True
            self._begin()

    def align(self, iteration: int) -> None:
        """Start all ranks at the same nanosecond of the common clock.

        A barrier lets its ranks go at different times; here they agree on a time that lies ahead
        for all of them (a maximum over the group) and sleep until it. Where there is something that
        says when to begin, they do so at the end alone.
        """
        if self._begin is not None and iteration != AT_THE_END:
            self.begin()
            return
        margin_ns = _ALIGN_MARGIN_NS
        if self._real_time:
            margin_ns = max(_REAL_TIME_MARGIN_NS, 2 * self._agreed_in_ns)
        began_ns = now_ns()
        ahead_ns = round_time_ns(margin_ns, _ALIGN_GRID_NS)
        proposal = torch.tensor([ahead_ns], dtype=torch.int64)
        self.wait(
            self.post(
                f"i{iteration}.align",
                Kind.ALL_REDUCE,
                "align",
                proposal.numel() * proposal.element_size(),
                iteration,
                lambda group: dist.all_reduce(
                    proposal, op=dist.ReduceOp.MAX, group=group, async_op=True
                ),
                element_bytes=8,
            )
        )
        self._agreed_in_ns = now_ns() - began_ns
        if self._aligned is not None:
            aligned, self._aligned = self._aligned, None
            aligned()
        sleep_until_ns(int(proposal.item()))


def subgroups(
    groups: ProcessGroups,
    log: EventLog,
    name: str,
    partition: Sequence[Sequence[int]],
    me: int,
    world_size: int,
    settings: CollectivesSection | None = None,
    ends: RankEnds | None = None,
    tensors: Tensors = OWN_TENSORS,
    trees: Trees | None = None,
    classes: Mapping[tuple[int, ...], TrafficClass] = NO_CLASSES,
    *,
    lazy: bool = False,
    connections: Connections = ONE,
    copies: RankCopies | None = None,
) -> Communicator | None:
    """Split the run into process groups; every rank calls this with the same partition.

    The ports of a group's connections are logged, unless these are `lazy` and yet to be made.
    Groups in `classes` send in the class there. Two ranks have so many `connections`.
    Returns the communicator of the part that `me` is in, named `<name>.<index>`.
    """
    mine = None
    for index, ranks in enumerate(partition):
        of_group = classes.get(tuple(ranks))
        with nullcontext() if of_group is None else of_group.during():
            own = f"{name}.{index}"
            group = groups.new_group(ranks, own)
            if me in ranks and not lazy:
                log.connections(own, groups.ports(own))
                log.handshakes(own, groups.handshakes(own))
            meshes = further_meshes(groups, log, own, ranks, me, connections, lazy=lazy)
            if me not in ranks:
                continue
            mine = Communicator(
                log,
                f"{name}.{index}",
                ranks,
                me,
                world_size,
                group,
                settings,
                tree=None if trees is None else trees.join(ranks),
                ends=ends,
                tensors=tensors,
                connections=connections,
                meshes=meshes,
                copies=copies,
            )
    return mine


def further_meshes(
    groups: ProcessGroups,
    log: EventLog,
    name: str,
    ranks: Sequence[int],
    me: int,
    connections: Connections,
    *,
    lazy: bool,
) -> Sequence[dist.ProcessGroup]:
    """The sockets of a group's `ranks` beyond the first of each two; every rank of the run calls
    this. A rank outside gets none. Ports are logged as those of the group are."""
    found = []
    for number in range(1, connections.count if len(ranks) > 1 else 1):
        own = connection_name(name, number)
        group = groups.new_group(ranks, own)
        if me not in ranks:
            continue
        assert group is not None
        found.append(group)
        if not lazy:
            log.connections(own, groups.ports(own))
            log.handshakes(own, groups.handshakes(own))
    return found
