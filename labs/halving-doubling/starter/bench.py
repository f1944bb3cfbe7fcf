"""Checks and measures both all-reduces at two sizes. Nothing to change here.

python bench.py SMALL_BYTES LARGE_BYTES
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import reduces
import torch
import torch.distributed as dist

AllReduce = Callable[[torch.Tensor], None]


def sent_bytes() -> int:
    """Bytes that have left this host, as its kernel counts them (frames without preamble)."""
    port = os.environ["GLOO_SOCKET_IFNAME"]
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == port:
            return int(counts.split()[8])
    raise SystemExit(f"no port {port}")


def measured(all_reduce: AllReduce, numbers: int) -> tuple[int, int, int]:
    """Nanoseconds, bytes sent by a host, and wrong numbers: the largest of all ranks."""
    n, rank = dist.get_world_size(), dist.get_rank()
    data = torch.arange(numbers, dtype=torch.float32) % 251 + rank
    right = (torch.arange(numbers, dtype=torch.float32) % 251) * n + n * (n - 1) / 2
    dist.barrier()
    sent, before = sent_bytes(), time.monotonic_ns()
    all_reduce(data)
    took = time.monotonic_ns() - before
    dist.barrier()  # what a rank has handed to its kernel has left by then
    sent = sent_bytes() - sent
    results = torch.tensor([took, sent, int((data != right).sum())])
    dist.all_reduce(results, dist.ReduceOp.MAX)
    return int(results[0]), int(results[1]), int(results[2])


def main() -> None:
    small, large = (int(word) // 4 for word in sys.argv[1:3])
    dist.init_process_group("gloo")
    functions = {"ring": reduces.ring, "hd": reduces.halving_doubling}
    for function in functions.values():
        function(torch.ones(16 * dist.get_world_size()))  # connections are there by now
    wrong = dict.fromkeys(functions, 0)
    for size, numbers in (("small", small), ("large", large)):
        for name, function in functions.items():
            took_ns, sent, bad = measured(function, numbers)
            wrong[name] += bad
            if dist.get_rank() == 0:
                print(f"{name}_{size}_ns {took_ns}\n{name}_{size}_bytes {sent}", flush=True)
    if dist.get_rank() == 0:
        print(f"ring_wrong {wrong['ring']}\nhd_wrong {wrong['hd']}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
