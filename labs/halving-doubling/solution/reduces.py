"""Two all-reduces of n ranks, n a power of two. bench.py checks their sums and measures both."""

import torch
import torch.distributed as dist


def exchange(sent: torch.Tensor, to: int, received: torch.Tensor, of: int) -> None:
    """Send to one rank and receive of another at the same time."""
    sending = dist.isend(sent, to)
    dist.recv(received, of)
    sending.wait()


def ring(data: torch.Tensor) -> None:
    """Replace `data` by the sum of all ranks' arrays: 2(n-1) steps round a ring, a chunk each."""
    n, rank = dist.get_world_size(), dist.get_rank()
    following, previous = (rank + 1) % n, (rank - 1) % n
    chunks = data.chunk(n)
    received = torch.empty_like(chunks[0])
    for step in range(n - 1):
        exchange(chunks[(rank - step) % n], following, received, previous)
        chunks[(rank - step - 1) % n].add_(received)
    for step in range(n - 1):
        exchange(chunks[(rank + 1 - step) % n], following, received, previous)
        chunks[(rank - step) % n].copy_(received)


def halving_doubling(data: torch.Tensor) -> None:
    """Replace `data` by the sum of all ranks' arrays: 2 log2(n) steps, of halves, quarters, ..."""
    n, rank = dist.get_world_size(), dist.get_rank()
    low, high = 0, data.numel()
    parts = []
    distance = n // 2
    while distance:
        partner, middle = rank ^ distance, (low + high) // 2
        kept, given = ((low, middle), (middle, high))[:: 1 if rank < partner else -1]
        received = torch.empty(kept[1] - kept[0])
        exchange(data[given[0] : given[1]], partner, received, partner)
        data[kept[0] : kept[1]] += received
        parts.append((partner, kept, given))
        low, high = kept
        distance //= 2
    for partner, kept, given in reversed(parts):
        received = torch.empty(given[1] - given[0])
        exchange(data[kept[0] : kept[1]], partner, received, partner)
        data[given[0] : given[1]] = received
