"""The processes of a run's jobs: ranks of ours, or programs of users."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from collectives.settings import settings_of
from emulator.job_directories import job_directory
from emulator.network.network import Network
from emulator.ranks.aggregation.manager import AggregationManager
from emulator.ranks.aggregation.process import Trees
from emulator.ranks.copies.place import copies_place
from emulator.ranks.gate import Seat
from emulator.ranks.packed_process import packed
from emulator.ranks.packing import ranks_per_process
from emulator.ranks.program_jobs import program_jobs, store_port
from emulator.ranks.rank_process import RankJob
from emulator.ranks.server import JobProcesses, Process
from emulator.transports import emulated
from topologies.spec.spec import Spec
from workloads.execution.rank_plan import RankPlan
from workloads.execution.traffic_class import TrafficOfGroups
from workloads.observer import POSTS


@contextmanager
def processes_of_jobs(
    spec: Spec, network: Network, run_directory: Path, real_time: bool
) -> Iterator[list[JobProcesses]]:
    """The jobs of a run. The one of a spec with one workload writes into the run directory, each of
    several into `jobs/NAME/`. An idle job's ranks are there, too: what they connect takes the same
    ports, by which ECMP chooses paths, as where the job does something."""
    parts: list[tuple[str, Spec, Path, Seat | None, bool]] = [
        (
            job.name,
            spec.of_job(job),
            job_directory(run_directory, job.name),
            Seat(job.name, number, job.start_ns),
            job.idle,
        )
        for number, job in enumerate(spec.jobs)
    ]
    manager = AggregationManager(spec, network)
    with ExitStack() as stack:
        found = []
        for name, part, directory, seat, idle in parts or [
            ("", spec, run_directory, None, spec.virtual.connect_only)
        ]:
            (directory / "ranks").mkdir(parents=True)
            own = _processes_of(part, network, directory, real_time, seat, idle, manager)
            found.append(JobProcesses(name, tuple(stack.enter_context(own))))
        yield found


@contextmanager
def _processes_of(
    spec: Spec,
    network: Network,
    run_directory: Path,
    real_time: bool,
    seat: Seat | None,
    idle: bool,
    manager: AggregationManager,
) -> Iterator[Sequence[Process]]:
    """The processes of a spec with one workload. With a `seat` it is one of several jobs, and when
    it is `idle` its ranks are connected and do nothing. The `manager` gives the groups of programs
    their trees."""
    processes: list[Process]
    if spec.workload.program is not None:
        own = "" if seat is None else seat.job
        with (
            manager.program(own) as asked,
            program_jobs(
                spec, spec.workload.program, network, run_directory, real_time, seat, asked
            ) as programs,
        ):
            processes = [*programs]
            if asked is not None:
                names = _write_names(network, run_directory)
                processes += manager.nodes(own, asked, run_directory / "ranks", names, real_time)
            yield [] if idle else processes
        return
    names = _write_names(network, run_directory)
    traffic = TrafficOfGroups.of_spec(spec)
    trees = Trees.of_run(settings_of(spec), spec.plan.hosts, network, traffic, seat)
    jobs = _ranks(spec, network, run_directory, names, real_time, seat, idle, trees, traffic)
    threads = 1 if real_time else ranks_per_process(spec)
    processes = [*(packed(jobs, threads) if threads > 1 else jobs)]
    if trees is not None:
        processes += trees.jobs(network, run_directory / "ranks", names, real_time, spec.payload)
    posts = run_directory / "ranks" / POSTS
    posts.mkdir()
    try:
        yield processes
    finally:
        shutil.rmtree(posts, ignore_errors=True)


def _write_names(network: Network, run_directory: Path) -> Path:
    """The fabric's names, as /etc/hosts has them."""
    names = run_directory / "ranks" / "hosts"
    names.write_text(
        "127.0.0.1 localhost\n"
        + "".join(
            f"{n.address} {n.name}\n::ffff:{n.address} {n.name}\n" for n in network.fabric.nodes
        )
    )
    return names


def _ranks(
    spec: Spec,
    network: Network,
    run_directory: Path,
    names: Path,
    real_time: bool,
    seat: Seat | None,
    idle: bool,
    trees: Trees | None,
    traffic: TrafficOfGroups,
) -> list[RankJob]:
    # A rank that really computes never sleeps, and would keep the fabric's own work waiting.
    real_time_priority = real_time and spec.compute.device != "real"
    fabric, hosts = network.fabric, spec.plan.hosts
    addresses = tuple(str(fabric.by_name[host].address) for host in hosts)
    ranks = run_directory / "ranks"
    workload = spec.workload.model_copy(update={"iterations": 0}) if idle else spec.workload
    return [
        RankJob(
            RankPlan(
                rank=rank,
                hosts=hosts,
                addresses=addresses,
                interface=fabric.links_of[host][0].port(host).interface,
                store_port=store_port(seat),
                workload=workload,
                compute=spec.compute,
                seed=spec.seed,
                events=ranks / f"{rank:03d}.jsonl",
                collectives=settings_of(spec),
                payload=spec.payload,
                lazy=not real_time and spec.virtual.connections == "lazy",
                aligned=seat is None,
                classes=traffic.by_members,
                real_time=real_time,
                trees={} if trees is None else trees.places_of(rank, network),
                place=emulated(spec).place(spec, network, host, ranks),
                connections=spec.between_sockets,
                copies=copies_place(network, host, seat),
            ),
            netns=network.netns_path(host),
            names=names,
            stderr=ranks / f"{rank:03d}.log",
            real_time_priority=real_time_priority,
            traffic=traffic.of_ranks,
            seat=seat,
        )
        for rank, host in enumerate(hosts)
    ]
