"""Your all-reduce. bench.py checks its sums and measures its time and its bytes."""

import torch
import torch.distributed as dist


def all_reduce(data: torch.Tensor) -> None:
    """Replace `data` (one dimension, a multiple of n long) by the sum of all n ranks' arrays."""
    n, rank = dist.get_world_size(), dist.get_rank()
    following, previous = (rank + 1) % n, (rank - 1) % n
    chunks = data.chunk(n)
    received = torch.empty_like(chunks[0])
    for step in range(n - 1):
        sending = dist.isend(chunks[(rank - step) % n], following)
        dist.recv(received, previous)
        sending.wait()
        chunks[(rank - step - 1) % n].add_(received)
    for step in range(n - 1):
        sending = dist.isend(chunks[(rank + 1 - step) % n], following)
        dist.recv(chunks[(rank - step) % n], previous)
        sending.wait()
