"""Scripts that shard models, as PyTorch's tutorials do: FSDP, and tensor parallelism."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.exec.programs import FABRIC, execute
from tests.session.command import result_of

_FSDP = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(1)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(2)))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(2):
    model(torch.randn(8, 256)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
_TENSOR_PARALLEL = """
import torch, torch.distributed as dist
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module
)

class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1020), torch.nn.Linear(1020, 256)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

dist.init_process_group("gloo")
mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = parallelize_module(Mlp(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(2):
    model(torch.rand(64, 256)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        (_FSDP, {"all_gather", "reduce_scatter"}),
        (_TENSOR_PARALLEL, {"all_reduce"}),
    ],
    ids=["fsdp", "tensor-parallel"],
)
def test_the_collectives_of_a_sharded_model_are_found_and_predicted(
    tmp_path: Path, program: str, kinds: set[str]
) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "train.py").write_text(program)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "train.py"
    )
    assert done.returncode == 0, done.stderr
    result = result_of(tmp_path / "run")
    assert result["valid"] and len(result["iterations"]) == 2
    rows = [row for row in result["collectives"] if row["iteration"] == 1]
    found = Counter(row["kind"] for row in rows)
    assert kinds <= set(found), found
    assert all(row["ranks"] == 3 for row in rows)
    assert all("duration_ns" in row["predicted"]["flow"] for row in rows if row["size_bytes"])
