"""A study of two small runs, and its processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from groundwire.studies.engine import JobEvent
from groundwire.studies.jobs import Job
from groundwire.studies.workers.worker import TOKEN, Place, work

SMALL_STUDY = """
spec:
  fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
  workload:
    kind: collectives
    ranks: 2
    operations: [{kind: all_reduce, size: 1MB}]
  capture: {points: []}
  predict: []
factors:
  fabric.link.rate: [5Gbps, 10Gbps]
responses: [iteration_ns]
"""


def small_study(directory: Path, text: str = SMALL_STUDY) -> Path:
    """Its file, small.yaml."""
    path = directory / "small.yaml"
    path.write_text(text)
    return path


def one_after_the_other(jobs: Sequence[Job], cases: Path, tell: Callable[[JobEvent], None]) -> None:
    """An engine without Dask, and so without other workers."""
    (cases / TOKEN).write_text("seen")
    for job in jobs:
        assert work(job, Place(str(cases), "seen"), lambda: False).failure is None
    (cases / TOKEN).unlink()


def job_processes(above: int) -> list[int]:
    """The processes of jobs whose worker is below this process: forks of their servers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            process = at = int(entry.name)
            is_job = _is_server(process) and _is_server(parent(process))
            while is_job and at not in (0, 1, above):
                at = parent(at)
        except OSError:
            continue
        if is_job and at == above:
            found.append(process)
    return found


def _is_server(process: int) -> bool:
    """Whether a process is a server of jobs, or forked from one."""
    return b"groundwire.studies.workers.job_server" in Path(f"/proc/{process}/cmdline").read_bytes()


def parent(process: int) -> int:
    """Raises OSError for one that has ended."""
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def kill_a_worker(above: int, begun: Sequence[Job]) -> bool:
    """Kill the worker, below process `above`, of a job of which it is known that it has begun.
    Returns whether there was one. The job is held meanwhile, so that no other takes its place."""
    known = [json.loads(json.dumps(asdict(job))) for job in begun]
    for process in job_processes(above):
        try:
            os.kill(process, signal.SIGSTOP)
            if json.loads(Path(f"/proc/{process}/fd/0").read_text()) in known:
                os.kill(parent(parent(process)), signal.SIGKILL)
                return True
        except (OSError, ValueError):  # it has just ended, or is not what it will be yet
            continue
        finally:
            with suppress(OSError):
                os.kill(process, signal.SIGCONT)
    return False
