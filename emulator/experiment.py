"""One experiment inside a kernel where we are root: fabric up, capture, ranks, counters, down.

It does not know which kernel that is. Everything that it learns goes into the run directory.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from emulator.capture import Capture, CaptureStats, capture_ports, start_capture
from emulator.deadlock_watch import DeadlockWatch
from emulator.faults import FaultInjector
from emulator.fidelity import FidelityMonitor
from emulator.launcher import Launcher, RankJob
from emulator.network import Network, NetworkOptions
from emulator.ports import PortArrangement
from emulator.progress import Progress, Report
from emulator.queue_recorder import write_samples
from emulator.sysctls import Transport
from topologies.build import build_fabric
from topologies.fabric import Fabric
from topologies.placement import place
from topologies.queue_spec import Lossless, QueueSpec
from topologies.routing import compute_routes
from topologies.spec import Spec
from workloads.clock import round_time_ns, sleep_until_ns
from workloads.plan import RankPlan

_STORE_PORT = 29500
# In virtual time a fabric is made at a round time, once the launcher has imported everything: ports
# sample their backlog from when they were made on.
_IMPORT_MARGIN_NS = 50_000_000
_FABRIC_GRID_NS = 100_000_000
_PACKAGES = ("groundwire", "torch", "scapy", "pyroute2", "numpy")


@dataclass(frozen=True)
class Kernel:
    """What an experiment has to know of the kernel that it runs in: how a port of a fabric is made,
    and whether time is real, so that the machine can fail to keep up with it."""

    arrange: Callable[[Fabric], PortArrangement]
    real_time: bool


class DeadlockFound(RuntimeError):
    """The lossless queues of the fabric wait for each other; the run cannot come to an end."""


def run_experiment(
    spec: Spec,
    run_directory: Path,
    kernel: Kernel,
    report: Report,
) -> None:
    """Run `spec` and fill `run_directory`, which has the resolved spec already. Needs root.

    `run_directory/measured.json` says what the run itself cannot: counters, the kernel, the
    verdict. Raises RankFailed when a rank ends badly, DeadlockFound, OSError with the kernel's own
    message when it refuses a request, RuntimeError when the ranks cannot be started. Whatever was
    made is gone afterwards.
    """
    (run_directory / "ranks").mkdir()
    with ExitStack() as stack:
        # First, so that it imports torch while the fabric is built.
        launcher = stack.enter_context(Launcher())
        fabric = build_fabric(spec.fabric)
        hosts = place(spec.placement, fabric, spec.workload.ranks, spec.seed)
        options = NetworkOptions(
            arrangement=kernel.arrange(fabric),
            transport=_transport(spec),
            hash_seed=spec.seed,
            receive_coalescing_ns=spec.virtual.receive_coalescing_ns,
        )
        if not kernel.real_time:
            sleep_until_ns(round_time_ns(_IMPORT_MARGIN_NS, _FABRIC_GRID_NS))
        network = stack.enter_context(Network(fabric, compute_routes(fabric), options))
        report(
            Progress(
                "fabric",
                f"fabric up: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches, "
                f"{len(fabric.links)} links",
            )
        )
        monitor = FidelityMonitor(network, kernel.real_time)
        stack.callback(monitor.stop)
        faults = stack.enter_context(FaultInjector(network, spec.faults))
        capture = _start_capture(spec, kernel, network, run_directory)
        if capture is not None:
            stack.enter_context(capture)
        if any(isinstance(queue, Lossless) for queue in _queues(fabric)):
            stack.enter_context(
                DeadlockWatch(network, lambda found: launcher.stop(DeadlockFound(str(found))))
            )

        def on_iteration(iteration: int) -> None:
            if iteration == 0:
                monitor.start(launcher.rank_pids.values())
            faults.on_iteration(iteration)
            report(
                Progress(
                    "iteration",
                    iteration=iteration,
                    iterations=spec.workload.iterations,
                    clock_ns=time.monotonic_ns(),
                )
            )

        launcher.run(_jobs(spec, hosts, network, run_directory), on_iteration)
        monitor.stop()
        report(Progress("collect", "all ranks done, reading the counters"))
        captured = capture.stop() if capture is not None else []
        if not spec.capture.points:
            shutil.rmtree(run_directory / "capture", ignore_errors=True)
        _write_links(network, run_directory)
        if spec.counters.interval_ns is not None:
            write_samples(network, run_directory / "queues.jsonl")
        measured = _measured(spec, hosts, network, captured)
        measured["verdict"] = _verdict(monitor, captured, network)
        measured["faults"] = [event.as_dict() for event in faults.events]
        (run_directory / "measured.json").write_text(json.dumps(measured, indent=1) + "\n")


def _queues(fabric: Fabric) -> list[QueueSpec]:
    return [port.queue for link in fabric.links for port in (link.a, link.b)]


def _transport(spec: Spec) -> Transport:
    return Transport(
        spec.transport.congestion_control,
        spec.transport.rcvbuf_bytes,
        spec.transport.sndbuf_bytes,
        spec.ecn,
        spec.transport.min_rto_ns,
        spec.transport.initial_window,
    )


def _jobs(
    spec: Spec, hosts: tuple[str, ...], network: Network, run_directory: Path
) -> list[RankJob]:
    fabric = network.fabric
    addresses = tuple(str(fabric.by_name[host].address) for host in hosts)
    ranks = run_directory / "ranks"
    names = run_directory / "ranks" / "hosts"
    names.write_text(
        "127.0.0.1 localhost\n"
        + "".join(f"{n.address} {n.name}\n::ffff:{n.address} {n.name}\n" for n in fabric.nodes)
    )
    return [
        RankJob(
            RankPlan(
                rank=rank,
                hosts=hosts,
                addresses=addresses,
                interface=fabric.links_of[host][0].port(host).interface,
                store_port=_STORE_PORT,
                workload=spec.workload,
                compute=spec.compute,
                seed=spec.seed,
                events=ranks / f"{rank:03d}.jsonl",
            ),
            netns=network.netns_path(host),
            names=names,
            stderr=ranks / f"{rank:03d}.log",
        )
        for rank, host in enumerate(hosts)
    ]


def _start_capture(
    spec: Spec, kernel: Kernel, network: Network, run_directory: Path
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
    )


def _write_links(network: Network, run_directory: Path) -> None:
    lines = [json.dumps(port.as_dict()) for port in network.port_counters()]
    (run_directory / "links.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _verdict(
    monitor: FidelityMonitor, captured: Sequence[CaptureStats], network: Network
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
    late = sum(port.queue.late_packets for port in network.port_counters())
    if late:
        incomplete.append(f"{late} packets were handed over later than they arrived on their link")
    reasons = list(dict.fromkeys((*verdict.reasons, *incomplete)))
    return verdict.as_dict() | {"valid": not reasons, "reasons": reasons}


def _details(network: Network) -> dict[str, object]:
    """How ports were made; natively with lossless queues, how fast pauses were."""
    details: dict[str, object] = {"arrangement": network.options.arrangement.name}
    if network.pause_controller is not None:
        reaction = network.pause_controller.reaction()
        details["pause_controller"] = reaction.as_dict() if reaction is not None else None
    return details


def _measured(
    spec: Spec, hosts: tuple[str, ...], network: Network, captured: Sequence[CaptureStats]
) -> dict[str, object]:
    return {
        "kernel_release": platform.release(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in _PACKAGES},
        "seed": spec.seed,
        "hosts": list(hosts),
        "retransmits": sum(tcp.retransmits for tcp in network.tcp_counters().values()),
        "captures": [stats.as_dict() for stats in captured],
        "details": _details(network),
    }
