"""A study on workers of other machines, of which one is killed in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster

from emulator.virtual.building.build import find_kernel
from groundwire.studies.dask_engine import DaskEngine
from groundwire.studies.jobs import Job
from groundwire.studies.study import study
from groundwire.studies.watch import StudyProgress
from tests.remote.ssh_host import SshHost, missing
from tests.studies.small_study import kill_a_worker, one_after_the_other, small_study

_MISSING = missing()
_PATIENCE_S = 120
pytestmark = [
    pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING)),
    pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)"),
]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[SshHost]]:
    """Two, which see no file of the study."""
    made = []
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            made.append(SshHost(tmp_path / name / "host"))
        yield made
    finally:
        for host in made:
            host.die()


@pytest.fixture
def scheduler(hosts: list[SshHost]) -> Iterator[str]:
    """With a worker on each host, started as docs/studies.md has it."""
    with LocalCluster(
        n_workers=0, host=hosts[0].gateway, dashboard_address="127.0.0.1:0"
    ) as cluster:
        workers = [
            host.ssh(
                "~/groundwire/app/.venv/bin/dask", "worker", cluster.scheduler_address,
                "--nthreads", "1", "--resources", "memory=4e9", "--no-dashboard",
                "--local-directory", "/home/dask",
            )
            for host in hosts
        ]  # fmt: skip
        try:
            cluster.wait_for_workers(2, timeout=_PATIENCE_S)
            yield cluster.scheduler_address
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()


def test_two_ssh_hosts_make_the_same_tables_also_when_a_worker_is_killed(
    tmp_path: Path, hosts: list[SshHost], scheduler: str
) -> None:
    path = small_study(tmp_path)
    quiet = study(path, out=tmp_path / "quiet", engine=one_after_the_other)
    assert quiet.failed == 0
    begun: list[Job] = []
    killed = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and not killed.is_set():
            time.sleep(0.02)
            if kill_a_worker(hosts[1].process, begun):
                killed.set()

    def watch(progress: StudyProgress) -> None:
        if progress.event is not None and progress.event.state == "running":
            begun.append(progress.event.job)

    killer = threading.Thread(target=kill)
    killer.start()
    engine = DaskEngine(scheduler=scheduler)
    troubled = study(path, out=tmp_path / "troubled", engine=engine, progress=watch)
    killer.join()
    assert killed.is_set()
    assert troubled.failed == 0
    assert len(begun) > len({job.key for job in begun}), "no job has begun twice"
    for name in ("table.csv", "table.parquet", "study.html", "study.json"):
        assert (quiet.directory / name).read_bytes() == (troubled.directory / name).read_bytes()
