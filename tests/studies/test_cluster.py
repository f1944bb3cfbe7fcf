"""Real small runs on a local cluster of two workers: a worker's death, an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import LocalCluster

from analysis.studies.effects import effects_of
from emulator.virtual.building.build import find_kernel
from groundwire.studies.dask_engine import DaskEngine, local_workers
from groundwire.studies.engine import EngineError
from groundwire.studies.jobs import Job
from groundwire.studies.planning import plan_study
from groundwire.studies.study import study
from groundwire.studies.watch import StudyProgress
from groundwire.studies.workers.worker import Place, unpack, work
from tests.session.command import ROOT
from tests.session.leftovers import left_by
from tests.studies.small_study import (
    SMALL_STUDY,
    job_processes,
    kill_a_worker,
    one_after_the_other,
    small_study,
)

_PATIENCE_S = 120
needs_kernel = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)


@needs_kernel
def test_a_killed_worker_changes_nothing_but_the_time(tmp_path: Path) -> None:
    """One study without Dask; the same on two workers, of which one is killed while it runs a
    case."""
    path = small_study(tmp_path)
    quiet = study(path, out=tmp_path / "quiet", engine=one_after_the_other)
    assert quiet.failed == 0
    killed = threading.Event()
    begun: list[Job] = []

    def kill() -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and not killed.is_set():
            time.sleep(0.02)
            if kill_a_worker(os.getpid(), begun):
                killed.set()

    def watch(progress: StudyProgress) -> None:
        if progress.event is not None and progress.event.state == "running":
            begun.append(progress.event.job)

    killer = threading.Thread(target=kill)
    killer.start()
    troubled = study(path, out=tmp_path / "troubled", engine=DaskEngine(workers=2), progress=watch)
    killer.join()
    assert killed.is_set()
    assert troubled.failed == 0
    assert len(begun) > len({job.key for job in begun}), "no job has begun twice"
    for name in ("table.csv", "table.parquet", "study.html", "study.json"):
        assert (quiet.directory / name).read_bytes() == (troubled.directory / name).read_bytes()
    assert not list((troubled.directory / "cases").glob(".*"))
    rates = [case.responses["iteration_ns"] for case in quiet.cases.cases]
    assert rates[0] is not None and rates[1] is not None and rates[0] > 1.5 * rates[1]


@needs_kernel
def test_ctrl_c_leaves_no_guest_and_the_next_time_goes_on(tmp_path: Path) -> None:
    """As a terminal sends it: to every process of the command."""
    path, out = small_study(tmp_path), tmp_path / "out"
    text = path.read_text().replace("ranks: 2\n", "ranks: 2\n    iterations: 100000\n", 1)
    path.write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "groundwire.cli", "study", str(path), "--out", str(out)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    jobs: list[int] = []
    guests: list[Path] = []
    deadline = time.monotonic() + _PATIENCE_S
    while not guests and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
        jobs = job_processes(process.pid)
        guests = [g for job in jobs for g in Path("/dev/shm").glob(f"groundwire-guest-{job}-*")]
    assert guests, process.stderr.read() if process.stderr and process.poll() is not None else ""
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(_PATIENCE_S) == 130
    assert said.strip().endswith("groundwire: interrupted")
    assert "Traceback" not in said
    assert [left for job in jobs for left in left_by(job)] == []
    assert not list((out / "cases").glob(".part-*"))
    assert not (out / "table.csv").exists()


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A scheduler of somebody else's, with two workers."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address="127.0.0.1:0",
        resources={"memory": 4e9},
    ) as made:
        yield made


@needs_kernel
def test_what_runs_at_workers_elsewhere_ends_with_the_study(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    """Interrupted when the prediction is done, while the run would go on for long."""
    text = SMALL_STUDY.replace("ranks: 2\n", "ranks: 2\n    iterations: 100000\n", 1)
    text = text.replace("[5Gbps, 10Gbps]", "[5Gbps]")
    jobs: list[int] = []

    def interrupt(progress: StudyProgress) -> None:
        event = progress.event
        if event is not None and event.job.kind == "predict" and event.state == "done":
            deadline = time.monotonic() + _PATIENCE_S
            while not jobs and time.monotonic() < deadline:  # its server may still import
                jobs.extend(job_processes(os.getpid()))
                time.sleep(0.05)
            raise KeyboardInterrupt

    engine = DaskEngine(scheduler=cluster.scheduler_address)
    with pytest.raises(KeyboardInterrupt):
        study(small_study(tmp_path, text), out=tmp_path / "out", engine=engine, progress=interrupt)
    assert len(jobs) == 1
    assert job_processes(os.getpid()) == []
    assert left_by(jobs[0]) == []
    assert len(list((tmp_path / "out" / "cases").glob("*"))) == 1


def test_a_job_that_fits_no_worker_is_told(tmp_path: Path, cluster: LocalCluster) -> None:
    text = SMALL_STUDY + "set: {virtual.memory: 5GB}\n"
    engine = DaskEngine(scheduler=cluster.scheduler_address)
    with pytest.raises(EngineError, match=r"its job needs 5,419 MB; of 2 workers none .* 4,000 MB"):
        study(small_study(tmp_path, text), out=tmp_path / "out", engine=engine)


def test_without_a_scheduler_at_the_address_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        study(
            small_study(tmp_path),
            out=tmp_path / "out",
            engine=DaskEngine(scheduler="tcp://127.0.0.1:1", timeout_s=1),
        )


def test_more_workers_than_memory_are_refused(tmp_path: Path) -> None:
    jobs = plan_study(small_study(tmp_path)).jobs
    number, each_bytes = local_workers(jobs, None)
    assert number >= 1
    assert each_bytes >= max(job.memory_bytes for job in jobs)
    with pytest.raises(EngineError, match=r"100000 workers need .* MB each; "):
        local_workers(jobs, 100_000)


def test_workers_elsewhere_send_what_they_make(tmp_path: Path) -> None:
    """A worker that does not see the study's directory sends an archive of the case's."""
    text = SMALL_STUDY + "emulate_up_to_ranks: 0\n"
    job = plan_study(small_study(tmp_path, text)).jobs[0]
    cases = tmp_path / "cases"
    cases.mkdir()
    outcome = work(job, Place(str(tmp_path / "nowhere"), "token"), lambda: False)
    assert outcome.failure is None
    unpack(outcome, cases)
    answer = json.loads((cases / job.key / "prediction.json").read_text())
    assert answer["duration_ns"] > 1_000_000


def test_a_job_of_other_software_is_refused(tmp_path: Path) -> None:
    text = SMALL_STUDY + "emulate_up_to_ranks: 0\n"
    job = plan_study(small_study(tmp_path, text)).jobs[0]
    other = replace(job, made_by=(("groundwire", "0.0.1"),))
    outcome = work(other, Place(str(tmp_path / "nowhere"), ""), lambda: False)
    assert outcome.failure is not None
    assert "has other software than the study" in outcome.failure
    assert outcome.failure.endswith("expected groundwire 0.0.1")
    assert "Traceback" not in outcome.failure


@pytest.mark.long
@needs_kernel
@pytest.mark.timeout(3000)
def test_the_six_factors_that_ship_say_what_decides(tmp_path: Path) -> None:
    """A quarter of the link rate is four times the time of what is bound by it: no other factor
    does as much."""
    path = ROOT / "studies" / "six-factors.yaml"
    done = study(path, out=tmp_path / "six")
    assert (done.failed, done.invalid) == (0, 0)
    effects = effects_of(done.cases, "iteration_ns")
    assert effects is not None
    assert effects.cases >= 60
    assert effects.variance.balanced
    assert effects.variance.by_share[0].names == ("hardware",)
    assert all(term.aliased == 0 for term in effects.variance.terms)
    hardware = next(main for main in effects.mains if main.factor == "hardware")
    assert 2 < hardware.levels[0].mean / hardware.levels[1].mean <= 4.2
    assert all(case.error is not None for case in done.cases.cases)
