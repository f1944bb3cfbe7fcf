"""The surroundings of each process of a program: the environment that launchers give, a host's
names, and where its output goes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from collectives.in_network.on_demand import by_switches
from collectives.settings import settings_of
from collectives.shared_schedules import DIRECTORY_VARIABLE as SCHEDULES_VARIABLE
from emulator.host_time.library import charged_variables
from emulator.linux.namespaces import HostPlace
from emulator.network.host_places import make_host_places
from emulator.network.network import Network
from emulator.ranks.caller import Caller, python_line, read_library, read_times
from emulator.ranks.gate import Seat
from emulator.ranks.moments import moments_plan
from emulator.ranks.mpi.launch import mpi_variables, switches_variables, write_mpi_files
from emulator.ranks.program import Importing, ProgramJob
from emulator.ranks.simulated.network import simulated_directory
from emulator.ranks.traffic import tells_traffic, traffic_socket
from emulator.transports import emulated
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.run_sections import Kill
from topologies.spec.spec import Spec
from topologies.spec.workload_section import CommandWorkload
from workloads.execution.aggregation.given import DIRECTORY_VARIABLE
from workloads.execution.traffic_class import TrafficClass
from workloads.execution.transports.interface import TRANSPORT_VARIABLE, place_variable
from workloads.observer import (
    COLLECTIVES_VARIABLE,
    OBSERVER,
    PLAN_FILE,
    PLAN_VARIABLE,
    POSTS,
    STACKS,
)
from workloads.virtual_gpu.building import PROGRAMS
from workloads.virtual_gpu.plan import (
    DEVICES_VARIABLE,
    GROUP_VARIABLES,
    PLAN_KEY,
    gpu_plan,
    write_devices,
)

MASTER_PORT = 29500
WORK = "work"
"""The working directory of programs, below the run directory."""

# Observed ranks make their first process group at a multiple of this in virtual time.
_GRID_NS = 10_000_000
_ROOT = str(OBSERVER.parent.parent)
"""The directory of the packages to which the backend groundwire belongs."""
# Hosts have their own /tmp, where each would compile the same anew.
_COMPILED = "/run/torchinductor"
_ALWAYS = {
    # A rank's output is to be seen when it is written.
    "PYTHONUNBUFFERED": "1",
    # Else a program leaves these in its working directory, in the first run only.
    "PYTHONDONTWRITEBYTECODE": "1",
    # As torchrun: threads would contend for the cores that carry the fabric.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def store_port(seat: Seat | None) -> int:
    """The port on which rank 0 listens. Jobs may share hosts, so each has one of its own."""
    return MASTER_PORT + (0 if seat is None else seat.number)


@contextmanager
def program_jobs(
    spec: Spec,
    workload: CommandWorkload,
    network: Network,
    run_directory: Path,
    real_time: bool,
    seat: Seat | None = None,
    trees: Path | None = None,
) -> Iterator[list[ProgramJob]]:
    """A job per rank or per host; `ranks/NNN.jsonl` of every rank has its first line. The files of
    host names are gone at the end of the block. With a `seat` the program is one of several.
    `trees` is where its groups ask for trees of switches."""
    fabric, hosts = network.fabric, spec.plan.hosts
    ranks = run_directory / "ranks"
    names = ranks / "names"
    addresses = [str(fabric.by_name[host].address) for host in hosts]
    for rank, (host, address) in enumerate(zip(hosts, addresses, strict=True)):
        head = {"event": "rank", "rank": rank, "host": host, "address": address}
        (ranks / f"{rank:03d}.jsonl").write_text(json.dumps(head, separators=(",", ":")) + "\n")
    plan = _plan(spec, workload, real_time, seat) | {
        "moments": moments_plan(spec, network, "" if seat is None else seat.job),
        "charge": _charge_plan(spec.compute, workload, run_directory),
        "traffic": str(traffic_socket(network)) if tells_traffic(spec) else None,
        PLAN_KEY: _gpus(spec, workload, network, run_directory, hosts),
    }
    (ranks / PLAN_FILE).write_text(json.dumps(plan))
    for folder in (POSTS, STACKS):
        (ranks / folder).mkdir()
    places = make_host_places(network, dict.fromkeys(hosts), names, own_temporary=not real_time)
    marks = _marks(run_directory)
    if workload.gpus_per_host is not None:
        marks.mkdir(parents=True)
        write_devices(marks, spec.compute, workload.gpus_per_host)
    if _runs_programs(spec):
        _schedules(network).mkdir(exist_ok=True)
    mpi = ranks / "mpi"
    if workload.per == "job":
        ports = {host: fabric.links_of[host][0].port(host).interface for host in hosts}
        slots = workload.ranks_per_host
        write_mpi_files(mpi, hosts, slots, places, ports, run_directory / WORK)
    caller = Caller.read(run_directory)
    start = _Start(spec, workload, network, run_directory, caller, real_time, seat, trees)
    try:
        yield [
            start.job(rank, places[hosts[rank]])
            for rank in range(0, workload.ranks, workload.ranks_per_process)
        ]
    finally:
        shutil.rmtree(names, ignore_errors=True)
        for folder in (POSTS, STACKS):
            shutil.rmtree(ranks / folder, ignore_errors=True)
        shutil.rmtree(mpi, ignore_errors=True)
        shutil.rmtree(marks, ignore_errors=True)
        (ranks / PLAN_FILE).unlink(missing_ok=True)


def _plan(
    spec: Spec, workload: CommandWorkload, real_time: bool, seat: Seat | None
) -> dict[str, Any]:
    """The observer's plan, as far as it is known before there is a run directory."""
    hosts, by_name = spec.plan.hosts, spec.plan.fabric.by_name
    return {
        "hosts": hosts,
        "addresses": [str(by_name[host].address) for host in hosts],
        "store_port": store_port(seat),
        "observe": workload.observe,
        "steps": any(isinstance(fault, Kill) for fault in spec.faults),
        "grid_ns": None if real_time else _GRID_NS,
        "moments": None,
        "charge": None,
        "traffic": None,
        "programs": _ROOT if _runs_programs(spec) and workload.gpus_per_host is None else None,
        PLAN_KEY: None,
    }


def _runs_programs(spec: Spec) -> bool:
    return spec.collectives.backend != "gloo"


def early_import(spec: Spec, caller: Caller, source: Path, run: Path) -> EarlyImport | None:
    """The import of torch in a guest that does so before it has a run directory; None where the
    program has none that is the same for all runs of the kind. `source` and `run` are Groundwire
    and the run directory as the guest will see them."""
    if spec.jobs:
        return None
    workload = spec.workload.program
    if workload is None or workload.ranks < 2:
        return None
    given = workload.gpus_per_host is not None or workload.charges or workload.per == "job"
    if given or spec.collectives.backend != "gloo" or spec.host.preloads:
        return None
    if not emulated(spec).starts_alike:
        return None
    line = python_line(caller.program, workload)
    if line is None:
        return None
    plan = run / "ranks" / PLAN_FILE
    found = dict(caller.environment) | _ALWAYS | {"TORCHINDUCTOR_CACHE_DIR": _COMPILED}
    found |= _observed(found, source / OBSERVER.relative_to(_ROOT), plan) | workload.env
    words = json.dumps(_plan(spec, workload, False, None) | {"steps": False})
    return EarlyImport(Importing(line[0], found), str(plan), words)


def _observed(environment: Mapping[str, str], observer: Path, plan: Path) -> dict[str, str]:
    """The variables by which a Python loads the observer, with its plan."""
    search = (str(observer), environment.get("PYTHONPATH", ""))
    return {"PYTHONPATH": ":".join(filter(None, search)), PLAN_VARIABLE: str(plan)}


@dataclass(frozen=True, slots=True)
class EarlyImport:
    """An import of torch before there is a run directory, and the observer's plan for it."""

    importing: Importing
    plan_file: str
    plan: str

    def files(self, place: str) -> dict[str, str]:
        """The files, by name, that have it in a guest, `place` being where it is read from."""
        return {place: json.dumps(asdict(self.importing)), self.plan_file: self.plan}

    @staticmethod
    def read(place: Path) -> Importing | None:
        """The import that `files` has put there; None without."""
        if not place.exists():
            return None
        return Importing(**json.loads(place.read_text()))


def slice_of(order: int, rank: int) -> int:
    """The slice that a rank's process asks for: nanoseconds, drawn from `order` (0: none)."""
    return random.Random(f"{order} {rank}").randrange(100_000, 100_000_000) if order else 0


def _marks(run_directory: Path) -> Path:
    """The directory in which ranks tell each other which tensors of a collective have no
    contents."""
    return run_directory / "ranks" / "marks"


def _schedules(network: Network) -> Path:
    """The directory in which ranks share the schedules of their collectives, those of all jobs. It
    is in memory: a rank that waited for a disk would let another one post first."""
    assert network.session is not None, "a network that is up"
    return network.session.directory / "schedules"


def _gpus(
    spec: Spec,
    workload: CommandWorkload,
    network: Network,
    run_directory: Path,
    hosts: Sequence[str],
) -> dict[str, Any] | None:
    """The plan for `workloads/virtual_gpu/interpreter/`; None without virtual GPUs. A process that
    is started on one host of a server enters the network of that of its rank."""
    if workload.gpus_per_host is None:
        return None
    interfaces = [network.fabric.links_of[host][0].port(host).interface for host in hosts]
    times = [] if workload.charge_by is None else read_times(run_directory)
    return gpu_plan(
        spec.compute,
        workload.gpus_per_host,
        read_library(run_directory),
        str(_marks(run_directory)),
        times,
        simulated=str(simulated_directory(network)) if workload.simulated else "",
        payload_share=workload.payload_share,
        programs=_ROOT if _runs_programs(spec) and not workload.simulated else "",
    ) | {
        "places": [
            {"netns": str(network.netns_path(host)), "interface": interface}
            for host, interface in zip(hosts, interfaces, strict=True)
        ]
    }


def _charge_plan(
    compute: ComputeSpec, workload: CommandWorkload, run_directory: Path
) -> dict[str, Any] | None:
    """The plan for `workloads/observer/charging.py`; None where nothing is charged."""
    if not workload.charges:
        return None
    return {
        "device": device_plan(compute) if compute.modelled else None,
        "times": None if workload.charge_by is None else _untyped(read_times(run_directory)),
        "slowdown": compute.slowdown,
    }


def _untyped(times: list[list[Any]]) -> list[list[Any]]:
    """[name, shapes, nanoseconds] of each that is so for all types, as the observer takes them."""
    return [[name, shapes, ns] for name, shapes, types, ns in times if not types]


def device_plan(compute: ComputeSpec) -> dict[str, Any]:
    """The roofline, in the numbers that `workloads/observer/charging.py` takes."""
    return {
        "flops_16bit_per_s": compute.peak_flops_per_s(2),
        "flops_32bit_per_s": compute.peak_flops_per_s(4),
        "memory_bytes_per_s": compute.peak_memory_bytes_per_s(),
        "overhead_ns": compute.overhead_ns,
        "shares": compute.shares_plan,
    }


@dataclass(frozen=True)
class _Start:
    """How the processes of a run are started."""

    spec: Spec
    workload: CommandWorkload
    network: Network
    run_directory: Path
    caller: Caller
    real_time: bool
    seat: Seat | None
    trees: Path | None

    @cached_property
    def _python(self) -> tuple[str, ...] | None:
        """The command line as one of a Python that imports torch, where the run has several."""
        workload = self.workload
        watched = workload.observe or not self.real_time
        if not watched or workload.per == "job" or workload.ranks < 2:
            return None
        return python_line(self.caller.program, workload)

    @cached_property
    def _collectives(self) -> str:
        """The section by which programs run, as JSON. Virtual GPUs have all that follows from the
        fabric, as their records stand for the spec's own section."""
        section = self.spec.collectives
        if section.backend == "nccl" or self.workload.gpus_per_host is not None:
            section = settings_of(self.spec)
        return section.model_dump_json(by_alias=True, exclude_defaults=True)

    def job(self, rank: int, place: HostPlace) -> ProgramJob:
        """The process of a rank, or of the host whose first rank it is."""
        workload, host = self.workload, self.spec.plan.hosts[rank]
        log = self.run_directory / "ranks"
        last = rank + workload.ranks_per_process - 1
        many = f"ranks {rank} to {last}" if last > rank else f"rank {rank}"
        return ProgramJob(
            rank=rank,
            who=f"rank {rank} on {host}" if workload.per == "rank" else f"host {host} ({many})",
            argv=(self.caller.program, *workload.argv[1:]),
            environment=self.environment(rank),
            directory=self.run_directory / WORK,
            host=self._server(rank),
            place=place,
            stdout=log / f"{rank:03d}.out",
            stderr=log / f"{rank:03d}.err",
            live=workload.tees(rank),
            prefix="" if workload.tee == (0,) else f"[{rank}{f'-{last}' if last > rank else ''}] ",
            address=str(self.network.fabric.by_name[host].address),
            traffic=TrafficClass(self.spec.socket_priority, self.spec.rdma_priority),
            seat=self.seat,
            many=workload.ranks_per_process,
            starts_ranks=workload.per != "rank",
            slice_ns=0 if self.real_time else slice_of(self.spec.virtual.order, rank),
            python=self._python,
        )

    def _server(self, rank: int) -> str:
        """The name of a rank's machine: its server's, where that is several hosts of the fabric."""
        host = self.spec.plan.hosts[rank]
        if self.workload.local_ranks == self.workload.ranks_per_host:
            return host
        return f"server{rank // self.workload.local_ranks}"

    def environment(self, rank: int) -> dict[str, str]:
        """The environment of a rank's program. The spec overrides what launchers set, and that
        overrides the caller's variables."""
        workload, fabric, hosts = self.workload, self.network.fabric, self.spec.plan.hosts
        together = workload.local_ranks
        interface = fabric.links_of[hosts[rank]][0].port(hosts[rank]).interface
        found = dict(self.caller.environment) | _ALWAYS
        found |= {
            "WORLD_SIZE": str(workload.ranks),
            "LOCAL_WORLD_SIZE": str(together),
            "GROUP_RANK": str(rank // together),
            "GROUP_WORLD_SIZE": str(workload.ranks // together),
            "MASTER_ADDR": str(fabric.by_name[hosts[0]].address),
            "MASTER_PORT": str(store_port(self.seat)),
            "GLOO_SOCKET_IFNAME": interface,
            "TP_SOCKET_IFNAME": interface,
        }
        found |= charged_variables(found.get("LD_PRELOAD"))
        if not self.real_time:
            found["TORCHINDUCTOR_CACHE_DIR"] = _COMPILED
        transport, kind = emulated(self.spec), self.spec.transport.kind
        logs = self.run_directory / "ranks"
        place = transport.place(self.spec, self.network, hosts[rank], logs)
        found |= transport.environment(self.spec, place)
        if place is not None:
            found[place_variable(kind)] = place.to_json()
            found.setdefault(TRANSPORT_VARIABLE, kind)
        if self.spec.collectives.backend != "gloo":
            found[COLLECTIVES_VARIABLE] = self._collectives
            found[SCHEDULES_VARIABLE] = str(_schedules(self.network))
        if self.trees is not None:
            found[DIRECTORY_VARIABLE] = str(self.trees)
        if workload.per == "job":
            files = self.run_directory / "ranks" / "mpi"
            found |= mpi_variables(files)
            if self.trees is not None:
                found |= switches_variables(files, by_switches(self.spec.collectives))
        elif workload.per == "rank":
            found |= {"RANK": str(rank), "LOCAL_RANK": str(rank % together)}
        else:
            # torchrun takes these as its options' defaults (torch/distributed/argparse_util.py).
            found |= {
                "PET_NNODES": found["GROUP_WORLD_SIZE"],
                "PET_NPROC_PER_NODE": str(together),
                "PET_NODE_RANK": found["GROUP_RANK"],
                "PET_MASTER_ADDR": found["MASTER_ADDR"],
                "PET_MASTER_PORT": found["MASTER_PORT"],
            }
        if workload.gpus_per_host is not None:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(workload.gpus_per_host)))
            found |= {DEVICES_VARIABLE: str(_marks(self.run_directory))} | GROUP_VARIABLES
            programs = Path(read_library(self.run_directory)) / PROGRAMS
            found["PATH"] = ":".join(filter(None, (str(programs), found.get("PATH"))))
        if workload.observe or not self.real_time:
            found |= _observed(found, OBSERVER, self.run_directory / "ranks" / PLAN_FILE)
        return found | workload.env
