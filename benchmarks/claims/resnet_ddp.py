"""Trains ResNet-50 (He et al., CVPR 2016) with a quarter of its channels by DDP: a script that
knows nothing of switches. Its 1.6 million parameters are a sixteenth of ResNet-50's; the argument
is the size of DDP's buckets in bytes."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STAGES, CHANNELS, CLASSES, STEPS = (3, 4, 6, 3), 16, 250, 2


def convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
    padding = size // 2
    return nn.Sequential(
        nn.Conv2d(before, after, size, stride, padding, bias=False), nn.BatchNorm2d(after)
    )


class Bottleneck(nn.Module):  # type: ignore[misc]
    def __init__(self, before: int, inner: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            convolution(before, inner, 1),
            nn.ReLU(),
            convolution(inner, inner, 3, stride),
            nn.ReLU(),
            convolution(inner, 4 * inner, 1),
        )
        same = before == 4 * inner and stride == 1
        self.beside = nn.Identity() if same else convolution(before, 4 * inner, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.way(x) + self.beside(x))


def resnet() -> nn.Sequential:
    blocks: list[nn.Module] = [convolution(3, CHANNELS, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = CHANNELS
    for stage, count in enumerate(STAGES):
        inner = CHANNELS << stage
        for block in range(count):
            blocks.append(Bottleneck(before, inner, 2 if stage and not block else 1))
            before = 4 * inner
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


dist.init_process_group("gloo")
torch.manual_seed(1)
net = resnet()
bucket_mb = int(sys.argv[1]) / 2**20
model = DistributedDataParallel(net, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
images, labels = torch.randn(2, 3, 64, 64), torch.randint(CLASSES, (2,))
for _ in range(STEPS):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
print(sum(p.numel() for p in net.parameters()), "parameters", flush=True)
dist.destroy_process_group()
