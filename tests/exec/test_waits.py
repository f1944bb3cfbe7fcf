"""When a program's collectives end, and who waits for them: in Python, in C++, late, or never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.metrics.iteration import iteration_breakdowns
from analysis.runs.run import load_run
from tests.exec.programs import execute

_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 5us, mtu: 9000}}
predict: [alpha-beta, flow]
"""
_PROGRAM = """
import time, warnings, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")
dist.init_process_group("gloo")
rank, ranks, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD

# What C++ waits for.
for _ in range(3):
    whole = functional.reduce_scatter_tensor(torch.ones(8192 * ranks), "sum", 0, world)
    assert bool((whole + 0 == ranks).all())
# What torch's compiler tries out with tensors of no contents.
@torch.compile(backend="aot_eager")
def compiled(x):
    return functional.all_reduce(x * 2, "sum", world) + 1
assert compiled(torch.ones(8)).tolist() == [2 * ranks + 1] * 8
# What is posted when most of it can have been over, and what is empty.
for _ in range(2):
    dist.all_reduce(torch.ones(8192))
    time.sleep(0.001)
    dist.broadcast(torch.ones(8192), 0)
    time.sleep(0.001)
dist.broadcast(torch.empty(0), 0)
dist.all_to_all_single(torch.empty(0), torch.empty(0))
dist.barrier()
# What predictors do not know.
sparse = torch.sparse_coo_tensor(torch.tensor([[rank]]), torch.ones(1), (ranks,)).coalesce()
dist.all_reduce(sparse)
assert sparse.to_dense().tolist() == [1] * ranks
dist.reduce_scatter(torch.empty(100), [torch.ones(100) for _ in range(ranks)])
# What nobody waits for.
kept = dist.reduce_scatter_tensor(torch.empty(4096), torch.ones(4096 * ranks), async_op=True)
time.sleep(0.01)
if rank == 0:
    sent = dist.isend(torch.ones(1000), 1, tag=1)
if rank == 1:
    dist.recv(torch.empty(1000), 0, tag=1)
# What torch refuses.
try:
    dist.all_reduce(torch.ones(8192).to(torch.float8_e4m3fn))
except RuntimeError as error:
    print("refused:", error)
# Whose sender and receiver wait late.
if rank == 0:
    first = dist.isend(torch.ones(1_000_000), 1, tag=2)
    time.sleep(3)
    second = dist.isend(torch.zeros(1_000_000), 1, tag=3)
    first.wait(), second.wait()
elif rank == 1:
    ones, zeros = torch.empty(1_000_000), torch.empty(1_000_000)
    late = dist.irecv(zeros, 0, tag=3)
    dist.irecv(ones, 0, tag=2).wait()
    assert bool((ones == 1).all())
    late.wait()
    assert bool((zeros == 0).all())
dist.barrier()
# Of unequal sizes, and begun long before the last rank posts it.
ins, outs = [10_000 * (rank == 0) + 1000] * ranks, [11_000] + [1000] * (ranks - 1)
dist.all_to_all_single(torch.empty(sum(outs)), torch.ones(sum(ins)), outs, ins)
dist.barrier()
time.sleep(0.01 * (rank == 3))
shard = torch.ones(100_000)
dist.gather(shard, [torch.empty_like(shard) for _ in range(ranks)] if rank == 0 else None, 0)
# Groups of a mesh.
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dist.all_reduce(torch.ones(1000), group=mesh.get_group("dp"))
dist.all_reduce(torch.ones(2000), group=mesh.get_group("tp"))
# Steps of unequal number, whose ranks wait for what they posted in earlier iterations.
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256))
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with Join([model]):
    for step in range(3 + (rank > 1)):
        model(torch.ones(8, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
# What a communication hook posts, and the reducer waits for by the hook's future.
def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
hooked = DistributedDataParallel(torch.nn.Linear(256, 256))
hooked.register_comm_hook(None, hook)
for step in range(2):
    hooked(torch.ones(8, 256)).sum().backward()
    optimizer.step()
# Past torch's dispatcher.
world._get_backend(torch.device("cpu")).allreduce([torch.ones(2)]).wait()
dist.all_reduce(torch.ones(10))
dist.destroy_process_group()
"""


_UNKNOWN = ("11.all_reduce", "12.reduce_scatter")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "fabric.yaml").write_text(_FABRIC)
    (home / "train.py").write_text(_PROGRAM)
    done = execute(
        home, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "train.py"
    )
    assert done.returncode == 0, done.stderr
    return home / "run"


@pytest.fixture(scope="module")
def result(ran: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ran / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return found


def _row(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in result["collectives"] if row["id"] == name)


def test_what_c_plus_plus_waits_for_has_rows_and_waits(ran: Path, result: dict[str, Any]) -> None:
    log = load_run(ran).ranks[0]
    for number in range(3):
        name = f"default.{number}.reduce_scatter"
        row = _row(result, name)
        assert row["size_bytes"] == 4 * 8192 * 4
        assert abs(row["predicted"]["flow"]["error"]) < 0.05
        record = next(each for each in log.collectives if each.id == name)
        # It is waited for as soon as it is posted.
        assert 0.9 < record.waited_ns / (record.end_ns - record.start_ns) <= 1


def test_what_nobody_waits_for_ends_when_it_does(ran: Path, result: dict[str, Any]) -> None:
    row = _row(result, "default.13.reduce_scatter")
    assert row["size_bytes"] == 4 * 4096 * 4 and row["duration_ns"] < 1_000_000
    assert all(
        each.waited_ns == 0
        for log in load_run(ran).ranks
        for each in log.collectives
        if each.id == "default.13.reduce_scatter"
    )
    assert _row(result, "default.0to1.1.0")["size_bytes"] == 4000


def test_predictions_know_when_each_rank_posted(result: dict[str, Any]) -> None:
    """A broadcast's receivers have asked for it when its root comes last: it takes one way then."""
    for number in (5, 7):
        row = _row(result, f"default.{number}.broadcast")
        assert abs(row["predicted"]["flow"]["error"]) < 0.01
        assert row["predicted"]["flow"]["alone_ns"] > 1.05 * row["duration_ns"]


def test_what_is_empty_is_predicted_too(result: dict[str, Any]) -> None:
    for name in ("default.8.broadcast", "default.9.all_to_all"):
        row = _row(result, name)
        assert row["size_bytes"] == 0 and row["duration_ns"] > 10_000
        assert abs(row["predicted"]["flow"]["error"]) < 0.02


def test_what_no_predictor_knows_has_a_row_and_a_reason(result: dict[str, Any]) -> None:
    sparse, scattered = (_row(result, f"default.{name}") for name in _UNKNOWN)
    assert sparse["size_bytes"] == 8 + 4  # an index and a value
    for row, reason in ((sparse, "a sparse array"), (scattered, "reduce-scatter of a list")):
        assert row["duration_ns"] > 0
        assert all(reason in predicted["reason"] for predicted in row["predicted"].values())


def test_a_message_ends_when_it_has_come(ran: Path, result: dict[str, Any]) -> None:
    """4 MB take 3.2 ms at 10 Gb/s, whenever their ranks get to waiting for them."""
    for name in ("default.0to1.2.0", "default.0to1.3.0"):
        row = _row(result, name)
        assert 3_200_000 < row["duration_ns"] < 3_300_000
        assert abs(row["predicted"]["flow"]["error"]) < 0.02
    receiver = load_run(ran).ranks[1]
    waited = {each.id: each.waited_ns for each in receiver.collectives}
    assert 3_200_000 < waited["default.0to1.2.0"] < 3_300_000
    # It waits for the second one, which is sent after 3 s, from when the first has come.
    assert waited["default.0to1.3.0"] == pytest.approx(3e9, rel=0.001)


def test_what_torch_refuses_has_no_row_and_a_note(result: dict[str, Any]) -> None:
    assert not any(row["id"] == "default.14.all_reduce" for row in result["collectives"])
    (note,) = (note for note in result["notes"] if "refused" in note)
    assert "default.14.all_reduce (Invalid scalar type)" in note


def test_sizes_that_differ_by_rank_are_told(result: dict[str, Any]) -> None:
    row = next(row for row in result["collectives"] if "rank_sizes_bytes" in row)
    assert row["kind"] == "all_to_all"
    assert row["rank_sizes_bytes"] == [4 * 4 * 11_000, *3 * [4 * 4 * 1000]]
    assert row["size_bytes"] == 4 * 4 * 11_000
    assert row["busbw_gbps"] is None


def test_a_bandwidth_beyond_the_links_is_not_shown(result: dict[str, Any]) -> None:
    """Three shards of 400 KB take the root 960 us; the last one posts when two have come."""
    row = next(row for row in result["collectives"] if row["kind"] == "gather")
    assert row["duration_ns"] < 960_000
    assert row["busbw_gbps"] is None and row["algbw_gbps"] is None
    assert any(
        row["id"] in note and "more than their links carry" in note for note in result["notes"]
    )


def test_groups_of_a_mesh_are_told_apart(result: dict[str, Any]) -> None:
    rows = {(row["mesh"], *row["members"]) for row in result["collectives"] if "mesh" in row}
    assert rows == {("dp", 0, 2), ("dp", 1, 3), ("tp", 0, 1), ("tp", 2, 3)}
    assert any("mesh dimension tp: group." in note for note in result["notes"])


def test_a_wait_counts_in_the_iteration_in_which_it_happens(
    ran: Path, result: dict[str, Any]
) -> None:
    iterations = result["iterations"]
    assert [row["index"] for row in iterations] == [0, 1, 2, 3, 4, 5]
    for row in iterations[:3]:
        assert 0.5 < row["exposed_comm_ns"] / row["duration_ns"] <= 1
    for breakdown in iteration_breakdowns(load_run(ran)):
        for rank in breakdown.ranks:
            assert sum(rank.exposed_ns.values()) <= rank.duration_ns


def test_the_reducer_waits_for_what_a_hook_in_python_posts(ran: Path) -> None:
    """It is in no iteration of all ranks alike, as these have made unequal numbers of steps."""
    for log in load_run(ran).ranks:
        buckets = [each for each in log.collectives if each.size_bytes == 4 * (256 * 256 + 256)]
        for record in buckets[-2:]:
            assert record.waited_ns > 0.9 * (record.end_ns - record.start_ns)


def test_what_is_posted_past_the_dispatcher_is_noted_and_no_exposure_told(
    result: dict[str, Any],
) -> None:
    """It was after the last step; nobody knows that it was not in it."""
    assert any("1 operation of group default without a row" in note for note in result["notes"])
    last = result["iterations"][-1]
    assert last["exposed_comm_ns"] is None
    assert result["collectives"][-1]["kind"] == "all_reduce"
