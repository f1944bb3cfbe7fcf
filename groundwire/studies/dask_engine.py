"""The engine: Dask's distributed scheduler, with workers on this machine or anywhere.

A job needs `memory` bytes, a resource of Dask's workers, so that a worker never has more guests
than it has memory for. A worker that dies loses what it was running; Dask gives that to another.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.prepared_guest import guest_prepared
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.memory.host_memory import available_memory, mb
from groundwire.studies.engine import EngineError, JobEvent
from groundwire.studies.jobs import Job
from groundwire.studies.workers.worker import TOKEN, JobOutcome, Place, remove_parts, unpack, work
from topologies.extras import install_line
from topologies.spec.spec import parse_spec

RESOURCE = "memory"
_TOPIC = "groundwire-study"
_RESERVE_BYTES = 256 * 2**20
_ENDING_S = 30


@dataclass(frozen=True, slots=True)
class DaskEngine:
    """`scheduler` is the address of a running one; None makes a cluster of `workers` processes
    here (None: a guest per core, as far as the memory goes)."""

    scheduler: str | None = None
    workers: int | None = None
    timeout_s: float = 20

    def __call__(self, jobs: Sequence[Job], cases: Path, tell: Callable[[JobEvent], None]) -> None:
        """Raises EngineError when a job fits no worker, or when Dask is not installed."""
        if not jobs:
            return
        with ExitStack() as stack:
            if self.scheduler is None:  # workers here find what is in the environment
                stack.enter_context(_guest_prepared(jobs))
            client = stack.enter_context(self._client(jobs))
            _refuse_what_fits_nowhere(jobs, client)
            place = Place(str(cases.resolve()), secrets.token_hex(16))
            (cases / TOKEN).write_text(place.token)
            try:
                _run(client, jobs, place, tell)
            finally:
                (cases / TOKEN).unlink(missing_ok=True)
                remove_parts(cases)

    @contextmanager
    def _client(self, jobs: Sequence[Job]) -> Iterator[Any]:
        distributed = _distributed()
        if self.scheduler is not None:
            try:
                client = distributed.Client(
                    self.scheduler, timeout=self.timeout_s, set_as_default=False
                )
            except (OSError, ValueError, TypeError) as error:
                raise EngineError(f"no Dask scheduler answers at {self.scheduler}") from error
            with client:
                yield client
            return
        number, each_bytes = local_workers(jobs, self.workers)
        # A worker's own memory is small: what jobs take, they take in processes of their own.
        with (
            distributed.LocalCluster(
                n_workers=number,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                resources={RESOURCE: each_bytes},
                dashboard_address="127.0.0.1:0",  # any port: others may have studies, too
                silence_logs=logging.CRITICAL,
                preload=["groundwire.studies.workers.worker_preload"],
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client


@contextmanager
def _guest_prepared(jobs: Sequence[Job]) -> Iterator[None]:
    """One guest boots for all of the runs that a copy of it serves."""
    runs = [job for job in jobs if job.kind == "emulate" and job.kernel == "virtual"]
    with ExitStack() as stack:
        if runs:
            specs = [parse_spec(job.spec, job.key) for job in runs]
            with suppress(VirtualKernelError):  # each run says so
                stack.enter_context(guest_prepared(ensure_kernel(lambda line: None), specs))
        yield


def local_workers(jobs: Sequence[Job], wanted: int | None) -> tuple[int, int]:
    """How many workers this machine has for these jobs, and the memory that each may use: one per
    core, as long as each has room for the largest job. Jobs on this machine's own kernel would
    disturb each other, so there is one worker then. Raises EngineError."""
    largest = max(jobs, key=lambda job: job.memory_bytes)
    available = available_memory()
    usable_bytes = available.size_bytes - _RESERVE_BYTES
    fitting = usable_bytes // largest.memory_bytes
    if fitting < max(1, wanted or 1):
        many = f"{wanted} workers need" if (wanted or 1) > 1 else "needs"
        raise EngineError(
            f"{largest.label}: its job {many} {mb(largest.memory_bytes)} each; {available.words}, "
            f"and {mb(_RESERVE_BYTES)} of it are kept for others"
        )
    cores = len(os.sched_getaffinity(0))
    native = any(job.kind == "emulate" and job.kernel == "native" for job in jobs)
    number = wanted or (1 if native else max(1, min(cores, fitting, len(jobs))))
    return number, usable_bytes // number


def run_here(job: Job, place: Place) -> JobOutcome:
    """A task of Dask's: tells that it has begun, and looks whether it has been cancelled."""
    distributed = _distributed()
    worker = distributed.get_worker()
    key = worker.get_current_task()
    worker.log_event(_TOPIC, {"key": job.key, "worker": worker.address})

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return work(job, place, cancelled)


def _run(client: Any, jobs: Sequence[Job], place: Place, tell: Callable[[JobEvent], None]) -> None:
    distributed = _distributed()
    by_key = {job.key: job for job in jobs}
    ended: set[str] = set()

    def on_event(event: Any) -> None:
        _, content = event
        job = by_key.get(content["key"])
        if job is not None and job.key not in ended:
            tell(JobEvent(job, "running", content["worker"]))

    client.subscribe_topic(_TOPIC, on_event)
    futures = {
        client.submit(
            run_here,
            job,
            place,
            key=f"groundwire-{job.key}-{place.token[:8]}",
            resources={RESOURCE: job.memory_bytes},
            priority=-position,
            retries=0,
        ): job
        for position, job in enumerate(jobs)
    }
    try:
        for future in distributed.as_completed(list(futures), loop=client.loop):
            job = futures[future]
            ended.add(job.key)
            failure = _outcome(future, Path(place.directory))
            tell(JobEvent(job, "done" if failure is None else "failed", failure=failure))
            future.release()
    except BaseException:
        with suppress(Exception):
            _cancel(client, [future for future, job in futures.items() if job.key not in ended])
        raise
    finally:
        with suppress(Exception):
            client.unsubscribe_topic(_TOPIC)


def _outcome(future: Any, cases: Path) -> str | None:
    """Puts what came back into its place; returns why there is nothing."""
    try:
        outcome: JobOutcome = future.result()
    except Exception as error:
        # Dask's own: a worker that died again and again, a task that cannot be sent.
        return f"{type(error).__name__}: {error}"
    if outcome.failure is None:
        unpack(outcome, cases)
    return outcome.failure


def _cancel(client: Any, futures: Sequence[Any]) -> None:
    """Have workers end what they run, and wait until they have."""
    import time

    client.cancel(list(futures), force=True)
    deadline = time.monotonic() + _ENDING_S
    while time.monotonic() < deadline:
        executing = client.run(_executing)
        if not any(executing.values()):
            return
        time.sleep(0.1)


def _executing(dask_worker: Any) -> int:
    """Called at each worker: how many of our tasks it still has in its hands."""
    return sum(str(key).startswith("groundwire-") for key in dask_worker.active_threads.values())


def _refuse_what_fits_nowhere(jobs: Sequence[Job], client: Any) -> None:
    """Raises EngineError when no worker has the memory of a job: it would wait for ever."""
    client.wait_for_workers(1, timeout=60)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    most = max((worker["resources"].get(RESOURCE, 0) for worker in workers), default=0)
    largest = max(jobs, key=lambda job: job.memory_bytes)
    if largest.memory_bytes > most:
        raise EngineError(
            f"{largest.label}: its job needs {mb(largest.memory_bytes)}; of "
            f"{len(workers)} workers none says that it has more than {mb(int(most))}. Start "
            f'workers with --resources "{RESOURCE}=BYTES"'
        )


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise EngineError(
            f"studies are run by Dask, which is not installed: {install_line('studies')}"
        ) from error
    return distributed
