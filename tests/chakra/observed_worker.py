"""A rank that trains a small model once under Gloo, watched by ExecutionTraceObserver."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver


def main(rank: int, world: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    observer = ExecutionTraceObserver()
    observer.register_callback(str(folder / f"observed.{rank}.json"))
    observer.start()
    model(torch.randn(3, 8)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    gathered = [torch.zeros(6) for _ in range(world)]
    dist.all_gather(gathered, torch.ones(6))
    dist.all_to_all_single(torch.zeros(8), torch.ones(8))
    dist.broadcast(torch.ones(5), src=1)
    if rank == 0:
        dist.send(torch.ones(7), dst=1, tag=3)
    else:
        dist.recv(torch.zeros(7), src=0, tag=3)
    pending = torch.ones(1000)
    work = dist.all_reduce(pending, async_op=True)
    torch.ones(4).mul_(2)
    work.wait()
    pending.add_(1)
    dist.barrier()
    observer.stop()
    observer.unregister_callback()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
