"""The collectives benchmark's operations, by torch's names, each with a payload that it can check.

`size_bytes` is nccl-tests' size: the whole array for all-gather and reduce-scatter, what a rank
sends in total for all-to-all, the buffer for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, get_args

import torch
import torch.distributed as dist

from collectives.derangement import derangement
from collectives.kinds import Kind, Shape, barrier_shape, rounded_elements
from collectives.schedule.program import ProgramSchedule
from topologies.spec.workload_section import (
    Incast,
    Operation,
    Permutation,
    SendRecv,
)
from topologies.spec.workload_types import ITEM_BYTES, ElementType, ReduceOp
from workloads.execution.communicator import Communicator
from workloads.execution.events import Pending
from workloads.execution.payload import numbers
from workloads.execution.programs.reductions import REDUCTIONS
from workloads.execution.watched_work import WatchedWork

DTYPES: dict[ElementType, torch.dtype] = {
    name: getattr(torch, name) for name in get_args(ElementType)
}

Group: TypeAlias = dist.ProcessGroup | None


@dataclass(frozen=True)
class RankOperation:
    """One operation of one iteration, as one rank sees it. `root` is a rank of the group; `phase`
    is its kind where nothing else is said. `begin` is called when its tensors are there, and
    returns when it is to be posted."""

    communicator: Communicator
    id: str
    spec: Operation
    dtype: ElementType
    iteration: int
    seed: int
    phase: str = ""
    begin: Callable[[], None] = lambda: None

    def start(self) -> Pending:
        """Post it."""
        return _KINDS[self.spec.kind](self)

    @property
    def root(self) -> int:
        """The root's rank in the group; 0 for operations that have none."""
        return getattr(self.spec, "root", 0)

    @property
    def op(self) -> ReduceOp:
        """How it reduces."""
        return getattr(self.spec, "op", "sum")

    @property
    def torch_op(self) -> Any:
        return REDUCTIONS[self.op].torch_op

    @property
    def torch_root(self) -> int:
        return self.communicator.group_rank(self.root)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def rank(self) -> int:
        return self.communicator.rank

    @property
    def ranks(self) -> int:
        return self.communicator.size

    @property
    def count(self) -> int:
        """Elements of the whole array, rounded down to what divides evenly (as nccl-tests does)."""
        item_bytes = ITEM_BYTES[self.dtype]
        return rounded_elements(Kind(self.spec.kind), self.spec.size_bytes, self.ranks, item_bytes)

    @property
    def shard(self) -> int:
        """Elements of one rank's part of the whole array."""
        return self.count // self.ranks

    def empty(self, count: int) -> torch.Tensor:
        """A tensor of so many elements, with any contents."""
        return self.communicator.tensors.empty(count, self.torch_dtype)

    def reduction_input(self) -> torch.Tensor:
        """This rank's contribution to a reduction of the whole array."""
        return self.communicator.tensors.reduction_input(
            self.count, self.rank, self.ranks, self.torch_dtype, self.op
        )

    def blocks(self, count: int, codes: Sequence[int]) -> torch.Tensor:
        """Blocks of `count` elements, one per code."""
        return self.communicator.tensors.blocks(count, codes, self.torch_dtype)

    def post(
        self,
        call: Callable[[Group], Any],
        verify: Callable[[], None] | None,
        counted: bool = True,
        has_future: bool = True,
        tensors: tuple[torch.Tensor, torch.Tensor] | None = None,
        **details: object,
    ) -> Pending:
        """`tensors` are source and target of collectives that can run as programs."""
        kind = self.spec.kind
        element_bytes = ITEM_BYTES[self.dtype]
        if tensors is not None:
            size_bytes = self.count * element_bytes
            shape = Shape(Kind(kind), size_bytes, self.ranks, element_bytes, self.root)
            entry = getattr(self.spec, "program", None)
            schedule = self.communicator.schedule(shape, entry)
            if isinstance(schedule, ProgramSchedule):
                self.begin()
                return self.communicator.post_program(
                    schedule,
                    *tensors,
                    self.id,
                    self.phase or kind,
                    self.iteration,
                    verify,
                    self.op,
                    element_bytes=element_bytes,
                    program=self.communicator.entry(shape.kind, entry),
                    **details,
                )
        if Kind(kind).traits.reduces:
            details["op"] = self.op
        self.begin()
        return self.communicator.post(
            self.id,
            kind,
            self.phase or kind,
            self.count * element_bytes,
            self.iteration,
            call,
            verify,
            counted,
            has_future,
            None,
            element_bytes=element_bytes,
            **details,
        )


def _all_reduce(op: RankOperation) -> Pending:
    x = op.reduction_input()
    return op.post(
        lambda g: dist.all_reduce(x, op.torch_op, group=g, async_op=True),
        lambda: numbers.check_reduction(op.id, x, op.ranks, op.op),
        tensors=(x, x),
    )


def _reduce(op: RankOperation) -> Pending:
    x = op.reduction_input()

    def verify() -> None:
        if op.rank == op.root:
            numbers.check_reduction(op.id, x, op.ranks, op.op)

    return op.post(
        lambda g: dist.reduce(x, group_dst=op.torch_root, op=op.torch_op, group=g, async_op=True),
        verify,
        tensors=(x, x),
        root=op.root,
    )


def _reduce_scatter(op: RankOperation) -> Pending:
    x = op.reduction_input()
    y = op.empty(op.shard)
    return op.post(
        lambda g: dist.reduce_scatter_tensor(y, x, op.torch_op, group=g, async_op=True),
        lambda: numbers.check_reduction(op.id, y, op.ranks, op.op, op.shard * op.rank),
        has_future=False,
        tensors=(x, y),
    )


def _all_gather(op: RankOperation) -> Pending:
    x = op.blocks(op.shard, [numbers.block_code(op.rank, 0)])
    y = op.empty(op.count)
    return op.post(
        lambda g: dist.all_gather_into_tensor(y, x, group=g, async_op=True),
        lambda: numbers.check_blocks(op.id, y, numbers.codes_to(0, op.ranks)),
        tensors=(x, y),
    )


def _all_to_all(op: RankOperation) -> Pending:
    x = op.blocks(op.shard, numbers.codes_from(op.rank, op.ranks))
    y = op.empty(op.count)
    return op.post(
        lambda g: dist.all_to_all_single(y, x, group=g, async_op=True),
        lambda: numbers.check_blocks(op.id, y, numbers.codes_to(op.rank, op.ranks)),
        tensors=(x, y),
    )


def _broadcast(op: RankOperation) -> Pending:
    codes = [numbers.block_code(op.root, 0)]
    x = op.blocks(op.count, codes) if op.rank == op.root else op.empty(op.count)
    return op.post(
        lambda g: dist.broadcast(x, group_src=op.torch_root, group=g, async_op=True),
        lambda: numbers.check_blocks(op.id, x, codes),
        tensors=(x, x),
        root=op.root,
    )


def _gather(op: RankOperation) -> Pending:
    x = op.blocks(op.shard, [numbers.block_code(op.rank, 0)])
    y = [op.empty(op.shard) for _ in range(op.ranks)] if op.rank == op.root else None

    def verify() -> None:
        for source, part in enumerate(y or []):
            numbers.check_blocks(op.id, part, [numbers.block_code(source, 0)])

    return op.post(
        lambda g: dist.gather(x, y, group_dst=op.torch_root, group=g, async_op=True),
        verify,
        root=op.root,
    )


def _scatter(op: RankOperation) -> Pending:
    x = None
    if op.rank == op.root:
        codes = numbers.codes_from(op.root, op.ranks)
        x = list(op.blocks(op.shard, codes).split(op.shard))
    y = op.empty(op.shard)
    return op.post(
        lambda g: dist.scatter(y, x, group_src=op.torch_root, group=g, async_op=True),
        lambda: numbers.check_blocks(op.id, y, [numbers.block_code(op.root, op.rank)]),
        root=op.root,
    )


def _barrier(op: RankOperation) -> Pending:
    entry = getattr(op.spec, "program", None)
    if not entry:
        return op.post(lambda g: dist.barrier(group=g, async_op=True), None)
    shape = barrier_shape(op.ranks)
    schedule = op.communicator.schedule(shape, entry)
    assert isinstance(schedule, ProgramSchedule)
    came = torch.ones(1, dtype=torch.int64)

    def verify() -> None:
        if int(came.item()) != op.ranks:
            raise numbers.WrongResult(f"{op.id}: {int(came.item())} of {op.ranks} ranks came")

    op.begin()
    return op.communicator.post_program(
        schedule,
        came,
        came,
        op.id,
        op.phase or op.spec.kind,
        op.iteration,
        verify,
        element_bytes=shape.element_bytes,
        program=entry,
    )


class _JointWork:
    """Several point-to-point works that complete together."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _exchange(op: RankOperation, to: list[int], sources: list[int], **details: object) -> Pending:
    """Messages of the whole size to and from other ranks of the group, all at once."""
    received = [op.empty(op.count) for _ in sources]
    sent = [op.blocks(op.count, [numbers.block_code(op.rank, d)]) for d in to]
    peer = op.communicator.group_rank

    def call(group: Group) -> _JointWork:
        receives = [
            dist.irecv(y, group_src=peer(s), group=group)
            for y, s in zip(received, sources, strict=True)
        ]
        sends = [
            dist.isend(x, group_dst=peer(d), group=group) for x, d in zip(sent, to, strict=True)
        ]
        return _JointWork([*receives, *sends])

    def verify() -> None:
        for y, source in zip(received, sources, strict=True):
            numbers.check_blocks(op.id, y, [numbers.block_code(source, op.rank)])

    return op.post(call, verify, counted=False, has_future=False, tensors=None, **details)


def _send_recv(op: RankOperation) -> Pending:
    assert isinstance(op.spec, SendRecv)
    root, peer = op.root, op.spec.peer
    return _exchange(
        op,
        [peer] if op.rank == root else [],
        [root] if op.rank == peer else [],
        root=root,
        peer=peer,
    )


def _permutation(op: RankOperation) -> Pending:
    assert isinstance(op.spec, Permutation)
    if op.spec.shift is None:
        to = derangement(op.ranks, op.seed)
    else:
        to = tuple((rank + op.spec.shift) % op.ranks for rank in range(op.ranks))
    return _exchange(op, [to[op.rank]], [to.index(op.rank)], shift=op.spec.shift)


def _incast(op: RankOperation) -> Pending:
    assert isinstance(op.spec, Incast)
    degree = op.spec.degree or op.ranks - 1
    senders = [(op.root + 1 + i) % op.ranks for i in range(degree)]
    return _exchange(
        op,
        [op.root] if op.rank in senders else [],
        senders if op.rank == op.root else [],
        root=op.root,
        degree=degree,
    )


_KINDS: dict[str, Callable[[RankOperation], Pending]] = {
    Kind.ALL_REDUCE: _all_reduce,
    Kind.REDUCE: _reduce,
    Kind.REDUCE_SCATTER: _reduce_scatter,
    Kind.ALL_GATHER: _all_gather,
    Kind.ALL_TO_ALL: _all_to_all,
    Kind.BROADCAST: _broadcast,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.BARRIER: _barrier,
    Kind.SEND_RECV: _send_recv,
    Kind.PERMUTATION: _permutation,
    Kind.INCAST: _incast,
}


def post_message(
    world: Communicator,
    id: str,
    phase: str,
    iteration: int,
    ends: tuple[int, int],
    size_bytes: int,
    dtype: ElementType,
    tag: int = 0,
) -> Pending:
    """`ends` are source and destination; where the message arrives, its payload is checked when it
    is waited for."""
    source, destination = ends
    count, codes = (
        max(size_bytes // ITEM_BYTES[dtype], 1),
        [numbers.block_code(source, destination)],
    )
    torch_dtype = DTYPES[dtype]
    if world.rank == source:
        buffer = world.tensors.blocks(count, codes, torch_dtype)
    else:
        buffer = world.tensors.empty(count, torch_dtype)
    check = partial(numbers.check_blocks, id, buffer, codes)
    return post_tensor(world, id, phase, iteration, ends, size_bytes, buffer, check, tag)


def post_tensor(
    world: Communicator,
    id: str,
    phase: str,
    iteration: int,
    ends: tuple[int, int],
    size_bytes: int,
    buffer: torch.Tensor,
    check: Callable[[], None],
    tag: int = 0,
    watchers: ThreadPoolExecutor | None = None,
) -> Pending:
    """A message of about `size_bytes` that is sent from `buffer`, or received into it: `ends` are
    source and destination. Where it arrives, `check` is called when it is waited for. With
    `watchers` it ends when it is over, and not when it is waited for."""
    source, destination = ends
    sends = world.rank == source

    def call(group: Group) -> Any:
        if sends:
            work = dist.isend(buffer, group_dst=destination, group=group, tag=tag)
        else:
            work = dist.irecv(buffer, group_src=source, group=group, tag=tag)
        return work if watchers is None else WatchedWork(work, watchers)

    return world.post(
        id,
        Kind.SEND_RECV,
        phase,
        size_bytes,
        iteration,
        call,
        None if sends else check,
        counted=False,
        has_future=watchers is not None,
        members=ends,
        element_bytes=buffer.element_size(),
        root=0,
        peer=1,
    )
