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
    """Replace `data` by the sum of all ranks' arrays.

    The code below is right, and sends too much: recursive doubling, in which each rank swaps whole
    arrays with a partner, log2(n) times.

    TODO: make it recursive halving and doubling, which sends 2(n-1) n-ths of an array.
      1. halving, distance n/2, n/4, .. 1: the partner is rank ^ distance. Keep one half of the
         part that you still have (all of it, at first), and send the other: the lower rank of a
         pair keeps the lower half. Add what comes to yours.
      2. doubling, distance 1, 2, .. n/2: swap what you have with the partner, so that both have
         twice as much. It is the way back.
    """
    n, rank = dist.get_world_size(), dist.get_rank()
    received = torch.empty_like(data)
    distance = 1
    while distance < n:
        partner = rank ^ distance
        exchange(data.clone(), partner, received, partner)
        data += received
        distance *= 2
