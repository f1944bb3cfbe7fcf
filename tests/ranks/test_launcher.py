"""Ranks are watched: one that dies takes the run down at once, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from collectives import settings
from collectives.program import Program
from collectives.verify import verify
from emulator.ranks.launcher import Launcher, RankFailed
from emulator.ranks.packed_process import packed
from emulator.ranks.rank_process import RankJob
from emulator.ranks.server import JobProcesses, Process
from tests.slowdown import slowdown
from topologies.spec.collectives_section import CollectivesOfRun
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.workload_section import CollectiveOperation, CollectivesWorkload
from workloads.execution.rank_plan import RankPlan

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: ranks enter network and mount namespaces"
)

_RANKS = 3


def _jobs(
    directory: Path, iterations: int, interface: str = "lo", broken: int | None = None
) -> list[RankJob]:
    """Ranks of one host. The `broken` one alone has another interface than `interface`."""
    workload = CollectivesWorkload(
        kind="collectives",
        ranks=_RANKS,
        iterations=iterations,
        operations=(CollectiveOperation(kind="all_reduce", size=4800),),
    )
    return [
        RankJob(
            RankPlan(
                rank=rank,
                hosts=("here",) * _RANKS,
                addresses=("127.0.0.1",) * _RANKS,
                interface="nosuch0" if rank == broken else interface,
                store_port=29571,
                workload=workload,
                compute=ComputeSpec(device="none"),
                seed=1,
                events=directory / f"{rank:03d}.jsonl",
            ),
            netns=Path("/proc/self/ns/net"),
            names=Path("/etc/hosts"),
            stderr=directory / f"{rank:03d}.log",
        )
        for rank in range(_RANKS)
    ]


def _run(
    launcher: Launcher, processes: Sequence[Process], on_iteration: Callable[[int], None]
) -> None:
    job = JobProcesses("", tuple(processes))
    assert launcher.run([job], lambda _, iteration: on_iteration(iteration)) == {}


def _pids(launcher: Launcher) -> dict[int, int]:
    """By rank."""
    return {each.process.rank: pid for pid, each in launcher.running.items()}


def _gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_all_ranks_end_well(tmp_path: Path) -> None:
    begun: list[int] = []
    with Launcher() as launcher:
        _run(launcher, _jobs(tmp_path, iterations=2), begun.append)
    assert begun == [0, 1]
    assert len(list(tmp_path.glob("*.jsonl"))) == _RANKS


@pytest.mark.parametrize("per_process", [None, 2])
def test_programs_are_made_once_for_all_ranks(
    tmp_path: Path, per_process: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank made them itself, and took as much memory and time as all of them take now."""
    made = tmp_path / "made"

    def verify_and_tell(program: Program) -> None:
        with made.open("a") as file:
            file.write(f"{os.getpid()}\n")
        verify(program)

    monkeypatch.setattr(settings, "verify", verify_and_tell)
    ring = CollectivesOfRun(backend="programs", all_reduce={"algorithm": "ring", "chunks": 3})
    jobs = [
        replace(job, plan=replace(job.plan, collectives=ring))
        for job in _jobs(tmp_path, iterations=2)
    ]
    with Launcher() as launcher:
        server = launcher._pid
        processes = jobs if per_process is None else packed(jobs, per_process)
        _run(launcher, processes, lambda iteration: None)
    assert set(map(int, _lines(made))) == {server}


def test_a_fork_server_that_has_died_is_said_and_no_broken_pipe(tmp_path: Path) -> None:
    with Launcher() as launcher:
        assert launcher._pid is not None
        os.kill(launcher._pid, signal.SIGKILL)
        os.waitid(os.P_PID, launcher._pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(RuntimeError, match="that starts the ranks died unexpectedly"):
            _run(launcher, _jobs(tmp_path, iterations=1), lambda iteration: None)


def test_a_killed_rank_takes_the_run_down_within_five_seconds(tmp_path: Path) -> None:
    pids: dict[int, int] = {}
    killed_at = 0.0

    def kill_rank_1(iteration: int) -> None:
        nonlocal killed_at
        if iteration == 1:
            pids.update(_pids(launcher))
            killed_at = time.monotonic()
            os.kill(pids[1], signal.SIGKILL)

    with Launcher() as launcher, pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL"):
        _run(launcher, _jobs(tmp_path, iterations=100_000), kill_rank_1)
    took = time.monotonic() - killed_at
    assert took < 5 * slowdown()
    assert all(_gone(pid) for pid in pids.values())


def test_a_failing_rank_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with Launcher() as launcher, pytest.raises(RankFailed) as failure:
        _run(launcher, _jobs(tmp_path, iterations=1, interface="nosuch0"), lambda i: None)
    assert failure.value.status == "exited with status 1"
    assert "nosuch0" in failure.value.stderr_tail


@pytest.mark.parametrize("per_process", [_RANKS, 2])
def test_packed_ranks_end_well(tmp_path: Path, per_process: int) -> None:
    begun: list[int] = []
    with Launcher() as launcher:
        _run(launcher, packed(_jobs(tmp_path, iterations=2), per_process), begun.append)
    assert begun == [0, 1]
    assert len(list(tmp_path.glob("*.jsonl"))) == _RANKS


@pytest.mark.parametrize("per_process", [_RANKS, 2])
def test_a_packed_rank_that_fails_is_named_with_its_own_last_words(
    tmp_path: Path, per_process: int
) -> None:
    jobs = packed(_jobs(tmp_path, iterations=1, broken=1), per_process)
    with Launcher() as launcher, pytest.raises(RankFailed) as failure:
        _run(launcher, jobs, lambda iteration: None)
    assert str(failure.value).startswith("rank 1 raised RuntimeError; its last words:\n")
    assert "nosuch0" in failure.value.stderr_tail
    assert not (tmp_path / "000.log").read_text().count("Traceback")


def test_a_killed_process_of_packed_ranks_is_named(tmp_path: Path) -> None:
    pids: dict[int, int] = {}

    def kill(iteration: int) -> None:
        if iteration == 1:
            pids.update(_pids(launcher))
            os.kill(pids[0], signal.SIGKILL)

    jobs = packed(_jobs(tmp_path, iterations=100_000), 2)
    said = "the process of ranks 0 to 1 was killed by SIGKILL"
    with Launcher() as launcher, pytest.raises(RankFailed, match=said):
        _run(launcher, jobs, kill)
    assert sorted(pids) == [0, 2]
    assert all(_gone(pid) for pid in pids.values())


@pytest.mark.parametrize("per_process", [None, 2])
def test_torch_makes_its_pool_before_a_process_has_threads(
    tmp_path: Path, per_process: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch raised "Invalid thread pool!" in one of two threads that came at once."""
    made = tmp_path / "made"

    def make_pool(threads: int) -> None:
        with made.open("a") as file:
            file.write(f"{os.getpid()} {threading.active_count()}\n")

    monkeypatch.setattr(torch, "set_num_threads", make_pool)
    jobs = _jobs(tmp_path, iterations=1)
    pids: set[int] = set()
    with Launcher() as launcher:
        _run(
            launcher,
            jobs if per_process is None else packed(jobs, per_process),
            lambda iteration: pids.update(launcher.running),
        )
    threads_of = {int(pid): int(threads) for pid, threads in map(str.split, _lines(made))}
    assert {threads_of[pid] for pid in pids} == {1}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with Launcher() as launcher:

            def tell(iteration: int) -> None:
                if iteration == 0:
                    os.write(writer, f"{list(launcher.running)}\n".encode())

            _run(launcher, _jobs(tmp_path, iterations=100_000), tell)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        pids = [int(text) for text in pipe.readline().strip("[]\n").split(",")]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 60
    while not all(_gone(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(_gone(pid) for pid in pids)
