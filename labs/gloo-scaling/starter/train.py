"""Makes a training step by each way of sync.py, checks it and measures it. Nothing to change here.

python train.py LAYERS LAYER_BYTES FORWARD_US BACKWARD_US

A layer takes FORWARD_US and BACKWARD_US to compute, as a sleep, and has LAYER_BYTES of gradients.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import sync
import torch
import torch.distributed as dist

Synchronise = Callable[[Iterator[torch.Tensor]], None]


def sent_bytes() -> int:
    """Bytes that have left this host, as its kernel counts them (frames without preamble)."""
    port = os.environ["GLOO_SOCKET_IFNAME"]
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == port:
            return int(counts.split()[8])
    raise SystemExit(f"no port {port}")


def backward(gradients: list[torch.Tensor], layer_s: float) -> Iterator[torch.Tensor]:
    """Compute a layer, and hand out its gradient: the last layer first."""
    for gradient in reversed(gradients):
        time.sleep(layer_s)
        yield gradient


def measured(way: Synchronise, layers: int, numbers: int, us: list[int]) -> tuple[int, int, int]:
    """Nanoseconds, bytes sent by a host, and wrong numbers: the largest of all ranks."""
    n, rank = dist.get_world_size(), dist.get_rank()
    gradients = [torch.full((numbers,), float(rank + layer)) for layer in range(layers)]
    dist.barrier()
    sent, before = sent_bytes(), time.monotonic_ns()
    time.sleep(layers * us[0] / 1e6)
    way(backward(gradients, us[1] / 1e6))
    took = time.monotonic_ns() - before
    dist.barrier()  # what a rank has handed to its kernel has left by then
    sent = sent_bytes() - sent
    wrong = sum(int((g != layer + (n - 1) / 2).sum()) for layer, g in enumerate(gradients))
    results = torch.tensor([took, sent, wrong])
    dist.all_reduce(results, dist.ReduceOp.MAX)
    return int(results[0]), int(results[1]), int(results[2])


def main() -> None:
    layers, layer_bytes, *us = map(int, sys.argv[1:5])
    dist.init_process_group("gloo")
    ways = {"gather": sync.gather_scatter, "reduce": sync.all_reduce, "overlap": sync.overlapped}
    for way in ways.values():
        measured(way, 1, 1024, us)  # connections are there by now
    for name, way in ways.items():
        took_ns, sent, wrong = measured(way, layers, layer_bytes // 4, us)
        if dist.get_rank() == 0:
            print(f"{name}_ns {took_ns}\n{name}_bytes {sent}\n{name}_wrong {wrong}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
