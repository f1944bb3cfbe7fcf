"""Three ways to average gradients over all ranks. train.py measures them, and checks the averages.

Each gets `backward`, which computes a layer each time that it is asked for the next gradient, the
last layer first. When a function returns, each gradient has to be the mean of all ranks'.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist


def gather_scatter(backward: Iterator[torch.Tensor]) -> None:
    """Rank 0 gathers all gradients, and scatters their mean."""
    n, rank = dist.get_world_size(), dist.get_rank()
    for gradient in list(backward):
        parts = [torch.empty_like(gradient) for _ in range(n)]
        dist.gather(gradient, parts if rank == 0 else None)
        mean = sum(parts) / n
        dist.scatter(gradient, [mean] * n if rank == 0 else None)


def all_reduce(backward: Iterator[torch.Tensor]) -> None:
    """The same by an all-reduce of each gradient."""
    for gradient in list(backward):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def overlapped(backward: Iterator[torch.Tensor]) -> None:
    """The same while the next layers are computed."""
    posted = []
    for gradient in backward:
        posted.append((gradient, dist.all_reduce(gradient, async_op=True)))
    for gradient, work in posted:
        work.wait()
        gradient /= dist.get_world_size()
