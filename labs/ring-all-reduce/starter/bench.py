"""Checks and measures ring.all_reduce, and Gloo's own beside it. Nothing to change here."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ring
import torch
import torch.distributed as dist


def sent_bytes() -> int:
    """Bytes that have left this host, as its kernel counts them (frames without preamble)."""
    port = os.environ["GLOO_SOCKET_IFNAME"]
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == port:
            return int(counts.split()[8])
    raise SystemExit(f"no port {port}")


def measured(all_reduce: Callable[[torch.Tensor], None], numbers: int) -> tuple[int, int, int]:
    """Nanoseconds, bytes sent by this host, and wrong numbers on all ranks."""
    n, rank = dist.get_world_size(), dist.get_rank()
    data = torch.arange(numbers, dtype=torch.float32) % 997 + rank
    right = (torch.arange(numbers, dtype=torch.float32) % 997) * n + n * (n - 1) / 2
    dist.barrier()
    sent, before = sent_bytes(), time.monotonic_ns()
    all_reduce(data)
    took = time.monotonic_ns() - before
    dist.barrier()  # what a rank has handed to its kernel has left by then
    sent = sent_bytes() - sent
    results = torch.tensor([took, 0, int((data != right).sum())])
    dist.all_reduce(results, dist.ReduceOp.MAX)  # the last rank's time counts
    return int(results[0]), sent, int(results[2])


def main() -> None:
    dist.init_process_group("gloo")
    numbers = int(sys.argv[1]) // 4
    dist.all_reduce(torch.zeros(1))  # connections are there by now
    for name, function in (("ring", ring.all_reduce), ("gloo", dist.all_reduce)):
        took_ns, sent, wrong = measured(function, numbers)
        if dist.get_rank() == 0:
            print(f"{name}_ns {took_ns}\n{name}_bytes {sent}\n{name}_wrong {wrong}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
