"""An ordinary DDP script: it knows the backend's name from its command line and nothing else."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(sys.argv[1])
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
model = DistributedDataParallel(model, bucket_cap_mb=0.005)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
samples = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
mine = samples.chunk(ranks)[rank]
for _ in range(3):
    optimizer.zero_grad()
    loss = ((model(mine) - mine.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
total = sum(parameter.double().abs().sum().item() for parameter in model.parameters())
print("parameters", rank, total, flush=True)
dist.barrier()
dist.destroy_process_group()
