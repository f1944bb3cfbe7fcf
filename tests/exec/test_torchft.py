"""TorchFT: a replica dies and returns, and the others go on. `make programs ONLY=torchft` makes
what it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testing.foreign_programs import programs_folder
from tests.exec.programs import execute

_PYTHON = programs_folder() / "torchft" / "bin" / "python"
_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 25Gbps, delay: 1us, mtu: 9000}}
faults: [{kind: kill, rank: 2, at: 10s, restart: 8s}]
predict: []
capture: {points: []}
"""
_TRAINS = """
import datetime, os, socket, sys, time
import torch, torch.distributed as dist
import torchft.manager, torchft.checkpointing.http_transport as http
from torchft import Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.ddp import DistributedDataParallel
http._IPv6HTTPServer.address_family = socket.AF_INET  # the guest's kernel has no IPv6
server = torchft.manager.ManagerServer
torchft.manager.ManagerServer = lambda **given: server(
    **given | {"bind": given["bind"].replace("[::]", "0.0.0.0")})
rank, end_s = int(os.environ["RANK"]), 10.5 + 40
if rank == 0:
    lighthouse = LighthouseServer(
        bind="0.0.0.0:29510", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=5000)
    time.sleep(end_s - time.monotonic())
    lighthouse.shutdown()
    sys.exit(0)
own = socket.gethostbyname(socket.gethostname())
store = dist.TCPStore(own, 29600, is_master=True, wait_for_workers=False)
torch.manual_seed(rank)
model, patience = torch.nn.Linear(256, 256), datetime.timedelta(seconds=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
manager = Manager(
    pg=ProcessGroupGloo(timeout=patience), min_replica_size=1,
    load_state_dict=lambda state: model.load_state_dict(state["model"]),
    state_dict=lambda: {"model": model.state_dict()}, replica_id=f"replica_{rank}",
    store_addr=own, store_port=29600, rank=0, world_size=1, timeout=patience, hostname=own,
    lighthouse_addr=f"http://{os.environ['MASTER_ADDR']}:29510", use_async_quorum=False)
trained, steps = DistributedDataParallel(manager, model), Optimizer(manager, optimizer)
while time.monotonic() < end_s - 15:
    steps.zero_grad()
    trained(torch.ones(8, 256)).square().mean().backward()
    time.sleep(0.5)
    steps.step()
    print("at", time.monotonic(), manager.current_step(), manager.num_participants(), flush=True)
print("weights", model.weight.sum().item(), flush=True)
time.sleep(5)
os._exit(0)
"""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not _PYTHON.exists(), reason="make programs ONLY=torchft makes TorchFT")
def test_replicas_go_on_without_one_that_returns(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    (tmp_path / "ft.py").write_text(_TRAINS)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--hang-after", "200s", "--tee", "all",
        "--out", "run", "--", str(_PYTHON), "ft.py", timeout_s=3000,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.findall(r"^\[1\] at ([\d.]+) (\d+) (\d)$", done.stdout, re.MULTILINE)
    steps = [(float(at), int(step), int(many)) for at, step, many in found]
    killed_s = 10.5 + 10
    assert [many for at, _, many in steps if 13 < at < killed_s] == [3] * 15
    after = [(at, many) for at, _, many in steps if at > killed_s + 0.1]
    assert after[0][1] == 2 and after[0][0] - killed_s < 2.5  # by no timeout of 5 s or 10 s
    assert after[-1][1] == 3
    weights = re.findall(r"weights (.*)", done.stdout)
    assert len(weights) == 3 and len(set(weights)) == 1
