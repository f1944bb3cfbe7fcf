"""The capabilities of this machine: every capability that a spec may need, found or not, what its
absence costs, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import topologies
from emulator.doctor.check import Check
from emulator.doctor.virtual_kernel import virtual_kernel_checks
from emulator.guest_memory import guest_memory_bytes
from emulator.linux.capabilities import KernelCapabilities, kernel_capabilities
from emulator.linux.soft_roce import soft_roce
from emulator.virtual.memory.host_memory import available_memory
from topologies.extras import install_line
from topologies.installation import IN_CLONE, in_clone
from topologies.spec.spec import load_spec

MAIN_JOB = Path(topologies.__file__).parent / "dlrm-fat-tree-k4.yaml"
"""The spec of `make demo`: 16 ranks of DLRM on a fat-tree."""
WANTED_CORES = 2
_EXTRA_MODULES = "apt-get install linux-modules-extra-$(uname -r) (Debian's kernels have it built)"
_GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


@dataclass(frozen=True)
class Diagnosis:
    """`native` and `virtual`: what keeps the main job from running on that kernel; empty when
    nothing does."""

    checks: tuple[Check, ...]
    native: tuple[str, ...]
    virtual: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether the main job can run on some kernel."""
        return not self.native or not self.virtual

    def as_dict(self) -> dict[str, object]:
        """Plain data, for --json."""
        return {
            "healthy": self.healthy,
            "main_job": {"native_lacks": list(self.native), "virtual_lacks": list(self.virtual)},
            "checks": [asdict(check) for check in self.checks],
        }


def diagnose() -> Diagnosis:
    """Looks at everything. Changes nothing and takes about a second."""
    found = kernel_capabilities()
    needed_bytes = guest_memory_bytes(load_spec(MAIN_JOB), MAIN_JOB.parent)
    checks = (
        *_machine(needed_bytes),
        *_kernel(found),
        *virtual_kernel_checks(needed_bytes),
        *_programs(),
        *_packages(),
    )
    lacks = {check.name for check in checks if check.found is not True}
    return Diagnosis(
        checks,
        native=_lacking(lacks, ("root", "network namespaces", "veth", "netem", "dctcp", *_PYTHON)),
        virtual=_lacking(lacks, ("virtual kernel", "guest memory", "ptrace", *_PYTHON)),
    )


def _lacking(lacks: set[str], needed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in needed if name in lacks)


# -- the machine ---------------------------------------------------------------------------------


def _machine(needed_bytes: int) -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0))
    yield Check(
        "machine",
        "processor cores",
        cores >= WANTED_CORES,
        f"{cores}",
        "native runs with one core are invalid as soon as a rank computes",
        "give the machine at least 2 cores",
    )
    memory = available_memory()
    yield Check(
        "machine",
        "memory",
        memory.size_bytes >= needed_bytes,
        memory.words,
        "the 16 ranks of the main job do not fit",
        f"free memory until {needed_bytes / 1e9:.1f} GB are available",
    )
    clock = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    yield Check(
        "machine",
        "clock source",
        None if clock is None else clock in _GOOD_CLOCKS,
        clock or "this machine does not say",
        "native runs: reading the clock costs a microsecond or more, and TCP reads it for every "
        "packet",
        "boot with clocksource=tsc, if the machine's tsc is stable",
    )
    late = _timer_lateness_ns()
    yield Check(
        "machine",
        "high-resolution timers",
        late < 1_000_000,
        f"a 100 us sleep ends {late / 1000:.0f} us late",
        "native runs: packets leave queues and delay lines late by as much",
        "a kernel with CONFIG_HIGH_RES_TIMERS, or a less busy machine",
    )
    try:
        temporary, no_temporary = tempfile.gettempdir(), ""
    except FileNotFoundError as error:
        temporary, no_temporary = "", str(error.strerror)
    yield Check(
        "machine",
        "temporary directory",
        not no_temporary,
        temporary or no_temporary,
        "the virtual kernel cannot be built, guests have no place but /dev/shm for their memory, "
        "and groundwire shell has none for its commands",
        "set TMPDIR to a directory that can be written",
    )
    version = _cgroup_version()
    yield Check(
        "machine",
        "cgroups",
        version is not None,
        version or "neither version is mounted",
        "none for runs; Mininet scripts with CPULimitedHost do not work",
        "mount -t cgroup2 none /sys/fs/cgroup",
    )


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _timer_lateness_ns() -> int:
    """The median of some short sleeps: one that another process delayed does not count."""
    late = []
    for _ in range(21):
        start = time.monotonic_ns()
        time.sleep(100e-6)
        late.append(time.monotonic_ns() - start - 100_000)
    return sorted(late)[len(late) // 2]


def _cgroup_version() -> str | None:
    kinds = {line.split()[2] for line in Path("/proc/self/mounts").read_text().splitlines()}
    found = [name for kind, name in (("cgroup", "v1"), ("cgroup2", "v2")) if kind in kinds]
    return " and ".join(found) or None


# -- the machine's own kernel ----------------------------------------------------------------------

_QDISC_USES = (
    ("netem", "delays, losses, corruption: natively, specs with any of them are refused"),
    ("red", "natively, red and dctcp queues are refused"),
    ("tbf", "natively, no rates: nothing can be emulated"),
    ("codel", "natively, codel queues are refused"),
    ("fq_codel", "natively, fq_codel queues are refused"),
    ("bfifo", "natively, drop-tail queues with delays are refused"),
    ("clsact", "natively, queues other than drop-tail cannot have delays"),
    ("drr", "natively, voq queues are refused"),
    ("plug", "natively, lossless queues are refused"),
)


def _kernel(found: KernelCapabilities) -> Iterator[Check]:
    refused = found.refused
    yield Check(
        "native kernel",
        "root",
        os.geteuid() == 0,
        f"uid {os.geteuid()}",
        "no native runs; the virtual kernel needs no root",
        "sudo groundwire ...",
    )
    yield Check(
        "native kernel",
        "network namespaces",
        refused is None,
        refused or "can be made",
        "no native runs",
        "run as root, outside of a container that forbids unshare",
    )

    def ask(name: str, there: bool, cost: str, remedy: str) -> Check:
        detail = f"not asked: {refused}" if refused else ("found" if there else "not found")
        return Check("native kernel", name, None if refused else there, detail, cost, remedy)

    for device, cost in (
        ("veth", "no native runs"),
        ("ifb", "natively, queues other than drop-tail cannot have delays"),
    ):
        yield ask(device, device in found.devices, cost, f"modprobe {device}")
    for qdisc, cost in _QDISC_USES:
        yield ask(qdisc, qdisc in found.qdiscs, cost, f"modprobe sch_{qdisc}, or {_EXTRA_MODULES}")
    yield ask(
        "redirect to ifb",
        found.redirect,
        "natively, queues other than drop-tail cannot have delays",
        f"modprobe cls_matchall act_mirred, or {_EXTRA_MODULES}",
    )
    yield ask(
        "eBPF classifiers",
        found.classifiers,
        "natively, lossless, shared and voq queues are refused",
        f"a kernel with CONFIG_BPF_SYSCALL; modprobe cls_bpf, or {_EXTRA_MODULES}",
    )
    for control in ("cubic", "dctcp", "bbr"):
        yield ask(
            control,
            control in found.congestion_controls,
            f"natively, specs with congestion_control: {control} are refused",
            f"modprobe tcp_{control}, or {_EXTRA_MODULES}",
        )
    rdma = soft_roce()
    yield Check(
        "native kernel",
        "Soft-RoCE in namespaces",
        None if refused else rdma.hears,
        refused or rdma.refused or ("found" if rdma.hears else "hears in the first one only"),
        "natively, specs with transport.kind: roce are refused; the virtual kernel has it",
        "a kernel whose rdma_rxe receives in every namespace, such as one with patches 0015 and "
        "0016 of emulator/kernel/patches",
    )
    yield ask(
        "ECMP by ports",
        "ipv4/fib_multipath_hash_policy" in found.sysctls,
        "natively, all flows between two hosts take one path",
        "Linux 4.12 or later, with CONFIG_IP_ROUTE_MULTIPATH",
    )
    yield ask(
        "ECMP hash seed",
        "ipv4/fib_multipath_hash_seed" in found.sysctls,
        "natively, all switches hash alike, so that upper tiers use half of their links, and "
        "paths differ from boot to boot",
        "Linux 6.11 or later",
    )


# -- programs and packages -------------------------------------------------------------------------

_PROGRAMS = (
    ("ping", "pingall and pingpair of groundwire shell", "iputils-ping"),
    ("iperf", "iperf of groundwire shell", "iperf"),
    ("bash", "commands on nodes in groundwire shell", "bash"),
)
_OF_BENCHMARKS = (
    ("mnexec", "stock Mininet's side of benchmarks/bring_up.py", "mininet --no-install-recommends"),
    ("ifconfig", "stock Mininet's side of benchmarks/bring_up.py", "net-tools"),
)
_PYTHON = ("torch", "scapy")
_PACKAGES = {
    **dict.fromkeys(_PYTHON, "no runs"),
    "mininet": "no groundwire shell, and no --topo and --custom",
}
_EXTRAS = (
    ("ansible_runner", "groundwire remote", "remote"),
    ("distributed", "studies, and runs of a sweep at once", "studies"),
    ("pyarrow", "Parquet files of studies", "studies"),
    ("pandas", "data frames", "tables"),
)


def _programs() -> Iterator[Check]:
    for program, use, package in (*_PROGRAMS, *(_OF_BENCHMARKS if IN_CLONE else ())):
        path = shutil.which(program)
        yield Check(
            "programs",
            program,
            path is not None,
            path or "not found",
            f"no {use}",
            f"apt-get install {package}",
        )


def _packages() -> Iterator[Check]:
    for package, without in _PACKAGES.items():
        there = importlib.util.find_spec(package) is not None
        yield Check(
            "python packages",
            package,
            there,
            "found" if there else "not found",
            without,
            in_clone("make setup", f"{sys.executable} -m pip install {package}"),
        )
    for package, use, extra in _EXTRAS:
        there = importlib.util.find_spec(package) is not None
        yield Check(
            "python packages",
            package,
            there,
            "found" if there else "not found",
            f"no {use}",
            install_line(extra),
        )
