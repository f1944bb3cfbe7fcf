"""Draws calls of torch.distributed and makes them: of every kind, size and group, blocking or not.

Ranks draw the same calls. Each begins at a multiple of 10 ms, checks its values, and is written to
`calls-RANK.json` with what the rank itself knows of it: kind, ranks, bytes, and by its own
clock when it was posted and when it was over. `python foreign_calls.py SEED CALLS`.
"""

import json
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

warnings.filterwarnings("ignore")
draw = random.Random(int(sys.argv[1]))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
everybody = list(range(world))
groups: list[tuple[list[int], Any]] = [(everybody, dist.group.WORLD)]
for members in ([0, 1], [2, 3], [0, 2, 3]):
    groups.append((members, dist.new_group(members)))
known: list[dict[str, Any]] = []
Call = Callable[[], Any]


def at_once() -> None:
    time.sleep(0.01 - time.monotonic() % 0.01)


def note(kind: str, members: list[int], size_bytes: int, **more: Any) -> None:
    known.append({"kind": kind, "members": members, "size_bytes": size_bytes} | more)


def done(kind: str, members: list[int], size_bytes: int, call: Call, way: str) -> Any:
    """Makes a call and notes it. `late` sleeps before it waits, `never` does not wait, `skewed`
    has ranks come one after another."""
    if way == "skewed":
        time.sleep(0.0005 * members.index(rank))
    posted_ns = time.monotonic_ns()
    work = call()
    if way == "late":
        time.sleep(0.004)
        work.wait()
    elif way == "async":
        work.wait()
    over_ns = time.monotonic_ns()
    if way == "never":
        time.sleep(0.005)
        keep.append(work)
    note(kind, members, size_bytes, way=way, posted_ns=posted_ns, over_ns=over_ns)
    return work


keep: list[Any] = []
TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bfloat16)
KINDS = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into", "reduce_scatter",
    "reduce_scatter_list", "gather", "scatter", "all_to_all", "all_to_all_uneven", "barrier",
    "functional_all_reduce", "functional_all_gather", "functional_reduce_scatter", "send",
    "isend", "ring", "objects_broadcast", "objects_gathered", "sparse", "coalesced",
)  # fmt: skip


def one(name: str) -> None:
    members, group = draw.choice(groups)
    n, root = len(members), draw.choice(members)
    dtype, count = draw.choice(TYPES), draw.choice((1, 17, 1000, 4096, 30_000, 150_000))
    asynchronous = draw.random() < 0.4
    way = draw.choice(("async", "late", "never")) if asynchronous else "blocking"
    if way == "blocking" and draw.random() < 0.25:
        way = "skewed"
    small = 1 + count // n
    tag = draw.randrange(5)
    if rank not in members:
        return
    here = members.index(rank)
    each = torch.empty(0, dtype=dtype).element_size()
    options: dict[str, Any] = {"group": group, "async_op": asynchronous}
    mine = torch.full((count,), here + 1, dtype=dtype)
    part = torch.full((small,), here + 1, dtype=dtype)
    whole = torch.full((small * n,), here + 1, dtype=dtype)
    total = n * (n + 1) // 2
    values = torch.arange(1, n + 1).repeat_interleave(small).to(dtype)
    waits = way != "never"
    if name == "all_reduce":
        done(name, members, count * each, lambda: dist.all_reduce(mine, **options), way)
        assert not waits or bool((mine == total).all())
    elif name == "broadcast":
        at = members.index(root)
        call = lambda: dist.broadcast(mine, root, **options)  # noqa: E731
        done(name, members, count * each, call, way)
        assert not waits or bool((mine == at + 1).all())
    elif name == "reduce":
        done(name, members, count * each, lambda: dist.reduce(mine, root, **options), way)
        assert not waits or rank != root or bool((mine == total).all())
    elif name == "all_gather":
        parts = [torch.empty_like(part) for _ in members]
        call = lambda: dist.all_gather(parts, part, **options)  # noqa: E731
        done(name, members, small * n * each, call, way)
        assert not waits or torch.equal(torch.cat(parts), values)
    elif name == "all_gather_into":
        got = torch.empty_like(whole)
        call = lambda: dist.all_gather_into_tensor(got, part, **options)  # noqa: E731
        done("all_gather", members, small * n * each, call, way)
        assert not waits or torch.equal(got, values)
    elif name == "reduce_scatter":
        call = lambda: dist.reduce_scatter_tensor(part, whole, **options)  # noqa: E731
        done(name, members, small * n * each, call, way)
        assert not waits or bool((part == total).all())
    elif name == "reduce_scatter_list":
        call = lambda: dist.reduce_scatter(part, list(whole.chunk(n)), **options)  # noqa: E731
        done("reduce_scatter", members, small * n * each, call, way)
        assert not waits or bool((part == total).all())
    elif name == "gather":
        parts = [torch.empty_like(part) for _ in members] if rank == root else []
        call = lambda: dist.gather(part, parts or None, root, **options)  # noqa: E731
        done(name, members, small * n * each, call, way)
        assert not waits or not parts or torch.equal(torch.cat(parts), values)
    elif name == "scatter":
        source = list(values.chunk(n)) if rank == root else None
        got = torch.empty_like(part)
        call = lambda: dist.scatter(got, source, root, **options)  # noqa: E731
        done(name, members, small * n * each, call, way)
        assert not waits or bool((got == here + 1).all())
    elif name == "all_to_all":
        got = torch.empty_like(whole)
        call = lambda: dist.all_to_all_single(got, whole, **options)  # noqa: E731
        done(name, members, small * n * each, call, way)
        assert not waits or torch.equal(got, values)
    elif name == "all_to_all_uneven":
        ins = [small * (here + 1)] * n
        outs = [small * (other + 1) for other in range(n)]
        source, got = torch.ones(sum(ins), dtype=dtype), torch.empty(sum(outs), dtype=dtype)
        call = lambda: dist.all_to_all_single(got, source, outs, ins, **options)  # noqa: E731
        done("all_to_all", members, small * n * n * each, call, way)
        assert not waits or bool((got == 1).all())
    elif name == "barrier":
        done(name, members, 0, lambda: dist.barrier(**options), way)
    elif name == "functional_all_reduce":
        call = lambda: functional.all_reduce(mine, "sum", group) + 0  # noqa: E731
        got = done("all_reduce", members, count * each, call, "blocking")
        assert bool((got == total).all())
    elif name == "functional_all_gather":
        call = lambda: functional.all_gather_tensor(part, 0, group) + 0  # noqa: E731
        got = done("all_gather", members, small * n * each, call, "blocking")
        assert torch.equal(got, values)
    elif name == "functional_reduce_scatter":
        call = lambda: functional.reduce_scatter_tensor(whole, "sum", 0, group) + 0  # noqa: E731
        got = done("reduce_scatter", members, small * n * each, call, "blocking")
        assert bool((got == total).all())
    elif name in ("send", "isend"):
        send, receive = (dist.send, dist.recv) if name == "send" else (dist.isend, dist.irecv)
        to = members[1] if root == members[0] else members[0]
        if rank in (root, to):
            posted_ns = time.monotonic_ns()
            work: Any = (
                send(mine, to, tag=tag, group=group)
                if rank == root
                else receive(mine, root, tag=tag, group=group)
            )
            if name == "isend":
                time.sleep(0.003 * (way == "late"))
                work.wait()
            assert rank == root or bool((mine == members.index(root) + 1).all())
            shown = "late" if name == "isend" and way == "late" else "blocking"
            clocks = {"posted_ns": posted_ns, "over_ns": time.monotonic_ns()}
            note("send_recv", [root, to], count * each, way=shown, **clocks)
    elif name == "ring":
        right, left = members[(here + 1) % n], members[here - 1]
        got = torch.empty_like(mine)
        posted_ns = time.monotonic_ns()
        posted = [
            dist.P2POp(dist.isend, mine, right, group), dist.P2POp(dist.irecv, got, left, group)
        ]  # fmt: skip
        for work in dist.batch_isend_irecv(posted):
            work.wait()
        assert bool((got == (here - 1) % n + 1).all())
        clocks = {"posted_ns": posted_ns, "over_ns": time.monotonic_ns()}
        note("send_recv", [left, rank], count * each, way="ring", **clocks)
        note("send_recv", [rank, right], count * each, way="ring", **clocks)
    elif name == "objects_broadcast":
        told: list[Any] = [{"of": root}] if rank == root else [None]
        dist.broadcast_object_list(told, root, group)
        assert told == [{"of": root}]
        note("broadcast", members, -1, way="objects")
        note("broadcast", members, -1, way="objects")
    elif name == "objects_gathered":
        found: list[Any] = [None] * n
        dist.all_gather_object(found, here, group)
        assert found == list(range(n))
        note("all_gather", members, -1, way="objects")
        note("all_gather", members, -1, way="objects")
    elif name == "sparse":
        sparse = torch.sparse_coo_tensor(torch.tensor([[here]]), torch.ones(1), (n,)).coalesce()
        done("all_reduce", members, 12, lambda: dist.all_reduce(sparse, group=group), "blocking")
        assert sparse.to_dense().tolist() == [1] * n
    elif name == "coalesced":
        two = [mine, part]
        size_bytes = (count + small) * each
        call = lambda: dist.all_reduce_coalesced(two, **options)  # noqa: E731
        done("all_reduce", members, size_bytes, call, way)
        assert not waits or bool((mine == total).all() and (part == total).all())
    else:
        raise AssertionError(name)


for number in range(int(sys.argv[2])):
    at_once()
    one(KINDS[number % len(KINDS)])
at_once()
Path(f"calls-{rank}.json").write_text(json.dumps(known))
print(len(known), flush=True)
dist.destroy_process_group()
