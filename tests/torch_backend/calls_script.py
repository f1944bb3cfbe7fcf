"""Every call of torch.distributed that the backend can do, and some that it cannot."""

from collections.abc import Callable
from functools import reduce

import torch
import torch.distributed as dist

dist.init_process_group("groundwire")
rank, ranks = dist.get_rank(), dist.get_world_size()


def mine(of: int = rank, count: int = 6, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(count) + 10 * of + 1).to(dtype)


everyones = [mine(of) for of in range(ranks)]

for op, expected in (
    (dist.ReduceOp.SUM, torch.stack(everyones).sum(0)),
    (dist.ReduceOp.MAX, torch.stack(everyones).amax(0)),
    (dist.ReduceOp.MIN, torch.stack(everyones).amin(0)),
    (dist.ReduceOp.PRODUCT, torch.stack(everyones).prod(0)),
):
    x = mine()
    dist.all_reduce(x, op)
    assert torch.equal(x, expected), (op, x, expected)

for op, combine in (
    (dist.ReduceOp.BAND, torch.bitwise_and),
    (dist.ReduceOp.BOR, torch.bitwise_or),
    (dist.ReduceOp.BXOR, torch.bitwise_xor),
):
    x = mine(dtype=torch.int32)
    dist.all_reduce(x, op)
    assert torch.equal(x, reduce(combine, (each.int() for each in everyones))), (op, x)

x = mine(dtype=torch.int64).view(2, 3)
work = dist.all_reduce(x, async_op=True)
work.wait()
assert work.is_completed()
assert torch.equal(x.view(-1), torch.stack(everyones).sum(0).long())

for root in range(ranks):
    x = mine()
    dist.broadcast(x, root)
    assert torch.equal(x, everyones[root])
    x = mine()
    dist.reduce(x, root)
    if rank == root:
        assert torch.equal(x, torch.stack(everyones).sum(0))

parts = [torch.empty(6) for _ in range(ranks)]
dist.all_gather(parts, mine())
assert all(torch.equal(part, one) for part, one in zip(parts, everyones, strict=True))
whole = torch.empty(6 * ranks)
dist.all_gather_into_tensor(whole, mine())
assert torch.equal(whole, torch.cat(everyones))

part = torch.empty(2)
dist.reduce_scatter_tensor(part, mine(count=2 * ranks))
expected = torch.stack([mine(of, 2 * ranks) for of in range(ranks)]).sum(0).chunk(ranks)[rank]
assert torch.equal(part, expected)
dist.reduce_scatter(part, list(mine(count=2 * ranks).chunk(ranks)))
assert torch.equal(part, expected)

swapped = torch.empty(2 * ranks)
dist.all_to_all_single(swapped, mine(count=2 * ranks))
expected = torch.cat([mine(of, 2 * ranks).chunk(ranks)[rank] for of in range(ranks)])
assert torch.equal(swapped, expected)

# Gloo's own.
dist.barrier()
message = mine()
if rank == 0:
    dist.send(message, 1)
elif rank == 1:
    dist.recv(message, 0)
    assert torch.equal(message, everyones[0])
gathered = [torch.empty(6) for _ in range(ranks)] if rank == 0 else None
dist.gather(mine(), gathered)
found: list[object] = [None] * ranks
dist.all_gather_object(found, {"rank": rank})
assert found == [{"rank": of} for of in range(ranks)]

pair = dist.new_group([0, 1])
if rank < 2:
    x = mine()
    dist.all_reduce(x, group=pair)
    assert torch.equal(x, everyones[0] + everyones[1])


def refused(call: Callable[[], object], name: str) -> None:
    try:
        call()
    except RuntimeError as error:
        assert name in str(error), error
        assert "allowed" in str(error), error
    else:
        raise AssertionError(f"{name} was not refused")


refused(lambda: dist.all_reduce(mine(), dist.ReduceOp.AVG), "all_reduce with AVG: ")
refused(lambda: dist.all_to_all(parts, parts), "alltoall")
splits = [4] + [1] * (ranks - 1)
length = sum(splits)
refused(
    lambda: dist.all_to_all_single(torch.empty(length), torch.empty(length), splits, splits),
    "all_to_all_single",
)
refused(lambda: dist.all_reduce(torch.ones(4, 4).t()[1:]), "all_reduce: found a tensor")
print("calls", rank, "right", flush=True)
dist.barrier()
dist.destroy_process_group()
