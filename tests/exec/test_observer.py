"""The collectives of a program, observed in its ranks, with no change of the program."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.decode.found_collectives import wire_collectives
from analysis.decode.run_capture import clock_offset_ns, load_capture
from analysis.predict.run_predictions import call_of
from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from collectives.call import CollectiveError
from collectives.schedule.uneven import UnevenAllToAll
from tests.exec.programs import FABRIC, execute
from tests.session.captured_headers import captured_headers
from tests.session.command import result_of
from topologies.spec.workload_section import CommandWorkload

PROGRAM = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 256)).sum().backward()
    optimizer.step()
whole, shard = torch.ones(3 * 1024), torch.ones(1024)
dist.all_gather_into_tensor(whole, shard)
dist.reduce_scatter_tensor(shard, whole)
with torch.inference_mode():
    dist.all_to_all_single(torch.empty(3 * 1024), torch.ones(3 * 1024))
dist.broadcast(whole, 2)
dist.reduce(whole, 1)
dist.gather(shard, [torch.empty_like(shard) for _ in range(ranks)] if rank == 2 else None, 2)
dist.scatter(shard, list(whole.chunk(ranks)) if rank == 1 else None, 1)
work = dist.all_reduce(whole, async_op=True)
time.sleep(0.001)
work.wait()
if rank == 0:
    dist.send(shard, 1)
if rank == 1:
    dist.recv(shard, None)
pair = dist.new_group([1, 2])
if rank:
    dist.all_reduce(whole, group=pair)
ours, theirs = [rank + 1] * ranks, [peer + 1 for peer in range(ranks)]
dist.all_to_all_single(torch.empty(sum(theirs)), torch.ones(sum(ours)), theirs, ours)
dist.barrier()
print("observed" if "sitecustomize" in __import__("sys").modules else "alone")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_program(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("runs") / "first")


def run_program(home: Path, out: Path, *options: str) -> Path:
    (home / "fabric.yaml").write_text(FABRIC)
    (home / "train.py").write_text(PROGRAM)
    done = execute(
        home, "fabric.yaml", "--kernel", "virtual", "--out", str(out), *options,
        "--", "python", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def _rows(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "result.json").read_text())["collectives"]
    return found


def test_every_collective_has_its_kind_size_and_ranks(observed: Path) -> None:
    found = [(row["kind"], row["size_bytes"], row["ranks"]) for row in _rows(observed)]
    after = found.index(("all_gather", 12288, 3))  # what follows DDP's own
    assert found[after:] == [
        ("all_gather", 12288, 3),
        ("reduce_scatter", 12288, 3),
        ("all_to_all", 12288, 3),
        ("broadcast", 12288, 3),
        ("reduce", 12288, 3),
        ("gather", 12288, 3),
        ("scatter", 12288, 3),
        ("all_reduce", 12288, 3),
        ("send_recv", 4096, 2),
        ("all_reduce", 12288, 2),
        ("all_to_all", 36, 3),  # of unequal sizes: the largest
        ("barrier", 0, 3),
    ]
    gradients = 4 * (256 * 256 + 256)
    assert found[:after].count(("all_reduce", gradients, 3)) == 2


def test_times_are_those_of_the_fabric_and_predicted(observed: Path) -> None:
    """A root goes on when its data is in its socket: what DDP posts next, which its broadcast of
    all parameters delays, is not among those that a predictor is held to."""
    rows = _rows(observed)
    for before, row in zip([rows[0], *rows], rows, strict=False):
        assert row["duration_ns"] == row["end_ns"] - row["start_ns"] > 0
        flow = row["predicted"]["flow"]
        delayed = before["kind"] == "broadcast" and before["size_bytes"] > 100_000
        if row["kind"] in ("all_reduce", "all_gather", "reduce_scatter", "barrier") and not delayed:
            assert abs(flow["error"]) < 0.08, row
        if (row["kind"], row["size_bytes"]) == ("all_to_all", 36):
            assert abs(flow["error"]) < 0.08, row


def test_parts_that_are_unequal_are_told_by_each_rank(observed: Path, tmp_path: Path) -> None:
    """Together they say who sends whom how much. Where one does not tell, nobody knows."""
    (uneven,) = (each for each in collectives_of(load_run(observed)) if each.uneven)
    assert uneven.schedule == UnevenAllToAll(((4, 4, 4), (8, 8, 8), (12, 12, 12)))
    assert call_of(uneven).schedule == uneven.schedule
    shutil.copytree(observed, tmp_path / "run")
    log = tmp_path / "run" / "ranks" / "001.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(line.pop("parts_bytes", None) is not None for line in lines) == 1
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (unknown,) = (each for each in collectives_of(load_run(tmp_path / "run")) if each.uneven)
    with pytest.raises(CollectiveError, match="unequal parts, which the log does not tell"):
        call_of(unknown)


def test_who_waits_late_has_waited_less_and_changes_no_end(observed: Path) -> None:
    """The asynchronous all-reduce is over long before its rank asks."""
    log = load_run(observed).ranks[0]
    late = next(c for c in log.collectives if (c.kind, c.size_bytes) == ("all_reduce", 12288))
    assert late.waited_ns == 0 and late.end_ns - late.start_ns < 100_000
    blocking = next(c for c in log.collectives if c.kind == "reduce_scatter")
    assert blocking.waited_ns == blocking.end_ns - blocking.start_ns


def test_the_steps_of_the_optimizer_are_iterations(observed: Path) -> None:
    result = json.loads((observed / "result.json").read_text())
    assert [row["index"] for row in result["iterations"]] == [0, 1]
    assert any("computing took no time" in note for note in result["notes"])


def test_what_went_past_the_process_groups_is_told_with_its_share(observed: Path) -> None:
    """Bytes of torch's store are no collective's."""
    notes = json.loads((observed / "result.json").read_text())["notes"]
    (note,) = (note for note in notes if "are not the process groups'" in note)
    told = re.match(r"([\d,]+) B, ([\d.]+)% of all payload between ranks", note)
    assert told and "(to port 29500)" in note
    assert int(told[1].replace(",", "")) > 1000 and 0 < float(told[2]) < 10


def test_the_log_and_the_capture_agree_to_the_byte(observed: Path) -> None:
    capture = load_capture(load_run(observed))
    assert capture is not None
    found = capture.attribution
    assert (found.unattributed_bytes, found.assumed_bytes, found.unlogged_bytes) == (0, 0, 0)
    assert {c.member.group for c in found.connections} == {"default", "group.1"}


@pytest.mark.long
def test_two_runs_are_the_same_bits(observed: Path) -> None:
    workload = load_run(observed).spec.workload
    assert isinstance(workload, CommandWorkload)
    again = run_program(Path(workload.directory), observed.parent / "again")
    assert result_of(again) == result_of(observed)
    names = ["links.jsonl", *(f"ranks/{rank:03d}.jsonl" for rank in range(3))]
    for name in names:
        assert (again / name).read_bytes() == (observed / name).read_bytes(), name
    assert captured_headers(again) == captured_headers(observed)


def test_the_wire_alone_says_the_same_as_the_observer(observed: Path) -> None:
    """Ends are the same nanosecond. A rank's first packet leaves when it has posted, or when its
    host's port has sent what was there before."""
    run = load_run(observed)
    shown = wire_collectives(run)
    groups, found = shown.groups, shown.collectives
    assert [(group.name, group.ranks) for group in groups] == [
        ("default", (0, 1, 2)),
        ("group.1", (1, 2)),
    ]
    offset_ns = clock_offset_ns(run)
    assert offset_ns is not None
    on_wire = {each.id: each for each in found}
    logged = collectives_of(run)
    assert len(on_wire) == len(logged)
    for collective in logged:
        each = on_wire[collective.id.replace("reduce_scatter", "all_reduce")]
        assert each.ranks == collective.ranks and each.uneven == collective.uneven
        if not each.uneven:
            assert each.size_bytes == collective.size_bytes
        if collective.traits.rooted:
            assert each.root == collective.root
        starts, ends = zip(*each.intervals_ns.values(), strict=True)
        if collective.kind != "send_recv":
            assert max(ends) - offset_ns == collective.end_ns, collective.id
        assert 0 <= max(starts) - offset_ns - collective.start_ns < 1_000, collective.id


def test_collectives_of_unobserved_ranks_are_found_in_the_captures(
    tmp_path: Path,
) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "train.py").write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(65536))\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--no-observe",
        "--", "python", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [(row["id"], row["size_bytes"]) for row in result["collectives"]] == [
        ("default.0.all_reduce", 262144),
        ("default.1.barrier", 0),
    ]
    assert abs(result["collectives"][0]["predicted"]["flow"]["error"]) < 0.08
    assert any("found in the captures" in note for note in result["notes"])
    run = load_run(tmp_path / "run")
    assert not any(log.observed for log in run.ranks)
    assert [c.peer for c in run.ranks[0].connections] == [1, 2]
