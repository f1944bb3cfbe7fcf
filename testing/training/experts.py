"""A mixture of experts, one or more for each rank: a router sends each word to two of them, by an
all-to-all whose parts are as uneven as the routing: torchrun experts.py [EXPERTS_FOR_EACH_RANK]"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_to_all_single

WIDTH, LAYERS, LENGTH, BATCH, CHOICES, STEPS = 512, 2, 256, 8, 2, 3


class Experts(nn.Module):
    def __init__(self, group: dist.ProcessGroup, each: int) -> None:
        super().__init__()
        self._group, self._ranks, self._each = group, dist.get_world_size(group), each
        self.router = nn.Linear(WIDTH, each * self._ranks, bias=False)
        self.own = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(each)
        )

    def forward(self, x: Tensor) -> Tensor:
        words = x.flatten(0, -2)
        weights, chosen = self.router(words).softmax(-1).topk(CHOICES)
        order = chosen.flatten().argsort(stable=True)
        sent = words[order // CHOICES]
        counts = torch.bincount(chosen.flatten(), minlength=self._each * self._ranks)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self._group)
        to = counts.view(self._ranks, -1).sum(1).tolist()
        from_ = coming.view(self._ranks, -1).sum(1).tolist()
        got = all_to_all_single(sent.new_empty(sum(from_), WIDTH), sent, from_, to, self._group)
        # Words come sorted by sender, and within it by expert.
        expert = torch.arange(self._each, device=x.device).repeat(self._ranks)
        expert = expert.repeat_interleave(coming)
        by_expert = expert.argsort(stable=True)
        parts = got[by_expert].split(coming.view(self._ranks, -1).sum(0).tolist())
        done = torch.cat([net(part) for net, part in zip(self.own, parts, strict=True)])
        back = done.new_empty(done.shape).index_copy(0, by_expert, done)
        home = all_to_all_single(sent.new_empty(sent.shape), back, to, from_, self._group)
        result = torch.zeros_like(words)
        result = result.index_add(0, order // CHOICES, home * weights.flatten()[order, None])
        return x + result.view_as(x)


def main() -> None:
    each = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("ep",))
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(
        *(layer for _ in range(LAYERS)
          for layer in (nn.LayerNorm(WIDTH), Experts(mesh.get_group(), each)))
    ).cuda()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(STEPS):
        x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")
        loss = F.mse_loss(model(x), torch.zeros_like(x))
        loss.backward()
        for module in model:
            shared = module if isinstance(module, nn.LayerNorm) else module.router
            for parameter in shared.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"experts: peak {torch.cuda.max_memory_allocated() >> 20} MiB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
