"""Layers whose gradients are reduced while others are computed, and awaited where the next step
needs them, as ByteScheduler has it. Says what an iteration takes by each order of collectives."""

import os
import time

import torch
import torch.distributed as dist

LAYERS, STEPS = 4, 4
SETTING = "{all_reduce: {algorithm: ring, chunks: 8}, in_flight: 2, order: %s}"

dist.init_process_group("gloo")
gradients = [torch.ones(1 << 18) for _ in range(LAYERS)]
for order in ("fifo", "lifo"):
    os.environ["GROUNDWIRE_COLLECTIVES"] = SETTING % order
    group = dist.new_group(backend="gloo")
    under_way: dict[int, dist.Work] = {}
    for step in range(STEPS):
        if step == 1:
            began = time.monotonic()
        for layer in range(LAYERS):  # forward
            if step:
                under_way[layer].wait()
            time.sleep(100e-6)
        for layer in reversed(range(LAYERS)):
            time.sleep(100e-6)
            under_way[layer] = dist.all_reduce(gradients[layer], group=group, async_op=True)
    for work in under_way.values():
        work.wait()
    if dist.get_rank() == 0:
        print(order, (time.monotonic() - began) / (STEPS - 1), flush=True)
dist.destroy_process_group()
