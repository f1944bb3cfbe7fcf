"""Trains, and writes a checkpoint now and then. All ranks may be killed, and started again.

    python train.py STEPS STEP_MS CHECKPOINT_MS EVERY

A step computes for STEP_MS and adds up gradients; after EVERY steps a checkpoint is written, which
takes CHECKPOINT_MS. Nothing to change here.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

CHECKPOINT = Path("checkpoint.json")


def main() -> None:
    steps, step_ms, checkpoint_ms, every = map(int, sys.argv[1:5])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = {"step": 0, "made": 0, "began_ns": time.monotonic_ns()}
    if CHECKPOINT.exists():
        state = json.loads(CHECKPOINT.read_text())
    dist.barrier()  # all have read it
    made = Path("made")  # steps that rank 0 has made in all its lives
    gradients = torch.ones(250_000)
    while state["step"] < steps:
        time.sleep(step_ms / 1000)
        dist.all_reduce(gradients)
        gradients /= dist.get_world_size()
        state["step"] += 1
        if rank == 0:
            made.write_text(str(int(made.read_text() if made.exists() else 0) + 1))
            if not CHECKPOINT.exists():
                CHECKPOINT.write_text(json.dumps(state | {"step": 0}))
        if state["step"] % every == 0 and state["step"] < steps:
            time.sleep(checkpoint_ms / 1000)
            if rank == 0:
                CHECKPOINT.write_text(json.dumps(state))
            dist.barrier()
    if rank == 0:
        took_ns = time.monotonic_ns() - state["began_ns"]
        print(f"took_ns {took_ns}\nmade {made.read_text()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
