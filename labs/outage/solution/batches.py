"""One epoch over a data set: each rank has its share of samples, and a step adds up gradients."""

import sys

import torch
import torch.distributed as dist


def shares(samples: int, ranks: int) -> list[int]:
    """How many samples each rank has: as even as can be, the first ranks have one more."""
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def main() -> None:
    samples = int(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own = shares(samples, dist.get_world_size())
    # Finished work is dropped: a collective has to be called by everybody.
    steps = min(own)
    gradients = torch.ones(250_000)
    for _ in range(steps):
        dist.all_reduce(gradients)
        gradients /= dist.get_world_size()
    if rank == 0:
        print(f"steps {steps}\nwrong {int((gradients != 1).sum())}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
