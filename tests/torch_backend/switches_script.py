"""Groups that ask for trees, and calls that their switches do, or leave to hosts."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def mine(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(count) + 10 * rank + 1).to(dtype)


def everyones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.stack([(torch.arange(count) + 10 * of + 1).to(dtype) for of in range(ranks)])


for op, expected in (
    (dist.ReduceOp.SUM, everyones(600).sum(0)),
    (dist.ReduceOp.MAX, everyones(600).amax(0)),
):
    x = mine(600)
    dist.all_reduce(x, op)
    assert torch.equal(x, expected), (op, x, expected)
x = torch.full((20,), 2.0)
dist.all_reduce(x, dist.ReduceOp.PRODUCT)  # no switch multiplies
assert torch.equal(x, torch.full((20,), 2.0**ranks))
x = mine(20, torch.float64)  # nor do these add such numbers
dist.all_reduce(x)
assert torch.equal(x, everyones(20, torch.float64).sum(0))
x = mine(20)
dist.broadcast(x, 2)
assert torch.equal(x, everyones(20)[2])
x = mine(20)
dist.reduce(x, 1)
if rank == 1:
    assert torch.equal(x, everyones(20).sum(0))
dist.barrier()

first = dist.new_group([0, 1])
if rank < 2:
    x = torch.ones(10)
    dist.all_reduce(x, group=first)
    assert torch.equal(x, torch.full((10,), 2.0))
second = dist.new_group([2, 3])  # for which there are no slots left
if rank >= 2:
    x = torch.ones(10)
    dist.all_reduce(x, group=second)
    assert torch.equal(x, torch.full((10,), 2.0))
dist.barrier()
if rank < 2:
    dist.destroy_process_group(first)  # gives its slots back
dist.barrier()
third = dist.new_group([1, 2, 3])
if rank:
    x = torch.ones(10)
    dist.all_reduce(x, group=third)
    assert torch.equal(x, torch.full((10,), 3.0))
print("right", flush=True)  # and ends without destroying its groups
