"""A process group whose collectives run as programs, and the rest as Gloo's own.

Every kind that has an entry in the configuration runs as a program over Gloo's point-to-point
messages; where switches take part, on a tree that the group is given when it is made. Then a
barrier is an all-reduce of 8 bytes. Kinds without an entry, other barriers, messages, gather and
scatter are Gloo's own. A call that neither can do raises Unsupported with the call's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    _create_work_from_future,
)

from collectives.algorithms import algorithms
from collectives.algorithms.aggregation import Aggregation
from collectives.algorithms.base import DoesNotFit, Refused
from collectives.in_network.of_run import unable_to_reduce
from collectives.kinds import Kind, Shape, barrier_shape
from collectives.schedule.program import FIRST_SLOT, ProgramSchedule
from collectives.settings import AGREEMENT, agreement_of, by_hosts, entry_of
from collectives.shared_schedules import planner_of_process
from collectives.start_order import CollectiveOrder
from workloads.execution.programs.agreement import find_highest
from workloads.execution.programs.engine import ProgramEngine, ProgramWork
from workloads.execution.programs.reductions import SUM, Combine
from workloads.torch_backend.configuration import from_environment
from workloads.torch_backend.group_trees import joined_trees
from workloads.torch_backend.logged_program import LoggedProgram
from workloads.torch_backend.own_links import own_links
from workloads.torch_backend.reductions import Unsupported, combine_of, name_of


class GroundwireGroup(dist.ProcessGroup):  # type: ignore[misc]
    """One group. Raises ConfigurationError for a wrong configuration."""

    def __init__(
        self, store: dist.Store, rank: int, ranks: tuple[int, ...], timeout: timedelta, name: str
    ) -> None:
        """`rank` is the one in the group, `ranks` are those of its members in the run."""
        size = len(ranks)
        super().__init__(rank, size)
        algorithms()  # an import takes virtual time, of the rank alone that makes a schedule
        self._own_rank = rank
        self._own_size = size
        self._name, self._ranks = name, ranks
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        # With the trees of the switches that take part.
        self._section, self._trees = joined_trees(from_environment(), store, ranks, rank)
        self._planned_from = self._section.model_dump(
            mode="json", by_alias=True, exclude_defaults=True
        )
        self._planner = planner_of_process(rank)
        # The transport by which programs send and receive.
        self._carrier = own_links(store, name, ranks, rank, timeout, self._gloo)
        self._engine = ProgramEngine(
            rank,
            self._section.in_flight,
            CollectiveOrder(self._section.order),
        )

    def getBackendName(self) -> str:
        """torch's name for it."""
        return "groundwire"

    def getGroupName(self) -> str:
        """torch asks for it when a group is destroyed."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """torch tells the name that the group has already."""

    def rank(self) -> int:
        return self._own_rank

    def size(self) -> int:
        return self._own_size

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or AllreduceOptions()
        (tensor,) = _single(tensors, "allreduce")
        return self._in_place(
            Kind.ALL_REDUCE, tensor, 0, opts.reduceOp, lambda: self._gloo.allreduce(tensors, opts)
        )

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or AllreduceCoalescedOptions()
        if not self._has(Kind.ALL_REDUCE):
            return self._gloo.allreduce_coalesced(tensors, opts)
        flat = torch.cat([_plain(one, "allreduce_coalesced").reshape(-1) for one in tensors])
        single = AllreduceOptions()
        single.reduceOp = opts.reduceOp
        work = self.allreduce([flat], single)

        def scatter() -> list[torch.Tensor]:
            first = 0
            for one in tensors:
                one.copy_(flat[first : first + one.numel()].view_as(one))
                first += one.numel()
            return list(tensors)

        return _after(work, scatter)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or BroadcastOptions()
        (tensor,) = _single(tensors, "broadcast")
        return self._in_place(
            Kind.BROADCAST, tensor, opts.rootRank, None, lambda: self._gloo.broadcast(tensors, opts)
        )

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or ReduceOptions()
        (tensor,) = _single(tensors, "reduce")
        return self._in_place(
            Kind.REDUCE,
            tensor,
            opts.rootRank,
            opts.reduceOp,
            lambda: self._gloo.reduce(tensors, opts),
        )

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        return self._out_of_place(
            Kind.ALL_GATHER,
            _plain(input, "all_gather_single"),
            _plain(output, "all_gather_single"),
            None,
            partial(self._gathered_by_gloo, output, input),
        )

    _allgather_base = all_gather_single

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        if not self._has(Kind.ALL_GATHER):
            return self._gloo.allgather(outputs, inputs, opts or AllgatherOptions())
        (source,) = _single(inputs, "allgather")
        (parts,) = outputs
        if any(part.numel() != source.numel() for part in parts):
            raise Unsupported("allgather: found tensors of different sizes, allowed: equal ones")
        target = torch.empty(source.numel() * self._own_size, dtype=source.dtype)
        work = self.all_gather_single(target, source.reshape(-1))

        def scatter() -> list[torch.Tensor]:
            for part, found in zip(parts, target.chunk(self._own_size), strict=True):
                part.copy_(found.view_as(part))
            return list(parts)

        return _after(work, scatter)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts or ReduceScatterOptions()
        return self._out_of_place(
            Kind.REDUCE_SCATTER,
            _plain(input, "reduce_scatter_single"),
            _plain(output, "reduce_scatter_single"),
            opts.reduceOp,
            lambda: self._gloo._reduce_scatter_base(output, input, opts),
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        if not self._has(Kind.REDUCE_SCATTER):
            return self._gloo.reduce_scatter(outputs, inputs, opts or ReduceScatterOptions())
        (output,) = _single(outputs, "reduce_scatter")
        (parts,) = inputs
        if any(part.numel() != output.numel() for part in parts):
            raise Unsupported(
                "reduce_scatter: found tensors of different sizes, allowed: equal ones"
            )
        source = torch.cat([part.reshape(-1) for part in parts])
        return self.reduce_scatter_single(output, source, opts)

    def all_to_all_single(
        self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> Any:
        opts = opts or AllToAllOptions()
        if len({*output_splits}) > 1 or len({*input_splits}) > 1:
            if self._has(Kind.ALL_TO_ALL):
                found = f"{list(output_splits)}, {list(input_splits)}"
                raise Unsupported(f"all_to_all_single: found splits {found}, allowed: equal ones")
            return self._gloo.alltoall_base(output, input, output_splits, input_splits, opts)
        return self._out_of_place(
            Kind.ALL_TO_ALL,
            _plain(input, "all_to_all_single"),
            _plain(output, "all_to_all_single"),
            None,
            lambda: self._gloo.alltoall_base(output, input, output_splits, input_splits, opts),
        )

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> Any:
        entry = entry_of(self._section, Kind.ALL_REDUCE)
        if self._trees is not None and entry["algorithm"] == Aggregation.name:
            came = torch.ones(1, dtype=torch.int64)
            planned = self._planned(barrier_shape(self._own_size), came.dtype, dist.ReduceOp.SUM)
            if planned[1].aggregators:
                return self._run(*planned, came, came, SUM, dist.ReduceOp.SUM, [], "barrier")
        return self._gloo.barrier(opts or BarrierOptions())

    def shutdown(self) -> None:
        """Called when the group is destroyed. The switches above are told."""
        if self._trees is not None:
            self._trees.leave()

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._gloo.gather(outputs, inputs, opts or GatherOptions())

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._gloo.scatter(outputs, inputs, opts or ScatterOptions())

    def send(self, tensors: Any, peer: int, tag: int) -> Any:
        return self._gloo.send(tensors, peer, _checked(tag, "send"))

    def recv(self, tensors: Any, peer: int, tag: int) -> Any:
        return self._gloo.recv(tensors, peer, _checked(tag, "recv"))

    def recv_anysource(self, tensors: Any, tag: int) -> Any:
        return self._gloo.recv_anysource(tensors, _checked(tag, "recv_anysource"))

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        raise Unsupported("alltoall: found lists of tensors, allowed: all_to_all_single")

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        raise Unsupported("all_gather_single_coalesced: allowed: all_gather_single of each")

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        raise Unsupported("allgather_coalesced: allowed: allgather of each")

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        raise Unsupported("reduce_scatter_single_coalesced: allowed: reduce_scatter_single of each")

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def monitored_barrier(self, *_: object, **__: object) -> None:
        raise Unsupported("monitored_barrier: allowed: barrier")

    def split_group(self, *_: object, **__: object) -> Any:
        raise Unsupported("split_group: allowed: new_group")

    def _has(self, kind: Kind) -> bool:
        """Whether a kind runs as programs."""
        return self._own_size > 1 and bool(entry_of(self._section, kind))

    def _in_place(
        self,
        kind: Kind,
        tensor: torch.Tensor,
        root: int,
        op: object,
        by_gloo: Callable[[], Any],
    ) -> Any:
        if not tensor.numel() or not self._has(kind):
            return by_gloo()
        shape = self._shape(kind, tensor.numel(), tensor.element_size(), root)
        combine = combine_of(kind, op)
        flat = _plain(tensor, kind).view(-1)
        return self._run(*self._planned(shape, tensor.dtype, op), flat, flat, combine, op, [tensor])

    def _out_of_place(
        self,
        kind: Kind,
        source: torch.Tensor,
        target: torch.Tensor,
        op: object,
        by_gloo: Callable[[], Any],
    ) -> Any:
        count = max(source.numel(), target.numel())
        if not count or not self._has(kind):
            return by_gloo()
        planned = self._planned(
            self._shape(kind, count, source.element_size(), 0), source.dtype, op
        )
        combine = combine_of(kind, op)
        return self._run(*planned, source.view(-1), target.view(-1), combine, op, [target])

    def _shape(self, kind: Kind, count: int, item_bytes: int, root: int) -> Shape:
        if kind.traits.splits and count % self._own_size:
            raise Unsupported(f"{kind}: found {count} elements, allowed: multiples of the ranks")
        return Shape(kind, count * item_bytes, self._own_size, item_bytes, root)

    def _planned(
        self, shape: Shape, dtype: torch.dtype, op: object
    ) -> tuple[Mapping[str, Any], ProgramSchedule]:
        """The entry by which a collective of a kind that has one runs, and its schedule. A type or
        an operation that the switches lack is refused, or left to hosts, as the section says."""
        kind = shape.kind
        entry = entry_of(self._section, kind)
        try:
            schedule = self._planner(self._section, shape, None, self._ranks)
            assert isinstance(schedule, ProgramSchedule), "a kind with an entry, of two and more"
            if schedule.aggregators and kind.traits.reduces:
                name = str(dtype).removeprefix("torch.")
                lacking = unable_to_reduce(self._section, self._ranks, name, name_of(op))
                if lacking:
                    entry, schedule = self._by_hosts(shape, lacking)
        except DoesNotFit as error:
            raise Unsupported(f"{kind}: {error}") from error
        return entry, schedule

    def _by_hosts(self, shape: Shape, lacking: str) -> tuple[Mapping[str, Any], ProgramSchedule]:
        of_run = getattr(self._section, "aggregation", None)
        assert of_run is not None
        if of_run.section.when_full != "fall-back":
            raise Refused("algorithm", Aggregation.name, f"by hosts: {lacking}")
        return by_hosts(self._section, shape, self._ranks)

    def _run(
        self,
        entry: Mapping[str, Any],
        schedule: ProgramSchedule,
        source: torch.Tensor,
        target: torch.Tensor,
        combine: Combine,
        op: object,
        result: Sequence[torch.Tensor],
        phase: str = "",
    ) -> Any:
        first_slot = self._engine.take_slots(schedule)
        logged = self._logged(schedule, entry, first_slot, op, phase)
        if schedule.aggregators:
            assert self._trees is not None, "a schedule of switches needs trees"
            work = self._trees.start(
                schedule, source, target, first_slot, logged.chunk, entry, name_of(op)
            )
        else:
            work = self._engine.start(
                schedule,
                self._carrier,
                source,
                target,
                first_slot,
                logged.chunk,
                agree=self._agree,
                combine=combine,
            )
        future: torch.futures.Future[Any] = torch.futures.Future()
        returned = _create_work_from_future(future)
        logged.awaited(returned)
        work.add_done_callback(partial(_complete, future, lambda: list(result)))
        return returned

    def _logged(
        self,
        schedule: ProgramSchedule,
        entry: Mapping[str, Any],
        first_slot: int,
        op: object,
        phase: str = "",
    ) -> LoggedProgram:
        """A program's place in the rank's log, where the run observes its ranks. Without a `phase`
        it is its kind."""
        return LoggedProgram.begin(
            self._name,
            self._ranks,
            schedule,
            entry,
            self._planned_from,
            first_slot,
            name_of(op),
            phase,
        )

    def _agree(self, proposal: int, agreed: Callable[[int | BaseException], None]) -> None:
        numbers = torch.tensor([proposal], dtype=torch.int64)
        schedule = agreement_of(self._own_size, self._section.endpoint_delay_ns)
        first_slot = self._engine.take_slots(schedule)
        logged = self._logged(schedule, AGREEMENT, first_slot, None, "align")

        def completed(work: ProgramWork) -> None:
            logged.over()
            try:
                work.wait()
            except RuntimeError as error:
                agreed(error)
            else:
                agreed(int(numbers.item()))

        work = find_highest(self._engine, schedule, self._carrier, numbers, first_slot)
        work.add_done_callback(completed)

    def _gathered_by_gloo(self, output: torch.Tensor, input: torch.Tensor) -> Any:
        return self._gloo._allgather_base(output, input, AllgatherOptions())


def _single(tensors: Sequence[torch.Tensor], call: str) -> Sequence[torch.Tensor]:
    if len(tensors) != 1:
        raise Unsupported(f"{call}: found {len(tensors)} tensors, allowed: 1")
    return tensors


def _plain(tensor: torch.Tensor, call: str) -> torch.Tensor:
    """Raises Unsupported for what has no bytes that can be sent as they lie."""
    if tensor.is_sparse or tensor.device.type != "cpu" or not tensor.is_contiguous():
        kind = "sparse" if tensor.is_sparse else f"{tensor.device.type}, strided"
        raise Unsupported(f"{call}: found a tensor that is {kind}, allowed: cpu, contiguous")
    return tensor


def _checked(tag: int, call: str) -> int:
    """Programs have the tags from FIRST_SLOT on."""
    if tag >= FIRST_SLOT:
        raise Unsupported(f"{call}: found tag {tag}, allowed: below {FIRST_SLOT}")
    return tag


def _complete(
    future: torch.futures.Future[Any], result: Callable[[], list[torch.Tensor]], work: ProgramWork
) -> None:
    try:
        work.wait()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result())


def _after(work: Any, then: Callable[[], list[torch.Tensor]]) -> Any:
    """Work that is complete once `then` has put the result of another one into its place."""

    def done(found: torch.futures.Future[Any]) -> list[torch.Tensor]:
        found.value()
        return then()

    return _create_work_from_future(work.get_future().then(done))
