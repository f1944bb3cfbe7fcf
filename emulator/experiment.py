"""One experiment inside a kernel where we are root: fabric up, capture, ranks, counters, down.

It does not know which kernel that is. Everything that it learns goes into the run directory.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from collectives.in_network.of_run import nodes_of
from collectives.in_network.on_demand import makes_trees, nodes_on_demand
from collectives.settings import settings_of
from emulator.capture import Capture, CaptureStats, capture_ports, start_capture
from emulator.fidelity import FidelityMonitor, busy_pollers
from emulator.job_directories import job_directory
from emulator.linux.namespaces import become_host, enter
from emulator.linux.random_numbers import renew_random_numbers
from emulator.linux.real_time import real_time_priority
from emulator.linux.scheduling import order_threads
from emulator.network.faults import FaultInjector, ProcessOrder
from emulator.network.network import Network, NetworkOptions
from emulator.network.samples import write_samples
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import PortArrangement
from emulator.progress import STANDS, Progress, Report
from emulator.ranks.aggregation.process import AggregationJob
from emulator.ranks.copies.broker import CopyBroker
from emulator.ranks.failures.hang_watch import HangWatch
from emulator.ranks.launcher import FailedJob, Launcher
from emulator.ranks.moments import moments_heard
from emulator.ranks.processes import processes_of_jobs
from emulator.ranks.program import ProgramJob
from emulator.ranks.seen_calls import LIVE, SeenCalls
from emulator.ranks.server import JobProcesses
from emulator.ranks.simulated.network import Counters, SimulatedNetwork
from emulator.ranks.traffic import tells_traffic, traffic_heard
from emulator.stand_still import stand_still
from emulator.transports import emulated
from topologies.fabrics.fabric import Fabric
from topologies.spec.queue_section import ClassQueue, Credits, Lossless, queues_in
from topologies.spec.run_sections import Kill, MemoryLimit, ProcessFault
from topologies.spec.spec import Spec
from workloads.execution.clock import round_time_ns, sleep_until_ns

# In virtual time a fabric is made at a round time, once the launcher has imported everything: ports
# sample their backlog from when they were made on.
_IMPORT_MARGIN_NS = 50_000_000
_FABRIC_GRID_NS = 100_000_000
_FAULTS_LATE_NS = 10_000_000
"""How late a fault may begin or end natively: a hundred times what it takes on an idle machine."""
_PACKAGES = ("groundwire", "torch", "scapy", "numpy")


@dataclass(frozen=True)
class KernelProfile:
    """The kernel that an experiment runs in: how a port of a fabric is made,
    whether time is real, so that the machine can fail to keep up with it, and whether it can count
    what ports send while they are busy."""

    arrange: Callable[[Fabric], PortArrangement]
    real_time: bool
    watches_ports: bool = False


class DeadlockFound(RuntimeError):
    """The lossless queues of the fabric wait for each other; the run cannot come to an end."""


def run_experiment(
    spec: Spec,
    run_directory: Path,
    kernel: KernelProfile,
    report: Report,
    prepared: Launcher | None = None,
    seed: int | None = None,
    until: Until | None = None,
) -> None:
    """Run `spec` and fill `run_directory`, which has the resolved spec already. Needs root.

    `prepared` is a launcher of one job's ranks that is entered already; `seed` is one of random
    numbers besides the guest's own.
    A run with `until` stands still at its time, counted from when its programs are started.

    `run_directory/measured.json` says what the run itself cannot: counters, the kernel, the
    verdict. Raises RankFailed when a rank ends badly, DeadlockFound, RunHangs, OSError with the
    kernel's own message when it refuses a request, RuntimeError when the ranks cannot be started.
    Whatever was made is gone afterwards.
    """
    with ExitStack() as stack:
        # First, so that it imports torch while the fabric is built.
        launcher = prepared or stack.enter_context(_launcher(spec, kernel.real_time))
        launcher.on_output = lambda stream, line: report(Progress(stream, line))
        fabric, hosts = spec.plan.fabric, spec.plan.hosts
        lossless = any(isinstance(queue, Lossless | Credits) for queue in _queues(fabric))
        if lossless:
            from emulator.network.deadlock import DeadlockWatch
        options = NetworkOptions(
            arrangement=kernel.arrange(fabric),
            transport=_transport(spec),
            hash_seed=spec.seed,
            receive_coalescing_ns=spec.held_ns,
            watched=kernel.watches_ports,
            aggregating=_aggregating(spec),
            set_up=emulated(spec).set_up(spec),
        )
        if not kernel.real_time:
            sleep_until_ns(round_time_ns(_IMPORT_MARGIN_NS, _FABRIC_GRID_NS))
            renew_random_numbers(seed)
        if spec.virtual.thread_order:
            order_threads(spec.virtual.thread_order)
        network = stack.enter_context(Network(fabric, spec.plan.routes, options))
        report(
            Progress(
                "fabric",
                f"fabric up: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches, "
                f"{len(fabric.links)} links",
            )
        )
        monitor = FidelityMonitor(network, kernel.real_time)
        stack.callback(monitor.stop)
        faults = stack.enter_context(
            FaultInjector(
                network,
                spec.faults,
                real_time_priority=kernel.real_time,
                kill_node=lambda switch: launcher.kill_node(switch),
                order=partial(_order, launcher, _hosts_of_jobs(spec)),
            )
        )
        if any(fault.at_ns is None for fault in spec.faults):
            stack.enter_context(moments_heard(network, faults.on_moment))
        capture = _start_capture(spec, kernel, network, run_directory)
        if capture is not None:
            stack.enter_context(capture)
        if lossless:
            stack.enter_context(
                DeadlockWatch(network, lambda found: launcher.stop(DeadlockFound(str(found))))
            )

        places = [
            (job, job_directory(run_directory, job) / "ranks", many)
            for job, many in spec.ranks_by_job.items()
        ]
        origin: list[int] = []
        iterations = {name: part.workload.iterations for name, part in spec.parts.items()}

        live = run_directory / LIVE
        noted = not kernel.real_time and live.is_dir()
        seen = SeenCalls([(job, place) for job, place, _ in places])

        def note_calls() -> None:
            if noted:
                seen.look()
                seen.write(live)

        def on_iteration(job: str, iteration: int) -> None:
            note_calls()
            if not job:  # else the common time of the jobs counts
                if iteration == 0:
                    monitor.start(launcher.running)
                faults.on_iteration(iteration, launcher.iteration_began_ns)
            report(
                Progress(
                    "iteration",
                    iteration=iteration,
                    iterations=iterations[job or spec.name],
                    clock_ns=time.monotonic_ns(),
                )
            )

        def on_origin(origin_ns: int) -> None:
            origin.append(origin_ns)
            monitor.start(launcher.running)
            faults.on_iteration(0, origin_ns)
            report(_started(spec, jobs, launcher, origin_ns))
            if until is not None:
                stand_still(
                    origin_ns + until.at_ns,
                    until.socket,
                    lambda: report(Progress(STANDS)),
                    partial(_become_host, network, jobs),
                )

        if tells_traffic(spec):
            stack.enter_context(traffic_heard(spec, network, report))
        simulated = None
        if spec.simulated:
            simulated = stack.enter_context(SimulatedNetwork.serving(network, run_directory))
        copies = stack.enter_context(CopyBroker.serving(network, spec.payload != "timing"))
        jobs = stack.enter_context(
            processes_of_jobs(spec, network, run_directory, kernel.real_time)
        )
        stack.enter_context(
            HangWatch(
                network,
                launcher,
                run_directory,
                places,
                spec.hang_after_ns,
                launcher.stop,
                capture.flush if capture is not None else lambda: None,
                real_time=kernel.real_time,
            )
        )
        with real_time_priority(kernel.real_time):  # faults wait for word of an iteration
            failed = launcher.run(jobs, on_iteration, on_origin, seed)
        note_calls()
        monitor.stop()
        report(Progress("collect", "all ranks done, reading the counters"))
        captured = capture.stop() if capture is not None else []
        if not spec.capture.points:
            shutil.rmtree(run_directory / "capture", ignore_errors=True)
        sampled = spec.counters.interval_ns is not None and not kernel.real_time
        sampled = sampled and simulated is None
        if sampled and isinstance(spec.counters.interval_ns, int):
            # The last sample then counts what links.jsonl counts.
            sleep_until_ns(time.monotonic_ns() + spec.counters.interval_ns)
        simulated_counters = None if simulated is None else simulated.finish()
        copies.write(run_directory)
        _write_links(network, run_directory, simulated_counters, copies.carried())
        if sampled:
            write_samples(network, run_directory / "ports.jsonl", copies.spans)
        emulated(spec).write_samples(network, run_directory)
        measured = _measured(spec, hosts, network, captured)
        late_ns = faults.worst_lateness_ns if kernel.real_time else 0
        measured["verdict"] = _verdict(monitor, captured, network, late_ns)
        if spec.jobs:
            measured |= {"origin_ns": origin[0] if origin else None}
            measured |= {"jobs": _outcomes(spec, network, failed)}
        if simulated_counters is not None:
            measured |= {"simulated": simulated_counters.as_dict()}
            measured["retransmits"] = simulated_counters.retransmits
        measured["lost_nodes"] = launcher.lost_nodes
        measured["faults"] = [event.as_dict() for event in faults.events]
        measured["missed_faults"] = faults.missed
        (run_directory / "measured.json").write_text(json.dumps(measured, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class Until:
    """When a run stands still, and the socket of the machine below at which copies are asked
    for then."""

    at_ns: int
    socket: int


def _become_host(network: Network, jobs: Sequence[JobProcesses], host: str) -> None:
    """Become a process of a node of the fabric, one of its programs' where it has some. Raises
    OSError."""
    for job in jobs:
        for process in job.processes:
            if isinstance(process, ProgramJob) and process.host == host:
                become_host(host, process.place)
                os.chdir(process.directory)
                return
    if host not in network.fabric.by_name:
        names = ", ".join(node.name for node in network.fabric.nodes)
        raise OSError(errno.ENOENT, f"no such node; the fabric has {names}")
    enter(network.netns_path(host))


def _hosts_of_jobs(spec: Spec) -> dict[str, Sequence[str]]:
    """The hosts of each job's ranks, by its name; the only job has none."""
    if not spec.jobs:
        return {"": spec.plan.hosts}
    return {job.name: spec.plan.job(job.name).hosts for job in spec.jobs}


def _order(
    launcher: Launcher,
    hosts: Mapping[str, Sequence[str]],
    order: ProcessOrder,
    fault: ProcessFault,
) -> None:
    """Have the programs of a fault's ranks killed, or what it wants; `hosts` are those of each
    job's ranks. The only job has no name."""
    victims: dict[str, Sequence[int]] = {}
    for job, places in hosts.items():
        if fault.job is not None and job and fault.job != job:
            continue
        if fault.rank is not None:
            victims[job] = [fault.rank]
        elif isinstance(fault, Kill) and fault.host is not None:
            victims[job] = [rank for rank, host in enumerate(places) if host == fault.host]
        else:
            victims[job] = range(len(places))
    again = isinstance(fault, Kill) and fault.restart_ns is not None
    more_bytes = fault.value if isinstance(fault, MemoryLimit) else 0
    launcher.order(order, victims, whole=fault.rank is None, again=again, more_bytes=more_bytes)


def _launcher(spec: Spec, real_time: bool) -> Launcher:
    parts = [spec.of_job(job) for job in spec.jobs] or [spec]
    with_torch = any(part.workload.program is None or makes_trees(part) for part in parts)
    return Launcher(
        with_torch, preload=emulated(spec).preloaded_natively(spec) if real_time else ()
    )


def _started(
    spec: Spec, jobs: Sequence[JobProcesses], launcher: Launcher, origin_ns: int
) -> Progress:
    """Several jobs begin, or a program, of which only that is known, has been started."""
    if not spec.jobs:
        workload = spec.workload.program
        assert workload is not None
        many = workload.ranks // workload.ranks_per_process
        return Progress(
            "started",
            f"{many} processes started on {workload.hosts} hosts, one per {workload.per}: "
            + shlex.join(workload.argv),
            clock_ns=origin_ns,
            processes={
                str(pid): f"rank {r.process.rank}"
                for pid, r in launcher.running.items()
                if not isinstance(r.process, AggregationJob)
            },
        )
    many_of = {job.name: len(job.processes) for job in jobs}
    in_words = (f"{job} ({n} process{'es' if n != 1 else ''})" for job, n in many_of.items())
    return Progress(
        "started",
        "all jobs are ready: " + ", ".join(in_words),
        clock_ns=origin_ns,
        processes={
            str(pid): f"{r.process.who} of job {r.job}" for pid, r in launcher.running.items()
        },
    )


def _outcomes(
    spec: Spec, network: Network, failed: Mapping[str, FailedJob]
) -> list[dict[str, object]]:
    """Each of several jobs, as environment.json has it."""
    counters = network.tcp_counters()
    return [
        {
            "name": placed.name,
            "hosts": list(placed.hosts),
            "retransmits": sum(counters[host].retransmits for host in dict.fromkeys(placed.hosts)),
            "failed": failed[placed.name].as_dict() if placed.name in failed else None,
        }
        for placed in spec.plan.jobs
    ]


def _queues(fabric: Fabric) -> list[ClassQueue]:
    ports = (port for link in fabric.links for port in (link.a, link.b))
    return [queue for port in ports for queue in queues_in(port.queue)]


def _aggregating(spec: Spec) -> frozenset[str]:
    """The switches that take part in collectives."""
    parts = [spec.of_job(job) for job in spec.jobs] or [spec]
    nodes = [node for part in parts for node in nodes_of(settings_of(part))]
    nodes += [node for part in parts for node in nodes_on_demand(part)]
    return frozenset(node.name for node in nodes)


def _transport(spec: Spec) -> TcpSettings:
    return TcpSettings(
        spec.tcp.congestion_control,
        spec.tcp.rcvbuf_bytes,
        spec.tcp.sndbuf_bytes,
        spec.ecn,
        spec.tcp.min_rto_ns,
        spec.tcp.initial_window,
    )


def _start_capture(
    spec: Spec, kernel: KernelProfile, network: Network, run_directory: Path
) -> Capture | None:
    """In virtual time a run that captures nothing starts the capture all the same: starting a
    process draws random numbers, from which TCP's ports come next, and so the paths that ECMP
    chooses. Capturing must not change them."""
    points = spec.capture.points
    if kernel.real_time and not points:
        return None
    return start_capture(
        capture_ports(network.fabric, points, network.netns_path),
        run_directory / "capture",
        spec.capture.snaplen_bytes,
        spec.capture.backend,
        spec.capture.filter,
        real_time=kernel.real_time,
        held_ns=spec.held_ns,
    )


def _write_links(
    network: Network,
    run_directory: Path,
    simulated: Counters | None,
    copied: Mapping[int, Mapping[str, int]],
) -> None:
    """The counters of all ports, of a simulated network the engine's, and what they carried of
    copies, by directed link."""
    lines = []
    for port in network.port_counters():
        line = port.as_dict()
        is_b = port.node == network.fabric.links[port.link].b.node
        line |= copied.get(2 * port.link + is_b, {})
        if simulated is not None:
            line |= simulated.port(port.link, is_b)
        lines.append(json.dumps(line) + "\n")
    (run_directory / "links.jsonl").write_text("".join(lines))


def _verdict(
    monitor: FidelityMonitor,
    captured: Sequence[CaptureStats],
    network: Network,
    fault_lateness_ns: int,
) -> dict[str, object]:
    verdict = monitor.verdict(sum(stats.dropped for stats in captured) if captured else None)
    incomplete = [stats.invalid_reason for stats in captured if stats.invalid_reason is not None]
    if network.pause_controller is not None and not network.pause_controller.running:
        incomplete.append("the pause controller of the lossless queues has died")
    if network.pause_controller is not None and network.pause_controller.lost():
        incomplete.append(
            f"{network.pause_controller.lost()} packets came when the headroom was full, though it "
            "is all that their links need: pauses or delay lines were late"
        )
    if fault_lateness_ns > _FAULTS_LATE_NS:
        incomplete.append(
            f"a fault was {fault_lateness_ns:,} ns late (limit {_FAULTS_LATE_NS:,}): links were "
            "what they should no longer, or not yet, have been"
        )
    late = sum(port.queue.late_packets for port in network.port_counters())
    if late:
        incomplete.append(f"{late} packets were handed over later than they arrived on their link")
    incomplete += busy_pollers.invalid_reasons()
    reasons = list(dict.fromkeys((*verdict.reasons, *incomplete)))
    return verdict.as_dict() | {"valid": not reasons, "reasons": reasons}


def _details(network: Network) -> dict[str, object]:
    """How ports were made; natively with lossless queues, how fast pauses were."""
    arrangement = network.options.arrangement
    details: dict[str, object] = {
        "arrangement": arrangement.name,
        "lateness_ns": arrangement.lateness_ns,
    }
    if network.pause_controller is not None:
        reaction = network.pause_controller.reaction()
        details["pause_controller"] = reaction.as_dict() if reaction is not None else None
    return details


def _versions() -> dict[str, str]:
    """The versions of Python and of packages; programs of users need no torch, so it may not be
    there."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _measured(
    spec: Spec, hosts: tuple[str, ...], network: Network, captured: Sequence[CaptureStats]
) -> dict[str, object]:
    counted = emulated(spec).counters(network)
    return {
        "kernel_release": platform.release(),
        "versions": _versions(),
        "seed": spec.seed,
        "hosts": list(hosts),
        "retransmits": sum(tcp.retransmits for tcp in network.tcp_counters().values()),
        **({} if counted is None else {emulated(spec).counted_as or spec.transport.kind: counted}),
        "unrouted": network.unrouted(),
        "next_hops": network.next_hop_choices(),
        "captures": [stats.as_dict() for stats in captured],
        "spinners": [each.as_dict() for each in busy_pollers.spinners()],
        "details": _details(network),
    }
