"""A layer whose norm is a kernel of Triton, as its users write it: torchrun triton_kernel.py"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor, nn

WORDS, WIDTH, LENGTH, BATCH, STEPS = 2048, 1024, 512, 4, 3


@triton.jit
def rms_norm(x_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / width + 1e-5)
    weight = tl.load(weight_ptr + columns, mask=mask)
    tl.store(out_ptr + row * width + columns, x * scale * weight, mask=mask)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(context, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        out = torch.empty_like(x)
        rows = x.numel() // x.shape[-1]
        rms_norm[(rows,)](x, weight, out, x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
        return out

    @staticmethod
    def backward(context, grad: Tensor):
        x, weight = context.saved_tensors
        return grad * weight, (grad * x).flatten(0, -2).sum(0)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(Norm.apply(x, self.weight))))


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), Layer(), Layer(), nn.Linear(WIDTH, WORDS))
    net = nn.parallel.DistributedDataParallel(model.cuda())
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for _ in range(STEPS):
        words = torch.randint(0, WORDS, (BATCH, LENGTH)).cuda()
        loss = nn.functional.cross_entropy(net(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
