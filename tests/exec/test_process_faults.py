"""Faults of processes, and of links in turn, as a program sees them: by what comes when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.results.recovery import Recovery, goodput, recoveries
from analysis.runs.records import StepRecord
from emulator.ranks.packing import ranks_per_process
from emulator.session import SessionFailed
from groundwire.pipeline import run
from tests.exec.programs import FABRIC, execute
from topologies.spec.spec import SpecError, parse_spec

_FAULTS = """
faults:
  - {kind: flap, link: h1-s0, at: 1s, every: 100ms, down: 30ms, duration: 250ms}
  - {kind: kill, rank: 2, at: 2s, restart: 500ms}
  - {kind: freeze, rank: 1, at: 3s, duration: 200ms, every: 400ms}
  - {kind: partition, nodes: [h1, h2], at: 5s, duration: 100ms}
"""
_PROGRAM = """
import collections, contextlib, os, socket, time
rank = int(os.environ["RANK"])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin = time.monotonic()
if rank:
    print("life", os.environ.get("GROUNDWIRE_LIFE", "0"), flush=True)
    end = time.monotonic() + (3.5 if "GROUNDWIRE_LIFE" in os.environ else 6)
    while time.monotonic() < end:
        with contextlib.suppress(OSError):  # no route
            sock.sendto(str(rank).encode(), (os.environ["MASTER_ADDR"], 9))
        time.sleep(0.001)
else:
    sock.bind(("", 9))
    sock.settimeout(1)
    seen = collections.defaultdict(lambda: begin)
    while time.monotonic() < begin + 5.8:
        peer = sock.recv(9).decode()
        now = time.monotonic()
        if now - seen[peer] > 0.01:
            print("gap", peer, round(seen[peer] - begin, 2), round(now - seen[peer], 2), flush=True)
        seen[peer] = now
"""
_STAR = "fabric: {kind: flat, hosts: 2, link: {rate: 1Gbps, delay: 1us, mtu: 1500}}\n"
_TWO = "workload: {kind: command, argv: [python], ranks: 2}\n"


@pytest.mark.parametrize("imports", ["", "import torch"], ids=["own", "forked-from-one-import"])
def test_a_program_sees_each_fault_for_as_long_as_it_lasts(tmp_path: Path, imports: str) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC + _FAULTS)
    (tmp_path / "program.py").write_text(imports + _PROGRAM)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--set",
        "capture.points=[]", "--", "python3", *([] if imports else ["-S"]), "program.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    gaps = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("gap ")]
    flaps = [["1", begin, "0.03"] for begin in ("1.0", "1.1", "1.2")]
    begins = ("3.0", "3.4", "3.8", "4.2", "4.6", "5.0", "5.4")  # to the end
    frozen = [["1", begin, "0.2"] for begin in begins]
    others = [["2", "2.0", "0.5"], ["2", "5.0", "0.1"]]
    assert sorted(gaps) == sorted([*flaps, *frozen, *others])
    ranks = tmp_path / "run" / "ranks"
    assert (ranks / "002.out").read_text() == "life 0\nlife 1\n"
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert [e["began"] for e in environment["faults"] if e["what"].startswith("kill rank 2")] == [
        True,
        False,
    ]
    assert environment["missed_faults"] == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("{kind: flap, link: h0-s0, at: 0s, every: 1ms, down: 1ms}", "`down` shorter than `every`"),
        ("{kind: kill, at: 0s}", "expected one of rank, host, switch, job"),
        ("{kind: kill, rank: 0, host: h0, at: 0s}", "expected one of rank, host, switch, job"),
        ("{kind: kill, job: spec, host: h0, at: 0s}", "expected one of rank, host, switch, job"),
        ("{kind: kill, rank: 2, at: 0s}", "expected at most 1"),
        ("{kind: kill, host: s0, at: 0s}", "expected a host of the fabric"),
        ("{kind: kill, switch: h0, at: 0s}", "expected a switch of the fabric"),
        ("{kind: kill, job: other, at: 0s}", "expected the run's only job, spec"),
        ("{kind: memory-limit, rank: 2, at: 0s, value: 1MB}", "expected at most 1"),
        ("{kind: partition, nodes: [h9], at: 0s}", "expected nodes of the fabric"),
        ("{kind: kill, rank: 1, iteration: 1, operation: 1}", "expected either `at` (a time), `it"),
    ],
)
def test_faults_that_cannot_be_are_refused(fault: str, words: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(f"name: spec\n{_STAR}{_TWO}faults: [{fault}]\n")
    assert words in str(refused.value)


@pytest.mark.parametrize("counted", ["iteration", "operation"])
def test_what_nobody_counts_is_refused(counted: str) -> None:
    own = "workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1KB}]}\n"
    unseen = "workload: {kind: command, argv: [python], ranks: 2, observe: false}\n"
    fault = f"faults: [{{kind: loss, link: h0-s0, {counted}: 7, value: 1%}}]\n"
    with pytest.raises(SpecError, match=rf"faults\[0\].{counted}"):
        parse_spec(f"name: spec\n{_STAR}{own}{fault}")
    with pytest.raises(SpecError, match="observe: false: the observer counts"):
        parse_spec(f"name: spec\n{_STAR}{unseen}{fault}")


_MOMENTS = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
try:
    for step in range(9):
        began_ns = time.monotonic_ns()
        dist.all_reduce(torch.ones(1000))
        print(step, time.monotonic_ns() - began_ns, flush=True)
        optimizer.step()
except RuntimeError:
    print("lost", time.monotonic_ns(), flush=True)
"""
_AT_MOMENTS = """
  - {kind: delay, link: h1-s0, iteration: 1, value: 1ms}
  - {kind: freeze, rank: 1, iteration: 3, duration: 100ms}
  - {kind: kill, rank: 1, operation: 5}
  - {kind: kill, rank: 1, iteration: 8}
"""


def test_faults_begin_at_a_step_to_the_nanosecond_and_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_MOMENTS)
    (tmp_path / "fabric.yaml").write_text(f"{FABRIC}faults:{_AT_MOMENTS}")
    said = []
    for out in ("one", "two"):
        done = execute(
            tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", out, "--ranks", "2", "--set",
            "capture.points=[]", "--set", "predict=[]", "--", "python", "program.py",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        ranks = tmp_path / out / "ranks"
        said.append([(ranks / f"{rank:03d}.out").read_text() for rank in range(2)])
    assert said[0] == said[1]
    lines = [line.split() for line in said[0][0].splitlines()]
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "4", "lost"]
    took_ms = [int(line[1]) / 1e6 for line in lines[:5]]
    assert took_ms[0] < 1  # propagation of 1 us, there and back
    assert all(2 < took_ms[step] < 20 for step in (1, 2, 4))  # 1 ms, there and back
    assert 100 < took_ms[3] < 120
    assert [line.split()[0] for line in said[0][1].splitlines()] == ["0", "1", "2", "3", "4"]
    environment = json.loads((tmp_path / "one" / "environment.json").read_text())
    whats = [(each["what"], each["began"]) for each in environment["faults"]]
    assert whats == [
        ("delay 1ms on h1-s0", True),
        ("freeze rank 1 for 100ms", True),
        ("freeze rank 1 for 100ms", False),
        ("kill rank 1", True),
    ]
    assert environment["missed_faults"] == ["kill rank 1 at iteration 8"]
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    assert any("kill rank 1 at iteration 8" in note for note in result["notes"])


def test_a_rank_of_a_job_is_killed_at_a_step_of_its_own() -> None:
    fault = "{kind: kill, job: b, rank: 1, iteration: 3}"
    spec = parse_spec(f"{_JOBS}faults: [{fault}]\n")
    kept = [[each.begins for each in spec.of_job(job).faults] for job in spec.jobs]
    assert kept == [[], ["iteration 3"]]


def test_ranks_of_our_own_do_not_join_again() -> None:
    own = "workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1KB}]}\n"
    with pytest.raises(SpecError, match="own ranks cannot join again, only programs can"):
        parse_spec(
            f"name: spec\n{_STAR}{own}faults: [{{kind: kill, rank: 1, at: 1ms, restart: 1s}}]\n"
        )
    parse_spec(
        f"name: spec\n{_STAR}{own}faults: [{{kind: kill, switch: s0, at: 1ms, restart: 1s}}]\n"
    )


def test_without_a_killed_rank_of_our_own_the_others_fail_in_their_words(tmp_path: Path) -> None:
    own = "kind: collectives, ranks: 2, iterations: 3, operations: [{kind: all_reduce, size: 1KB}]"
    fault = "{kind: kill, rank: 1, iteration: 1}"
    text = f"name: spec\n{_STAR}workload: {{{own}}}\npredict: []\nfaults: [{fault}]\n"
    with pytest.raises(SessionFailed) as failed:
        run(parse_spec(text), kernel="virtual", out=tmp_path / "run", pages=False)
    assert "rank 0 exited with status 1" in str(failed.value)
    assert "gloo" in str(failed.value)
    assert "\nrank 1 was killed before by a fault of the spec" in str(failed.value)


def test_a_killed_rank_of_our_own_fails_its_job_alone(tmp_path: Path) -> None:
    """The other rank of the job has been done: it says nothing of it."""
    own = "kind: collectives, ranks: 2, iterations: 3, operations: [{kind: all_reduce, size: 1KB}]"
    jobs = "".join(f"  - {{name: {job}, workload: {{{own}}}}}\n" for job in "ab")
    star = _STAR.replace("hosts: 2", "hosts: 4")
    fault = "{kind: kill, job: a, at: 0s}"
    text = f"name: spec\n{star}jobs:\n{jobs}predict: []\nfaults: [{fault}]\n"
    done = run(parse_spec(text), kernel="virtual", out=tmp_path / "run", pages=False)
    failed = {job["name"]: job["failed"] for job in done.result["jobs"]}
    assert failed["b"] is None
    assert "was killed by SIGKILL" in failed["a"]["said"]


_LIVES = """
import os, time
begin = time.monotonic()
print("life", os.environ.get("GROUNDWIRE_LIFE", "0"), flush=True)
last, end = begin, 2.0 if "GROUNDWIRE_LIFE" in os.environ else 3.0
while time.monotonic() < begin + end:
    time.sleep(0.01)
    now = time.monotonic()
    if now - last > 0.05:
        print("stood still", round(last - begin, 1), round(now - last, 1), flush=True)
    last = now
"""
_JOBS = """
name: two
fabric: {kind: flat, hosts: 4, link: {rate: 1Gbps, delay: 1us, mtu: 1500}}
capture: {points: []}
predict: []
jobs:
  - {name: a, workload: {kind: command, ranks: 2, argv: [python3, -S, lives.py]}}
  - {name: b, workload: {kind: command, ranks: 2, argv: [python3, -S, lives.py]}}
"""


def test_faults_of_one_job_leave_the_other_alone(tmp_path: Path) -> None:
    faults = """faults:
  - {kind: kill, job: a, rank: 1, at: 1s, restart: 500ms}
  - {kind: freeze, job: b, rank: 0, at: 1s, duration: 200ms}
  - {kind: kill, job: b, at: 2s, restart: 100ms}
"""
    (tmp_path / "lives.py").write_text(_LIVES)
    (tmp_path / "jobs.yaml").write_text(_JOBS + faults)
    done = subprocess.run(
        [sys.executable, "-m", "groundwire", "run", "jobs.yaml", "--kernel", "virtual", "--out",
         "run"], cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = {
        (job, rank): (tmp_path / "run/jobs" / job / "ranks" / f"{rank:03d}.out").read_text()
        for job in "ab"
        for rank in range(2)
    }
    assert said["a", 0] == "life 0\n"
    assert said["a", 1] == "life 0\nlife 1\n"
    assert said["b", 0] == "life 0\nstood still 1.0 0.2\nlife 1\n"
    assert said["b", 1] == "life 0\nlife 1\n"
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert [e["job"] for e in environment["faults"]] == ["a", "b", "b", "a", "b", "b"]
    assert environment["missed_faults"] == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("{kind: kill, rank: 1, at: 0s}", "expected the job of the rank"),
        (
            "{kind: freeze, job: c, rank: 1, at: 0s, duration: 1s}",
            "found c; expected a job: a, b",
        ),
        ("{kind: kill, job: a, rank: 2, at: 0s}", "expected at most 1"),
        ("{kind: link-down, link: h0-s0, iteration: 1}", "each job has iterations of its own"),
    ],
)
def test_faults_of_jobs_that_cannot_be_are_refused(fault: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_spec(f"{_JOBS}faults: [{fault}]\n")


def test_a_rank_may_take_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(
        FABRIC + "faults: [{kind: memory-limit, rank: 1, at: 1s, value: 64MB}]\n"
    )
    (tmp_path / "program.py").write_text(
        "import time\nheld = []\ntime.sleep(2)\ntry:\n"
        "    while len(held) < 128:\n        held.append(bytearray(1 << 20))\n"
        "except MemoryError:\n    print('refused after', len(held), flush=True)\n"
        "else:\n    print('had all', flush=True)\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--set",
        "capture.points=[]", "--", "python3", "-S", "program.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ranks = tmp_path / "run" / "ranks"
    assert (ranks / "000.out").read_text() == "had all\n"
    refused = (ranks / "001.out").read_text().split()
    assert refused[:2] == ["refused", "after"] and 56 <= int(refused[2]) <= 64


def test_a_rank_of_our_own_stands_still(tmp_path: Path) -> None:
    own = "kind: collectives, ranks: 2, iterations: 3, operations: [{kind: all_reduce, size: 1KB}]"
    fault = "{kind: freeze, rank: 1, iteration: 1, duration: 5ms}"
    text = f"name: spec\n{_STAR}workload: {{{own}}}\npredict: []\nfaults: [{fault}]\n"
    done = run(parse_spec(text), kernel="virtual", out=tmp_path / "run", pages=False)
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["missed_faults"] == []
    took_ns = [each["duration_ns"] for each in done.result["collectives"]]
    assert len(took_ns) == 3
    assert max(took_ns[0], took_ns[2]) < 200_000
    assert 5_000_000 <= took_ns[1] < 5_000_000 + 2 * max(took_ns[0], took_ns[2])


@pytest.mark.parametrize(
    "fault", ["freeze, rank: 1, duration: 1ms", "kill, rank: 1", "kill, host: h1"]
)
@pytest.mark.parametrize("shared", [2, "auto"])
def test_who_stands_still_or_dies_is_a_process_of_its_own(shared: object, fault: str) -> None:
    own = "workload: {kind: collectives, ranks: 64, operations: [{kind: all_reduce, size: 1KB}]}\n"
    fabric = _STAR.replace("hosts: 2", "hosts: 64")
    text = f"name: spec\n{fabric}{own}virtual: {{ranks_per_process: {shared}}}\n"
    faults = f"faults: [{{kind: {fault}, at: 1ms}}]\n"
    assert ranks_per_process(parse_spec(text)) > 1
    if shared == "auto":
        assert ranks_per_process(parse_spec(text + faults)) == 1
        return
    with pytest.raises(SpecError, match="ranks_per_process: found 2; expected 1 or auto"):
        parse_spec(text + faults)


def _steps(*ends_ns: int) -> list[StepRecord]:
    return [
        StepRecord(event="step", life=0, index=i, start_ns=end - 10, end_ns=end)
        for i, end in enumerate(ends_ns)
    ]


def test_what_a_failure_costs() -> None:
    """Steps of 10; a kill at 25, a rank again from 40 on, whose first step is over at 55."""
    found = recoveries([(25, "kill rank 1")], _steps(10, 20, 55, 65), [40])
    assert found == [Recovery("kill rank 1", 25, 15, 30, 5)]
    assert goodput(found, 0, 65) == 1 - (5 + 30) / 65
    assert recoveries([(60, "kill rank 1")], _steps(10, 20, 55), []) == [
        Recovery("kill rank 1", 60, None, None, 5)
    ]


_ELASTIC = """
import os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = torch.nn.Linear(10, 10)
parallel, step = DistributedDataParallel(model), 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if os.path.exists("kept.pt"):
    step = torch.load("kept.pt")
    print("resumed at", step, flush=True)
while step < 12:
    time.sleep(0.5)
    optimizer.zero_grad()
    parallel(torch.ones(1, 10)).sum().backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        dist.barrier()
        if dist.get_rank() == 0:
            torch.save(step, "kept.tmp")
            os.replace("kept.tmp", "kept.pt")
print("done", step, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_torchrun_starts_a_killed_rank_again(tmp_path: Path) -> None:
    """Half a second a step, from about 1.3 s on; the kill is in the seventh of them."""
    fault = "faults: [{kind: kill, rank: 1, at: 4500ms}]\n"
    (tmp_path / "fabric.yaml").write_text(FABRIC + fault)
    (tmp_path / "train.py").write_text(_ELASTIC)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--ranks", "2", "--out", "run", "--",
        "torchrun", "--max-restarts", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h0:29400",
        "train.py", timeout_s=3000,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    assert done.stdout.splitlines()[:2] == ["resumed at 4", "done 12"]
    recovery = json.loads((tmp_path / "run" / "result.json").read_text())["recovery"]
    (failure,) = recovery["failures"]
    assert failure["what"] == "kill rank 1"
    assert 0 < failure["detected_ns"] < failure["recovered_ns"]
    assert failure["recovered_ns"] - failure["detected_ns"] >= 500_000_000
    assert 0 <= failure["lost_ns"] <= 510_000_000
    assert 0 < recovery["goodput"] < 1
    assert f"goodput {recovery['goodput']:.1%}" in done.stdout
