"""Programs as people write them for PyTorch, unchanged: which rows they have."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.exec.programs import execute

_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 5us}}
predict: [flow]
"""
_BEGIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
"""
_EXPERTS = """
torch.manual_seed(rank)
for _ in range(2):
    tokens, expert = torch.randn(128, 64), torch.randint(0, ranks, (128,))
    sends = torch.bincount(expert, minlength=ranks)
    gets = torch.empty_like(sends)
    dist.all_to_all_single(gets, sends)
    got, back = torch.empty(int(gets.sum()), 64), torch.empty(128, 64)
    sorted_tokens = tokens[expert.argsort()]
    dist.all_to_all_single(got, sorted_tokens, gets.tolist(), sends.tolist())
    dist.all_to_all_single(back, got, sends.tolist(), gets.tolist())
    assert torch.equal(back, sorted_tokens)
"""
_RING = """
key = torch.full((8192,), float(rank))
for step in range(ranks - 1):
    new = torch.empty_like(key)
    posted = [
        dist.P2POp(dist.isend, key, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, new, (rank - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(posted):
        work.wait()
    key = new
    assert key[0] == (rank - step - 1) % ranks
"""
_TENSOR_PARALLEL = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module,
)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
model(torch.randn(4, 128)).square().mean().backward()
"""
_SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model(torch.randn(8, 256)).square().mean().backward()
optimizer.step()
"""
_PIPELINE = """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
stage = PipelineStage(torch.nn.Linear(256, 256), rank, ranks, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
x, target = torch.randn(32, 256), torch.randn(32, 256)
if rank == 0:
    schedule.step(x)
elif rank == ranks - 1:
    schedule.step(target=target)
else:
    schedule.step()
"""
_ZERO = """
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(4, 64) * (rank + 1)).square().mean().backward()
    optimizer.step()
weight = model.module[0].weight.detach().clone()
dist.all_reduce(weight)
assert torch.allclose(weight / ranks, model.module[0].weight)
"""
_POWER_SGD = """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(256, 256))
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 256)).square().mean().backward()
    optimizer.step()
"""
_JOIN = """
from torch.distributed.algorithms import Join
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
with Join([model]):
    for _ in range(2 + rank):
        optimizer.zero_grad()
        model(torch.randn(4, 64)).square().mean().backward()
        optimizer.step()
        steps += 1
assert steps == 2 + rank
"""
_DTENSOR = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("all",))
whole = torch.arange(64.0).reshape(16, 4)
divided = distribute_tensor(whole, mesh, [Shard(0)])
assert torch.equal(divided.redistribute(mesh, [Replicate()]).to_local(), whole)
columns = divided.redistribute(mesh, [Shard(1)]).to_local()
assert torch.equal(columns, whole.chunk(ranks, 1)[rank])
"""
_CHECKPOINT = """
import torch.distributed.checkpoint as checkpoint
state = {"weight": torch.full((128, 128), float(rank)) if rank else torch.ones(128, 128)}
checkpoint.save(state, checkpoint_id="saved")
state["weight"].zero_()
checkpoint.load(state, checkpoint_id="saved")
assert state["weight"].sum() != 0
"""
_COMPILED = """
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
"""
_PROGRAMS: dict[str, tuple[str, dict[str, int], set[str]]] = {
    "experts": (_EXPERTS, {"all_to_all": 6}, set()),
    "ring": (_RING, {"send_recv": 12}, set()),
    "tensor parallel": (_TENSOR_PARALLEL, {"scatter": 6, "broadcast": 2, "all_reduce": 2}, {"tp"}),
    "sharded": (
        _SHARDED,
        {"all_gather": 8, "reduce_scatter": 4, "all_reduce": 4},
        {"replicate", "shard"},
    ),
    "compiled": (_COMPILED, {"broadcast": 4, "all_reduce": 2, "all_gather": 1}, set()),
    "pipeline": (_PIPELINE, {"send_recv": 42}, set()),
    "zero": (_ZERO, {"all_reduce": 3}, set()),
    "power-sgd": (_POWER_SGD, {"all_reduce": 8}, set()),
    "join": (_JOIN, {"all_reduce": 17}, set()),
    "dtensor": (_DTENSOR, {"all_gather": 2, "scatter": 1}, set()),
    "checkpoint": (_CHECKPOINT, {}, set()),
}


@pytest.mark.long
@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_program_has_the_rows_that_it_should(name: str, tmp_path: Path) -> None:
    program, kinds, meshes = _PROGRAMS[name]
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    (tmp_path / "train.py").write_text(_BEGIN + program + "dist.destroy_process_group()\n")
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "train.py",
        timeout_s=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    found = Counter(row["kind"] for row in result["collectives"])
    assert {kind: found[kind] for kind in kinds} == kinds
    assert {row["mesh"] for row in result["collectives"] if "mesh" in row} == meshes
    assert not any("left out" in note for note in result["notes"])
    for row in result["iterations"]:
        assert 0 < row["exposed_comm_ns"] <= row["duration_ns"]


@pytest.mark.long
def test_a_rank_that_compiles_first_is_measured_right(tmp_path: Path) -> None:
    """A program that polls while compilers run is not judged: nothing is on the wire then."""
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    (tmp_path / "source.cpp").write_text(
        "#include <map>\n#include <regex>\n"
        'int main() { return std::regex_match("aab", std::regex("a+b")); }\n'
    )
    (tmp_path / "train.py").write_text(
        "import subprocess, tempfile, torch, torch.distributed as dist\n"
        "made = tempfile.mkdtemp() + '/made'\n"
        "subprocess.run(['g++', '-O2', 'source.cpp', '-o', made], check=True)\n"
        "assert subprocess.run([made]).returncode == 1\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier()\n"
        "dist.all_reduce(torch.ones(16384))\n"
        "dist.destroy_process_group()\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "train.py",
        timeout_s=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    assert Counter(row["kind"] for row in result["collectives"])["all_reduce"] == 1


@pytest.mark.long
def test_remote_procedure_calls_end_at_both_sides(tmp_path: Path) -> None:
    """Rank 0 ends in no time, with the store that the others still ask."""
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    (tmp_path / "call.py").write_text(
        "import os, torch, torch.distributed.rpc as rpc\n"
        "rank, ranks = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "rpc.init_rpc(f'w{rank}', rank=rank, world_size=ranks)\n"
        "if rank == 0:\n"
        "    print(float(rpc.rpc_sync('w1', torch.add, args=(torch.ones(1 << 18), 1))[0]))\n"
        "rpc.shutdown()\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "call.py"
    )
    assert done.returncode == 0, done.stderr
    assert "2.0" in done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("iperf"), reason="needs iperf (version 2)")
def test_iperf_2_fills_a_link_where_what_comes_is_coalesced(tmp_path: Path) -> None:
    """Its ring of reads bounds it where each read has a frame (docs/virtual-kernel.md)."""
    (tmp_path / "fabric.yaml").write_text(
        "fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}\n"
        "virtual: {receive_coalescing: 16us}\ncapture: {points: []}\npredict: []\n"
    )
    script = (
        "if [ $RANK = 0 ]; then iperf -s -f m & sleep 1; kill $!; true; "
        "else sleep 0.1; iperf -c h0 -t 0.2; fi"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "bash", "-c", script
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "run" / "ranks" / "000.out").read_text().splitlines()
    (measured,) = (float(line.split()[-2]) for line in said if line.endswith("bits/sec"))
    assert measured == pytest.approx(99_000, rel=0.01)
