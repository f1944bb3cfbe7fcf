"""Faults that others have met on clusters and told of in public, here with programs of our own:
each has its seed and its verdict. One that a search has found is among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.foreign_programs import programs_folder
from tests.exec.programs import FABRIC, execute

pytestmark = pytest.mark.long

# pytorch/gloo#520: with lazy connections a rank that has gone before the first collective of a
# group leaves another in its connect, past the group's timeout.
_LAZY = """
import datetime, os, time
os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
import torch, torch.distributed as dist
patience = datetime.timedelta(seconds=2)
dist.init_process_group("gloo", timeout=patience)
part = dist.new_group([0, 1], backend="gloo", timeout=patience)
dist.barrier()
if dist.get_rank() == GONE:
    os._exit(0)
begin = time.monotonic()
try:
    dist.all_reduce(torch.ones(1), group=part)
except RuntimeError as error:
    print("failed after", round(time.monotonic() - begin), "s:", str(error)[:200], flush=True)
"""
# pytorch#172668: of two pipeline ranks, each sends before it receives, and a send is over when it
# has been received.
_BOTH_SEND = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
other = 1 - dist.get_rank()
activations = torch.ones(1_000_000)
dist.barrier()
dist.send(activations, other)
dist.recv(activations, other)
"""
# torchtitan#2899: two replicas of two ranks. The timeout between them has to be the shorter one:
# rank 1 gives its peer up, and goes on with its own replica.
_TIMEOUTS = """
import datetime, os, sys, time, torch, torch.distributed as dist
between, within = (datetime.timedelta(seconds=int(word)) for word in sys.argv[1:])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
rank = dist.get_rank()
peers = [dist.new_group(each, timeout=between) for each in ([0, 2], [1, 3])]
replicas = [dist.new_group(each, timeout=within) for each in ([0, 1], [2, 3])]
if rank == 3:
    time.sleep(400)
    os._exit(0)
if rank == 1:
    try:
        dist.all_reduce(torch.ones(4), group=peers[1])
    except RuntimeError:
        print("goes on without its peer", flush=True)
if rank < 2:
    dist.all_reduce(torch.ones(4), group=replicas[0])
    print("has its replica's sum", flush=True)
"""
# pytorch#132644: a pipeline of four stages on Gloo, whose batches of messages are of several works.
_PIPELINE = """
import torch, torch.distributed as dist
from torch.distributed import pipelining
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
stage = pipelining.PipelineStage(torch.nn.Linear(64, 64), rank, size, torch.device("cpu"))
schedule = pipelining.Schedule1F1B(stage, 8, loss_fn=torch.nn.functional.mse_loss)
for _ in range(2):
    if rank == 0:
        schedule.step(torch.ones(16, 64))
    elif rank == size - 1:
        schedule.step(target=torch.zeros(16, 64), losses=[])
    else:
        schedule.step()
dist.barrier()
print("is through", flush=True)
"""
# torchcomms#2964: messages between two ranks of a group, then a barrier of all.
_MESSAGES_OF_SOME = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for number in range(5):
    x = torch.full((4,), float(number))
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)
dist.barrier()
print("is through", flush=True)
"""
# vllm#52907: the ranks that share rank 0's host, found by a segment of memory, then a barrier.
_SAME_HOST = """
import torch, torch.distributed as dist
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *name: None
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group(list(range(size)), backend="gloo")
same, name, segment = torch.zeros(size, dtype=torch.int32), [None], None
if rank == 0:
    segment = shared_memory.SharedMemory(create=True, size=128)
    name = [segment.name]
dist.broadcast_object_list(name, src=0, group=group)
try:
    here = segment or shared_memory.SharedMemory(name=name[0])
    same[rank] = 1
except FileNotFoundError:
    pass
dist.barrier(group=group)
dist.all_reduce(same, group=group)
print("is one of", int(same.sum()), flush=True)
"""
# Found by a search (benchmarks/results/2026-11-27-accelerate.md): rank 0 alone writes the model's
# state, and nobody waits for it.
_BEST = """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(1024, 1024)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(4):
    accelerator.backward(model(torch.randn(4, 1024)).square().mean())
    optimizer.step()
    accelerator.save_state("best")
WAIT
accelerator.load_state("best")
sums = accelerator.gather(accelerator.unwrap_model(model).weight.detach().sum().reshape(1))
assert torch.equal(sums, sums[:1].expand_as(sums)), f"replicas differ: {sums.tolist()}"
accelerator.end_training()
"""


def _run(
    directory: Path, script: str, *words: str, ranks: int = 2, each: int = 1
) -> tuple[int, str, str]:
    (directory / "fabric.yaml").write_text(FABRIC.replace("hosts: 3", "hosts: 4"))
    (directory / "script.py").write_text(script)
    done = execute(
        directory, "fabric.yaml", "--kernel", "virtual", "--ranks", str(ranks), "--hang-after",
        "600s", "--ranks-per-host", str(each), "--set", "seed=1", "--tee", "all", "--out", "run",
        "--", "python", "script.py", *words, timeout_s=3000,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(3600)
def test_two_stages_that_both_send_first_wait_for_each_other(tmp_path: Path) -> None:
    status, _, said = _run(tmp_path, _BOTH_SEND)
    assert status == 1
    (hang,) = json.loads((tmp_path / "run" / "hang.json").read_text())
    assert hang["cycle"] == [0, 1]
    assert "rank 0 waits in send of 4,000,000 B to rank 1" in said
    assert "rank 1 waits in send of 4,000,000 B to rank 0" in said


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("gone", "words"),
    [
        pytest.param(0, "failed after 0 s: Failed to recv", id="who connects fails at once"),
        pytest.param(1, "failed after 10 s: ", id="who is connected to waits 10 s, not 2"),
    ],
)
def test_a_rank_that_has_gone_and_lazy_connections(tmp_path: Path, gone: int, words: str) -> None:
    """The group's timeout is 2 s. The run itself is well: one rank has ended by itself, and the
    other has caught its error."""
    status, printed, said = _run(tmp_path, _LAZY.replace("GONE", str(gone)))
    assert status == 0, said
    assert words in printed
    assert ("Connect timeout" in printed) == (gone == 1)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("between", "within"),
    [pytest.param("200", "120", id="wrong order"), pytest.param("120", "200", id="right order")],
)
def test_timeouts_in_the_wrong_order_end_a_replica(
    tmp_path: Path, between: str, within: str
) -> None:
    status, printed, said = _run(tmp_path, _TIMEOUTS, between, within, ranks=4)
    if within == "200":
        assert status == 0, said
        assert "[1] goes on without its peer" in printed
        assert "[0] has its replica's sum" in printed
        return
    assert status == 1
    assert "rank 0 on h0 exited" in said and "Timed out waiting 120000ms" in said
    assert "rank 0 waits in all_reduce of 16 B (number 0 of group group.3) for rank 1" in said
    assert "rank 1 waits in all_reduce of 16 B (number 0 of group group.2) for rank 3" in said


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("script", "ranks", "each", "says"),
    [
        pytest.param(_PIPELINE, 4, 1, "is through", id="pytorch#132644"),
        pytest.param(_MESSAGES_OF_SOME, 4, 1, "is through", id="torchcomms#2964"),
        pytest.param(_SAME_HOST, 16, 8, "is one of 8", id="vllm#52907"),
    ],
)
def test_what_does_not_reproduce(
    tmp_path: Path, script: str, ranks: int, each: int, says: str
) -> None:
    status, printed, said = _run(tmp_path, script, ranks=ranks, each=each)
    assert status == 0, said
    assert printed.count(says) == ranks


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("waits", [False, True], ids=["as it is", "with a barrier between"])
def test_replicas_of_accelerate_load_states_of_different_steps(tmp_path: Path, waits: bool) -> None:
    python = programs_folder() / "torch" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is missing: make programs")
    fabric = "fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 1us, mtu: 9000}}\n"
    (tmp_path / "fabric.yaml").write_text(fabric)
    wait = "accelerator.wait_for_everyone()" if waits else ""
    (tmp_path / "script.py").write_text(_BEST.replace("WAIT", wait))
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--ranks", "4", "--set", "seed=1",
        "--set", "predict=[]", "--set", "capture.points=[]", "--out", "run", "--", str(python),
        "script.py", timeout_s=3000,
    )  # fmt: skip
    assert done.returncode == (0 if waits else 1), done.stderr
    assert ("replicas differ" in done.stderr) != waits
