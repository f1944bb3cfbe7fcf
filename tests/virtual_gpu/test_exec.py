"""Scripts that say cuda and nccl, by `groundwire exec`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.chakra.graph import CollectiveNode
from analysis.chakra.sources.kineto import read_kineto
from analysis.exporters.kineto import write_kineto
from analysis.runs.kernels import read_kernels
from analysis.runs.run import load_run
from tests.exec.programs import execute
from tests.session.command import result_of

RAILS = """
fabric:
  kind: rails
  servers: 2
  hosts_per_server: 2
  link: {rate: 100Gbps, delay: 1us}
  links: {scale-up: {rate: 2400Gbps, delay: 100ns}}
predict: [alpha-beta]
"""
_COLLECTIVES = """
import sys
assert "networkx" not in sys.modules
import ctypes, gc, os, socket, subprocess, torch, torch.distributed as dist
import networkx  # reads all variables
import torch.distributed.elastic.multiprocessing.errors  # and so what torchrun starts ranks by

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
r, n = dist.get_rank(), dist.get_world_size()
assert (socket.gethostname(), torch.cuda.device_count()) == (f"server{r // 2}", 2)

def on(*values, **kinds):
    return torch.tensor(values, device="cuda", **kinds)

x = torch.full((1000,), float(r), device="cuda")
dist.all_reduce(x)
assert x[0].item() == n * (n - 1) / 2
objects = [None] * n
dist.all_gather_object(objects, {"rank": r})
assert [each["rank"] for each in objects] == list(range(n))
flag = on(r == 0)
dist.all_reduce(flag, op=dist.ReduceOp.MAX)
assert flag.item() is True
half = torch.full((8,), float(r), device="cuda", dtype=torch.bfloat16)
dist.all_reduce(half, op=dist.ReduceOp.AVG)
assert half[0].item() == (n - 1) / 2
sent, counts = torch.full((n * (n + 1) // 2,), r, device="cuda"), list(range(1, n + 1))
got = torch.empty((r + 1) * n, dtype=torch.int64, device="cuda")
dist.all_to_all_single(got, sent, [r + 1] * n, counts)
assert got.tolist() == [rank for rank in range(n) for _ in range(r + 1)]
gathered = torch.empty(4 * n, device="cuda")
dist.all_gather_into_tensor(gathered, torch.full((4,), float(r), device="cuda"))
assert gathered[-1].item() == n - 1
part = torch.empty(2, device="cuda")
dist.reduce_scatter_tensor(part, torch.ones(2 * n, device="cuda"))
assert part[0].item() == n
come = torch.empty(3, dtype=torch.int64, device="cuda")
for work in dist.batch_isend_irecv([
    dist.P2POp(dist.isend, torch.full((3,), r, device="cuda"), (r + 1) % n),
    dist.P2POp(dist.irecv, come, (r - 1) % n),
]):
    work.wait()
assert come[0].item() == (r - 1) % n
group = dist.new_group([0, 1])
if r < 2:
    y = on(1.0)
    dist.all_reduce(y, group=group)
    assert y.item() == 2
# The imports at the head of the script were made once, before the ranks were there.
assert all(each is not networkx.DiGraph for each in gc.get_objects())  # who forks has frozen it
# A rank without contents leaves nobody any.
unknown = torch.zeros(100, device="cuda") if r else torch.ones(9000, device="cuda")[:100]
dist.all_reduce(unknown)
assert unknown[0].item() == 0
# A collective's result is gone when the script lets go of it.
allocated = torch.cuda.memory_allocated()
for _ in range(3):
    large = torch.empty(1 << 22, device="cuda")
    dist.all_reduce(large)
del large
assert torch.cuda.memory_allocated() == allocated
# The server's programs see what each rank has reserved.
query = "nvidia-smi --query-gpu=name,memory.used --format=csv,noheader,nounits"
seen = subprocess.run(query.split(), capture_output=True, text=True, check=True).stdout
assert seen == "".join(
    f"NVIDIA H100 80GB HBM3, {torch.cuda.memory_reserved(local) >> 20}\\n" if i == local else line
    for i, line in enumerate(seen.splitlines(True))
), seen
assert len(seen.splitlines()) == 2
nvml, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
assert count.value == 2
lspci = subprocess.run("lspci", capture_output=True, text=True, check=True).stdout
assert lspci.count("NVIDIA") == 2
# Only the root's contents matter.
known = torch.ones(9000, device="cuda")[:5] if r else torch.arange(5.0, device="cuda")
dist.broadcast(known, 0)
assert known.tolist() == [0, 1, 2, 3, 4]
dist.barrier()

from torch.distributed.fsdp import fully_shard

mesh = torch.distributed.init_device_mesh("cuda", (n,))
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(3))).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(256, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def lines_of(run: Path, rank: int) -> list[dict[str, Any]]:
    text = (run / "ranks" / f"{rank:03d}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_script_for_nccl_runs_on_servers_of_virtual_gpus(tmp_path: Path) -> None:
    (tmp_path / "rails.yaml").write_text(RAILS)
    (tmp_path / "train.py").write_text(_COLLECTIVES)
    options = ("--gpus-per-host", "2", "--device", "h100", "--out", "run")
    done = execute(tmp_path, "rails.yaml", *options, "--", "torchrun", "train.py", timeout_s=800)
    assert done.returncode == 0, done.stderr
    result = result_of(tmp_path / "run")
    assert result["valid"] and len(result["iterations"]) == 2
    rows = {row["id"]: row for row in result["collectives"]}
    first = rows["default.0.all_reduce"]
    assert (first["size_bytes"], first["ranks"]) == (4000, 4)
    # Ranks of a server meet over its scale-up switch: 400 ns of links and little else.
    inside = next(row for row in rows.values() if row["id"].startswith("group."))
    assert inside["ranks"] == 2 and inside["duration_ns"] < 2_000
    for row in rows.values():
        if row["kind"] == "all_gather" and row["size_bytes"] > 10**6:
            error = row["predicted"]["alpha-beta"]["duration_ns"] / row["duration_ns"] - 1
            assert abs(error) < 0.1, row
    used = result["gpus"]["ranks"]
    assert [(gpu["rank"], gpu["device"]) for gpu in used] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert all(0 < gpu["mfu"] < 1 for gpu in used)
    assert "GPU memory: at most" in done.stdout
    # Three layers of 1024 x 1024, forward and twice backward less the first's input, two steps.
    kernels = {each["operator"]: each for each in result["gpus"]["kernels"]}
    products = kernels["aten::mm"]["flops"] + kernels["aten::addmm"]["flops"]
    assert products == 4 * 2 * (3 + 3 + 2) * 2 * 256 * 1024 * 1024
    _kernels_come_back_as_profiles(tmp_path / "run", result)
    waited = sum(
        line["waited_ns"] for line in lines_of(tmp_path / "run", 0) if line["event"] == "collective"
    )
    assert waited > 0


def _kernels_come_back_as_profiles(directory: Path, result: dict[str, Any]) -> None:
    run = load_run(directory)
    kernels = [each for log in run.ranks for each in read_kernels(run, log.rank)]
    assert len(kernels) == sum(each["kernels"] for each in result["gpus"]["kernels"])
    assert sum(each.end_ns - each.start_ns for each in kernels) == sum(
        each["ns"] for each in result["gpus"]["kernels"]
    )
    for log, path in zip(run.ranks, write_kineto(directory / "kineto", run), strict=True):
        text = path.read_text()
        # Holistic Trace Analysis looks for the rank in the text, before it reads the events.
        assert re.search(r'"rank":\s+(\d+)', text.partition("\n")[0])[1] == str(log.rank)  # type: ignore[index]
        document = json.loads(text)
        steps = [each for each in document["traceEvents"] if "ProfilerStep#" in each["name"]]
        assert [each["name"] for each in steps] == ["ProfilerStep#0", "ProfilerStep#1"]
        graph, _ = read_kineto(document, path)
        told = sum(isinstance(node, CollectiveNode) for node in graph)
        assert told == sum(record.kind != "send_recv" for record in log.collectives)
    exposed = result["gpus"]["exposed"]
    assert all(sum(each["kinds"].values()) <= each["exposed_ns"] for each in exposed)


_SERVERS = """
import os, socket, torch, torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank = dist.get_rank()
assert socket.gethostname() == f"server{rank // 2}"
pairs = (0, 1), (0, 2), (1, 3)
groups = {pair: dist.new_group(list(pair)) for pair in pairs}

def send(more, *using):
    for pair in using:
        if rank in pair:
            tensor = torch.empty(2_000_000 + more, device="cuda")
            dist.broadcast(tensor, src=pair[0], group=groups[pair])
    torch.cuda.synchronize()
    dist.barrier()

send(0, (0, 1))
send(1, (0, 2))
send(2, (0, 2), (1, 3))
dist.destroy_process_group()
"""


def test_gpus_of_a_host_of_a_flat_fabric_share_its_nic_and_its_scale_up_links(
    tmp_path: Path,
) -> None:
    links = "{scale-up: {rate: 2400Gbps, delay: 100ns, mtu: 9000}}"
    flat = f"{{kind: flat, hosts: 2, link: {{rate: 100Gbps, delay: 1us}}, links: {links}}}"
    (tmp_path / "flat.yaml").write_text(f"fabric: {flat}\npredict: [alpha-beta]\n")
    (tmp_path / "pairs.py").write_text(_SERVERS)
    options = ("--gpus-per-host", "2", "--device", "none", "--out", "run")
    done = execute(tmp_path, "flat.yaml", *options, "--", "torchrun", "pairs.py", timeout_s=800)
    assert done.returncode == 0, done.stderr
    result = result_of(tmp_path / "run")
    assert result["valid"]
    took: dict[int, list[int]] = {}
    for row in result["collectives"]:
        if row["kind"] == "broadcast":
            took.setdefault(row["size_bytes"] - 8_000_000, []).append(row["duration_ns"])
    alone_ns = 8 * 8_000_004 // 100  # what 100 Gb/s take at least
    assert max(took[0]) < alone_ns / 5
    assert alone_ns < max(took[4]) < 1.3 * alone_ns
    assert len(took[8]) == 2
    assert 2 * alone_ns < max(took[8]) < 2.3 * alone_ns


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpus-per-host", "4"), "workload.gpus_per_host: found 4; expected fabric.hosts_per"),
        (("--gpus-per-host", "2", "--charge"), "workload.charge: found true"),
        (("--gpus-per-host", "2", "--device", "h900"), "compute.device: found h900"),
        (("--contents", "full"), "expected --gpus-per-host"),
        (("--gpus-per-host", "2", "-n", "3"), "expected ranks to be a multiple of gpus_per_host"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "rails.yaml").write_text(RAILS)
    done = execute(tmp_path, "rails.yaml", *options, "--", "python", "-c", "pass")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_a_host_with_gpus_has_links_of_a_stated_rate(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text("fabric: {kind: flat, hosts: 2}\n")
    done = execute(tmp_path, "flat.yaml", "--gpus-per-host", "2", "--", "python", "-c", "pass")
    assert done.returncode == 2
    assert "links: {scale-up: {rate: ...}}" in " ".join(done.stderr.split())


def test_a_program_that_is_no_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "rails.yaml").write_text(RAILS)
    done = execute(tmp_path, "rails.yaml", "--gpus-per-host", "2", "--", "true")
    assert done.returncode == 2 and "is not a Python" in done.stderr


_GPT = """
import os, sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist

device, kind = sys.argv[1], sys.argv[2]
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if kind == "one":
    world = 1
else:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")

class Block(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4))
        s.f1, s.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(s, x):
        y = s.n1(x)
        heads = [f(y).view(*x.shape[:2], -1, 32).transpose(1, 2) for f in (s.q, s.k, s.v)]
        a = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + s.o(a)
        return x + s.f2(F.gelu(s.f1(s.n2(x))))

class Gpt(nn.Module):
    def __init__(s, words=512, d=128, layers=2, length=64):
        super().__init__()
        s.e, s.p = nn.Embedding(words, d), nn.Embedding(length, d)
        s.b = nn.ModuleList([Block(d) for _ in range(layers)])
        s.n, s.w = nn.LayerNorm(d), nn.Linear(d, words, bias=False)
    def forward(s, i):
        x = s.e(i) + s.p(torch.arange(i.shape[1], device=i.device))
        for b in s.b:
            x = b(x)
        return s.w(s.n(x))

torch.manual_seed(0)
model = Gpt().to(device)
if kind == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
elif kind == "fsdp2":
    from torch.distributed.fsdp import fully_shard
    mesh = dist.init_device_mesh(device, (world,))
    for block in model.b:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
elif kind == "tp":
    from torch.distributed.tensor.parallel import (
        ColwiseParallel as C, RowwiseParallel as R, parallelize_module
    )
    mesh = dist.init_device_mesh(device, (world,))
    for block in model.b:
        parallelize_module(block, mesh, dict(q=C(), k=C(), v=C(), o=R(), f1=C(), f2=R()))
splits = kind in ("ddp", "fsdp2")
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False if kind == "tp" else None)
data = torch.randint(0, 512, (2, 8, 65), generator=torch.Generator().manual_seed(7))
losses = []
for step in range(20):
    words = data[step % 2]
    if splits:
        words = words[rank * 8 // world : (rank + 1) * 8 // world]
    words = words.to(device, non_blocking=True)
    loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    if splits:
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    losses.append(mean.item())
if rank == 0:
    print("losses", *losses)
if kind != "one":
    dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "tp"])
def test_in_full_the_loss_is_that_of_one_process_on_the_cpu(tmp_path: Path, kind: str) -> None:
    import subprocess
    import sys

    (tmp_path / "rails.yaml").write_text(RAILS)
    (tmp_path / "gpt.py").write_text(_GPT)
    alone = subprocess.run(
        [sys.executable, "gpt.py", "cpu", "one"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    options = ("--gpus-per-host", "2", "--contents", "full", "--out", "run")
    program = ("torchrun", "gpt.py", "cuda", kind)
    done = execute(tmp_path, "rails.yaml", *options, "--", *program, timeout_s=1800)
    assert done.returncode == 0, done.stderr
    output = (tmp_path / "run" / "ranks" / "000.out").read_text()
    expected, found = (
        [float(word) for word in text.split("losses")[1].split()[:20]]
        for text in (alone.stdout, output)
    )
    assert max(abs(a - b) for a, b in zip(expected, found, strict=True)) < 1e-4
    assert result_of(tmp_path / "run")["valid"]
