"""A small GPT by torch's own ways to train on several GPUs: torchrun torch_parallel.py WAY

WAY is ddp, fsdp1, fsdp2, tp (tensor parallel), sp (tensor and sequence parallel), cp (context
parallel) or pp (a pipeline of a stage for each rank).
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

WORDS, WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS = 2048, 512, 8, 4, 256, 8, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention_norm(x)
        heads = [each(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                 for each in (self.q, self.k, self.v)]  # fmt: skip
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Gpt(nn.Module):
    """All of it, or with `stage` of `stages` a part for a pipeline."""

    def __init__(self, stage: int = 0, stages: int = 1) -> None:
        super().__init__()
        first, last = stage == 0, stage == stages - 1
        self.embedding = nn.Embedding(WORDS, WIDTH) if first else None
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS // stages))
        self.norm = nn.LayerNorm(WIDTH) if last else None
        self.head = nn.Linear(WIDTH, WORDS, bias=False) if last else None

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def loss_of(logits: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), words.flatten())


def parallel(model: Gpt, way: str, mesh: DeviceMesh) -> nn.Module:
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    if way == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
            device_id=torch.cuda.current_device(),
            use_orig_params=True,
        )
    if way in ("fsdp2", "cp"):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        return fully_shard(model, mesh=mesh, mp_policy=policy)
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    plan: dict[str, Any] = {each: ColwiseParallel() for each in ("q", "k", "v", "up")}
    plan |= {each: RowwiseParallel() for each in ("out", "down")}
    if way == "sp":
        plan |= {each: RowwiseParallel(output_layouts=Shard(1)) for each in ("out", "down")}
        plan |= {each: SequenceParallel() for each in ("attention_norm", "norm")}
        for each in ("q", "k", "v", "up"):
            plan[each] = ColwiseParallel(input_layouts=Shard(1))
        parallelize_module(
            model,
            mesh,
            {
                "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                "norm": SequenceParallel(),
                "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
            },
        )
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def train(way: str, mesh: DeviceMesh, data: list[Tensor]) -> None:
    model = Gpt().cuda()
    net = parallel(model, way, mesh)
    # With tp alone, norms are whole tensors beside sharded ones: torch takes them one by one.
    mixed = way == "tp"
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, foreach=not mixed)
    for words in data:
        inputs, targets = words[:, :-1].contiguous(), words[:, 1:].contiguous()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=way in ("ddp", "tp", "sp")):
            if way == "cp":
                from torch.distributed.tensor.experimental import context_parallel

                with context_parallel(mesh, buffers=[inputs, targets], buffer_seq_dims=[1, 1]):
                    loss = loss_of(net(inputs), targets)
                    loss.backward()
            else:
                loss = loss_of(net(inputs), targets)
        if way != "cp":
            loss.backward()
        if not mixed:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        say(f"loss {loss.item():.4f}")


def train_pipeline(mesh: DeviceMesh, data: list[Tensor]) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = mesh.get_local_rank(), mesh.size()
    model = Gpt(rank, size).cuda().bfloat16()
    stage = PipelineStage(model, rank, size, torch.device("cuda"), group=mesh.get_group())
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for words in data:
        inputs, losses = words[:, :-1].contiguous(), []
        if rank == 0:
            schedule.step(inputs)
        elif rank == size - 1:
            schedule.step(target=words[:, 1:].contiguous(), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        if losses:
            print(f"loss {sum(each.item() for each in losses) / len(losses):.4f}", flush=True)


def say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


def main() -> None:
    way = sys.argv[1]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    size, rank = dist.get_world_size(), dist.get_rank()
    name = {"ddp": "dp", "fsdp1": "dp", "fsdp2": "dp", "sp": "tp"}.get(way, way)
    mesh = init_device_mesh("cuda", (size,), mesh_dim_names=(name,))
    torch.manual_seed(0)
    splits = name == "dp"  # each rank has words of its own
    draws = torch.Generator().manual_seed(rank if splits else 0)
    data = [torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=draws).cuda()
            for _ in range(STEPS)]  # fmt: skip
    if way == "pp":
        train_pipeline(mesh, data)
    else:
        train(way, mesh, data)
    say(f"{way}: peak {torch.cuda.max_memory_allocated() >> 20} MiB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
