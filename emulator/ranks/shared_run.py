"""Several jobs in one experiment: their processes, and what is known of them afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from emulator.network.network import Network
from emulator.ports.counters import TcpCounters
from emulator.progress import Progress, Report
from emulator.ranks.gate import Seat
from emulator.ranks.jobs_launcher import FailedJob, JobsLauncher
from emulator.ranks.jobs_server import JobProcesses
from emulator.ranks.processes import processes_of
from topologies.plan import PlacedJob
from topologies.spec.spec import Spec

JOBS = "jobs"
"""The jobs' own run directories, below that of the run."""


class SharedRun:
    """The jobs of a spec on a network that is up. Each writes into `jobs/NAME/`."""

    def __init__(
        self, spec: Spec, network: Network, run_directory: Path, real_time: bool, report: Report
    ) -> None:
        self._spec = spec
        self._network = network
        self._directory = run_directory
        self._real_time = real_time
        self._report = report
        self._origin_ns: int | None = None

    @contextmanager
    def processes(self) -> Iterator[list[JobProcesses]]:
        """The processes of a shared run. An idle job's ranks are there, too: what they connect
        takes the same ports, by which ECMP chooses paths, as where the job does something."""
        with ExitStack() as stack:
            found = []
            for number, job in enumerate(self._spec.jobs):
                directory = self._directory / JOBS / job.name
                (directory / "ranks").mkdir(parents=True)
                processes = stack.enter_context(
                    processes_of(
                        self._spec.of_job(job),
                        self._network,
                        directory,
                        self._real_time,
                        Seat(job.name, number, job.start_ns),
                        job.idle,
                    )
                )
                found.append(JobProcesses(job.name, tuple(processes)))
            yield found

    def run(
        self,
        launcher: JobsLauncher,
        jobs: Sequence[JobProcesses],
        on_origin: Callable[[int], None],
    ) -> dict[str, object]:
        """Run them to their ends; returns what environment.json has of it. Raises what the launcher
        raises."""
        iterations = {name: part.workload.iterations for name, part in self._spec.parts.items()}

        def begin(origin_ns: int) -> None:
            self._origin_ns = origin_ns
            on_origin(origin_ns)
            self._report(
                Progress(
                    "started",
                    "all jobs are ready: " + ", ".join(_in_words(job) for job in jobs),
                    processes=_names(jobs, launcher.rank_pids),
                )
            )

        def on_iteration(job: str, iteration: int) -> None:
            self._report(
                Progress(
                    "iteration",
                    iteration=iteration,
                    iterations=iterations[job],
                    clock_ns=time.monotonic_ns(),
                )
            )

        failed = launcher.run_jobs(jobs, begin, on_iteration)
        counters = self._network.tcp_counters()
        outcomes = [
            _outcome(placed, counters, failed.get(placed.name)) for placed in self._spec.plan.jobs
        ]
        return {"origin_ns": self._origin_ns, "jobs": outcomes}


def _outcome(
    placed: PlacedJob, counters: Mapping[str, TcpCounters], failed: FailedJob | None
) -> dict[str, object]:
    return {
        "name": placed.name,
        "hosts": list(placed.hosts),
        "retransmits": sum(counters[host].retransmits for host in dict.fromkeys(placed.hosts)),
        "failed": None if failed is None else failed.as_dict(),
    }


def _in_words(job: JobProcesses) -> str:
    many = len(job.processes)
    return f"{job.name} ({many} process{'es' if many != 1 else ''})"


def _names(jobs: Sequence[JobProcesses], pids: dict[int, int]) -> dict[str, str]:
    """The owner of each process, by its number as text."""
    found: dict[str, str] = {}
    every = [(job.name, process) for job in jobs for process in job.processes]
    for number, (name, process) in enumerate(every):
        if number in pids:
            found[str(pids[number])] = f"{process.who} of job {name}"
    return found
