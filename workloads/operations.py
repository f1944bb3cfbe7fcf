"""The collectives benchmark's operations, by torch's names, each with a payload that it can check.

`size_bytes` is nccl-tests' size: the whole array for all-gather and reduce-scatter, what a rank
sends in total for all-to-all, the buffer for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from topologies.derangement import derangement
from topologies.workload_spec import ITEM_BYTES, Dtype, Incast, Permutation, SendRecv
from topologies.workload_spec import Operation as OperationSpec
from workloads import payload
from workloads.communicator import Communicator
from workloads.pending import Pending

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_SPLIT_KINDS = ("all_to_all", "all_gather", "reduce_scatter", "gather", "scatter")

Group: TypeAlias = dist.ProcessGroup | None


@dataclass(frozen=True)
class Operation:
    """One operation of one iteration, as one rank sees it. `root` is a rank of the group; `phase`
    is its kind where nothing else is said."""

    communicator: Communicator
    id: str
    spec: OperationSpec
    dtype: Dtype
    iteration: int
    seed: int
    phase: str = ""

    def start(self) -> Pending:
        """Post it."""
        return _KINDS[self.spec.kind](self)

    @property
    def root(self) -> int:
        """The root's rank in the group; 0 for operations that have none."""
        return getattr(self.spec, "root", 0)

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
    def root_global(self) -> int:
        return self.communicator.global_rank(self.root)

    @property
    def count(self) -> int:
        """Elements of the whole array, rounded down to what divides evenly (as nccl-tests does)."""
        count = max(self.spec.size_bytes // ITEM_BYTES[self.dtype], 1)
        if self.spec.kind in _SPLIT_KINDS:
            count = max(count // self.ranks, 1) * self.ranks
        return count

    @property
    def shard(self) -> int:
        """Elements of one rank's part of the whole array."""
        return self.count // self.ranks

    def post(
        self,
        call: Callable[[Group], Any],
        verify: Callable[[], None] | None,
        counted: bool = True,
        has_future: bool = True,
        **details: object,
    ) -> Pending:
        kind = self.spec.kind
        element_bytes = ITEM_BYTES[self.dtype]
        return self.communicator.post(
            self.id,
            kind,
            self.phase or kind,
            0 if kind == "barrier" else self.count * element_bytes,
            self.iteration,
            call,
            verify,
            counted,
            has_future,
            None,
            element_bytes=element_bytes,
            **details,
        )


def _all_reduce(op: Operation) -> Pending:
    x = payload.reduction_input(op.count, op.rank, op.torch_dtype)
    return op.post(
        lambda g: dist.all_reduce(x, group=g, async_op=True),
        lambda: payload.check_reduction(op.id, x, op.ranks),
    )


def _reduce(op: Operation) -> Pending:
    x = payload.reduction_input(op.count, op.rank, op.torch_dtype)

    def verify() -> None:
        if op.rank == op.root:
            payload.check_reduction(op.id, x, op.ranks)

    return op.post(
        lambda g: dist.reduce(x, dst=op.root_global, group=g, async_op=True), verify, root=op.root
    )


def _reduce_scatter(op: Operation) -> Pending:
    x = payload.reduction_input(op.count, op.rank, op.torch_dtype)
    y = torch.empty(op.shard, dtype=op.torch_dtype)
    return op.post(
        lambda g: dist.reduce_scatter_tensor(y, x, group=g, async_op=True),
        lambda: payload.check_reduction(op.id, y, op.ranks, op.shard * op.rank),
        has_future=False,
    )


def _all_gather(op: Operation) -> Pending:
    x = payload.blocks(op.shard, [payload.block_code(op.rank, 0)], op.torch_dtype)
    y = torch.empty(op.count, dtype=op.torch_dtype)
    return op.post(
        lambda g: dist.all_gather_into_tensor(y, x, group=g, async_op=True),
        lambda: payload.check_blocks(op.id, y, payload.codes_to(0, op.ranks)),
    )


def _all_to_all(op: Operation) -> Pending:
    x = payload.blocks(op.shard, payload.codes_from(op.rank, op.ranks), op.torch_dtype)
    y = torch.empty(op.count, dtype=op.torch_dtype)
    return op.post(
        lambda g: dist.all_to_all_single(y, x, group=g, async_op=True),
        lambda: payload.check_blocks(op.id, y, payload.codes_to(op.rank, op.ranks)),
    )


def _broadcast(op: Operation) -> Pending:
    codes = [payload.block_code(op.root, 0)]
    if op.rank == op.root:
        x = payload.blocks(op.count, codes, op.torch_dtype)
    else:
        x = torch.empty(op.count, dtype=op.torch_dtype)
    return op.post(
        lambda g: dist.broadcast(x, src=op.root_global, group=g, async_op=True),
        lambda: payload.check_blocks(op.id, x, codes),
        root=op.root,
    )


def _gather(op: Operation) -> Pending:
    x = payload.blocks(op.shard, [payload.block_code(op.rank, 0)], op.torch_dtype)
    y = [torch.empty_like(x) for _ in range(op.ranks)] if op.rank == op.root else None

    def verify() -> None:
        for source, part in enumerate(y or []):
            payload.check_blocks(op.id, part, [payload.block_code(source, 0)])

    return op.post(
        lambda g: dist.gather(x, y, dst=op.root_global, group=g, async_op=True),
        verify,
        root=op.root,
    )


def _scatter(op: Operation) -> Pending:
    x = None
    if op.rank == op.root:
        codes = payload.codes_from(op.root, op.ranks)
        x = list(payload.blocks(op.shard, codes, op.torch_dtype).split(op.shard))
    y = torch.empty(op.shard, dtype=op.torch_dtype)
    return op.post(
        lambda g: dist.scatter(y, x, src=op.root_global, group=g, async_op=True),
        lambda: payload.check_blocks(op.id, y, [payload.block_code(op.root, op.rank)]),
        root=op.root,
    )


def _barrier(op: Operation) -> Pending:
    return op.post(lambda g: dist.barrier(group=g, async_op=True), None)


class _Together:
    """Several point-to-point works that complete together."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _exchange(op: Operation, to: list[int], sources: list[int], **details: object) -> Pending:
    """Messages of the whole size to and from other ranks of the group, all at once."""
    received = [torch.empty(op.count, dtype=op.torch_dtype) for _ in sources]
    sent = [payload.blocks(op.count, [payload.block_code(op.rank, d)], op.torch_dtype) for d in to]
    peer = op.communicator.global_rank

    def call(group: Group) -> _Together:
        receives = [
            dist.irecv(y, src=peer(s), group=group) for y, s in zip(received, sources, strict=True)
        ]
        sends = [dist.isend(x, dst=peer(d), group=group) for x, d in zip(sent, to, strict=True)]
        return _Together([*receives, *sends])

    def verify() -> None:
        for y, source in zip(received, sources, strict=True):
            payload.check_blocks(op.id, y, [payload.block_code(source, op.rank)])

    return op.post(call, verify, counted=False, has_future=False, **details)


def _send_recv(op: Operation) -> Pending:
    assert isinstance(op.spec, SendRecv)
    root, peer = op.root, op.spec.peer
    return _exchange(
        op,
        [peer] if op.rank == root else [],
        [root] if op.rank == peer else [],
        root=root,
        peer=peer,
    )


def _permutation(op: Operation) -> Pending:
    assert isinstance(op.spec, Permutation)
    if op.spec.shift is None:
        to = derangement(op.ranks, op.seed)
    else:
        to = tuple((rank + op.spec.shift) % op.ranks for rank in range(op.ranks))
    return _exchange(op, [to[op.rank]], [to.index(op.rank)], shift=op.spec.shift)


def _incast(op: Operation) -> Pending:
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


_KINDS: dict[str, Callable[[Operation], Pending]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "gather": _gather,
    "scatter": _scatter,
    "barrier": _barrier,
    "send_recv": _send_recv,
    "permutation": _permutation,
    "incast": _incast,
}
