"""A run with a part of its payload, what it tells while it goes, and its trace on another way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.chakra.graph import CollectiveNode, ComputeNode, ReceiveNode, SendNode
from analysis.chakra.sources.read import read_workload
from tests.exec.programs import execute
from tests.session.command import groundwire, result_of

_FABRIC = "fabric: {kind: flat, hosts: 2, link: {rate: RATE, delay: 1us, mtu: 9000}}\n"
_SCRIPT = """
import json, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile

torch.cuda.set_device(0)
dist.init_process_group("nccl")
r = dist.get_rank()
mesh = dist.init_device_mesh("cuda", (2,))
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())

def step():
    model(torch.empty(8192, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()

parts = torch.empty(300_000, device="cuda")
got = torch.empty(200_000 if r == 0 else 400_000, device="cuda")
dist.all_to_all_single(got, parts, [100_000, 100_000] if r == 0 else [200_000, 200_000],
                       [100_000, 200_000])
step()
step()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as taken:
    step()
taken.export_chrome_trace(f"trace.{r}.json")
dist.destroy_process_group()
"""


def _run(folder: Path, out: str, *options: str) -> tuple[dict[str, Any], str]:
    (folder / "two.yaml").write_text(_FABRIC.replace("RATE", "100Gbps"))
    (folder / "train.py").write_text(_SCRIPT)
    gpus = ("--gpus-per-host", "1", "--device", "h100", *options)
    done = execute(folder, "two.yaml", *gpus, "--out", out, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr[-3000:]
    return result_of(folder / out), done.stdout


def test_a_part_of_the_payload_is_sent_and_said(tmp_path: Path) -> None:
    result, said = _run(tmp_path, "run", "--scale-payload", "1/4")
    assert result["valid"] and result["scale_payload"] == "1/4"
    assert "1/4 of the PAYLOAD" in said and "(1/4 of the payload)" in said
    gathers = [row for row in result["collectives"] if row["kind"] == "all_gather"]
    assert {row["payload_bytes"] // row["size_bytes"] for row in gathers} == {4}
    assert any("1/4 of each large message was sent" in note for note in result["notes"])
    # Predictions are of what is sent, over the links that it was sent over.
    rows = [row for row in gathers if row["iteration"] == 2]
    errors = [row["predicted"]["packet"]["error"] for row in rows]
    assert max(map(abs, errors)) < 0.02
    _check_profile(tmp_path / "run" / "work" / "trace.0.json")
    _check_trace(tmp_path, result)


def _check_profile(path: Path) -> None:
    """The rows of the device in the script's own trace, NCCL's kernels among them."""
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    streams = {each["tid"] for each in kernels}
    calls = [each for each in kernels if each["name"].startswith("ncclDevKernel_")]
    assert 7 in streams and len(streams) > 1
    assert {each["args"]["Collective name"] for each in calls} == {
        "_allgather_base", "_reduce_scatter_base"
    }  # fmt: skip
    assert all(each["args"]["Group size"] == 2 and each["dur"] > 0 for each in calls)
    assert any(each["name"] == "aten::addmm" for each in kernels)


def _check_trace(folder: Path, result: dict[str, Any]) -> None:
    """Kernels are nodes on their streams, and a simulation of them takes as long as the run. A ring
    is its messages."""
    done = groundwire("trace", "export", folder / "run", "--out", folder / "out")
    assert done.returncode == 0, done.stderr
    read = read_workload(folder / "out" / result["name"])
    assert not read.notes
    graph = read.graphs[0]
    names = {node.name for node in graph if isinstance(node, ComputeNode)}
    assert {"aten::addmm", "aten::mm"} <= names
    of_gathers = {node.stream for node in graph if isinstance(node, CollectiveNode)}
    of_rings = {node.stream for node in graph if isinstance(node, SendNode | ReceiveNode)}
    assert len(of_gathers) == len(of_rings) == 1 and of_gathers != of_rings
    assert None not in of_gathers | of_rings
    replayed = _FABRIC.replace("RATE", "25Gbps") + (
        f"workload: {{kind: chakra, path: out/{result['name']}, ranks: 2}}\npredict: [packet]\n"
    )
    (folder / "replayed.yaml").write_text(replayed)
    done = groundwire("run", folder / "replayed.yaml", "--out", folder / "again")
    assert done.returncode == 0, done.stderr
    (again,) = result_of(folder / "again")["iterations"]
    measured = result["iterations"][-1]["duration_ns"]
    assert again["duration_ns"] == pytest.approx(measured, rel=0.01)


@pytest.mark.long
def test_a_scaled_iteration_takes_about_what_the_whole_one_does(tmp_path: Path) -> None:
    whole, _ = _run(tmp_path, "whole")
    for share, error in (("1/4", 0.03), ("1/16", 0.1)):
        scaled, _ = _run(tmp_path, share.replace("/", "-"), "--scale-payload", share)
        for one, other in zip(whole["iterations"], scaled["iterations"], strict=True):
            assert other["duration_ns"] == pytest.approx(one["duration_ns"], rel=error)
