"""Run one command as root in a fresh guest of the virtual kernel, and report how it ended."""

import contextlib
import ctypes
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.linux.signals import end_with_parent
from emulator.virtual.building.image import KernelImage
from emulator.virtual.ending import GuestObservation, GuestResult, Reason, judge
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.followed_file import FollowedFile
from emulator.virtual.host.core import Core
from emulator.virtual.host.features import has_seccomp_filters
from emulator.virtual.host.limits import raise_limits, refuse_tight_limits, refused_by_host
from emulator.virtual.memory.host_memory import killed_for_memory, memory_directory
from emulator.virtual.memory.reserve import kept_reserve
from emulator.virtual.memory.thrashing import ThrashingDetector
from emulator.virtual.variables import VirtualClock

_ADDR_NO_RANDOMIZE = 0x0040000
_POLL_S = 0.02
_OOM_SCORE_ADJ = "500"  # as if it held half of the memory more than it does (proc(5))
_CONSOLE_KEPT_LINES = 4000  # a report of memory running out has a line for each process
_CONTROL_PREFIX = "groundwire-guest-"
# Virtual wall-clock time at boot: the same in every run. 2026-01-01T00:00:00Z.
_EPOCH_NS = 1_767_225_600 * 10**9
# Tables that Linux sizes by its memory. Those of sockets are as on a host of 128 GiB or more, where
# they grow no further (tcp_init and udp_table_init in net/ipv4): they decide UDP's ephemeral ports,
# and how many connections may be pending, closing or orphaned. Those of files decide nothing.
_TABLES = (
    *("thash_entries=524288", "uhash_entries=65536"),
    *("dhash_entries=131072", "ihash_entries=65536", "mhash_entries=2048", "mphash_entries=2048"),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_libc = ctypes.CDLL("libc.so.6", use_errno=True)


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise VirtualKernelError(
            "the current directory has been removed; change to another"
        ) from error


@dataclass(frozen=True)
class GuestSpec:
    """One command and the guest to run it in.

    The guest sees the host's files read-only, but its own empty /tmp, /run and /dev/shm; the
    directories in `writable` (and, below /tmp and the like, those in `readable`) are the host's.
    `environment` is the command's whole environment, after PATH, HOME and LANG defaults;
    `open_files` are as many as all processes of the guest may have open at a time.
    """

    argv: tuple[str, ...]
    memory_bytes: int = 4 * 10**9
    open_files: int = 256
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=_current_directory)
    seed: int = 1
    time_travel: bool = True
    stall_timeout_s: float = 300.0  # real seconds without virtual time passing
    deadlock_timeout_s: float = 3600.0  # virtual seconds in which no process runs


def run_guest(
    kernel: KernelImage,
    guest: GuestSpec,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None] | None = None,
    on_time: Callable[[int], None] | None = None,
) -> GuestResult:
    """Boot `kernel`, run the guest's command to its end, and leave nothing behind.

    `on_line` gets each line of the command's standard output, `on_error_line` (default: the same)
    of its standard error, `on_time` now and then the virtual nanoseconds since boot.
    An interrupt (KeyboardInterrupt) ends the guest at once and is passed on.

    Raises VirtualKernelError when the guest cannot be started: too little host memory, a
    writable directory that does not exist, a host that forbids ptrace, a limit that is too tight.
    """
    for directory in guest.writable:
        if not directory.is_dir():
            raise VirtualKernelError(f"writable directory {directory} does not exist")
    refuse_tight_limits(guest.memory_bytes, guest.open_files)
    memory = memory_directory(guest.memory_bytes)
    started, killed_before = time.monotonic(), killed_for_memory()
    with ExitStack() as until_ready:
        control = until_ready.enter_context(_control_directory(memory))
        _write_control(control, guest)
        events: list[dict[str, Any]] = []
        refusals: list[str] = []

        def check_refusal(line: str) -> None:
            # One is enough: a guest that goes on can repeat it faster than it is explained.
            refusal = None if refusals else refused_by_host(line)
            if refusal is not None:
                refusals.append(refusal)

        def record_event(line: str) -> None:
            events.append(json.loads(line))
            until_ready.close()  # the guest has all of it open

        console = FollowedFile(control / "console", check_refusal, keep=_CONSOLE_KEPT_LINES)
        # In this order: who sees a line of the command can kill us and nothing is left.
        files = (
            FollowedFile(control / "status", record_event),
            console,
            FollowedFile(control / "stdout", on_line),
            FollowedFile(control / "stderr", on_error_line or on_line),
        )
        try:
            with _guest_process(kernel, guest, control, memory) as process, ExitStack() as held:
                clock = VirtualClock(process.pid, kernel.symbols)
                core = Core(process.pid)
                if guest.time_travel:
                    held.enter_context(kept_reserve(process.pid, kernel.symbols, core))
                memory_watch = ThrashingDetector(process.pid, kernel.symbols, guest.memory_bytes)
                standstill = _watch(
                    process, guest, clock, memory_watch, core, files, events, refusals, on_time
                )
        finally:
            for file in files:
                file.close()
    return judge(
        GuestObservation(
            report=events[-1] if events else {},
            console=tuple(console.tail),
            refusal=refusals[0] if refusals else None,
            standstill=standstill,
            virtual_ns=clock.read_ns(),
            killed_on_host=killed_for_memory() - killed_before,
            wall_s=time.monotonic() - started,
        ),
        guest.memory_bytes,
        guest.deadlock_timeout_s,
    )


def _watch(
    process: subprocess.Popen[bytes],
    guest: GuestSpec,
    clock: VirtualClock,
    memory_watch: ThrashingDetector,
    core: Core,
    files: tuple[FollowedFile, ...],
    events: list[dict[str, Any]],
    refusals: list[str],
    on_time: Callable[[int], None] | None,
) -> tuple[Reason, str] | None:
    """Pass on output until the guest is gone, or the host has refused it something that it needs.
    If it stands still: why, and what is known."""
    poller = select.poll()
    pidfd = os.pidfd_open(process.pid)
    try:
        poller.register(pidfd, select.POLLIN)
        moved_ns, moved_at = 0, time.monotonic()
        while not poller.poll(_POLL_S * 1000):
            core.settle()
            for file in files:
                file.poll()
                if not events:
                    break  # it is not ready, so there is nothing in the others
            if refusals:
                return None
            now_ns = clock.read_ns()
            if now_ns != moved_ns or not guest.time_travel:
                moved_ns, moved_at = now_ns, time.monotonic()
                memory_watch.reset()
                if on_time is not None:
                    on_time(now_ns)
            elif memory_watch.is_thrashing():
                return "out-of-memory", memory_watch.describe()
            elif time.monotonic() - moved_at > guest.stall_timeout_s:
                return "stalled", (
                    f"no virtual time passed for {guest.stall_timeout_s:g} real seconds "
                    f"(it stands at {now_ns / 1e9:.9f} s): something computes or polls without end"
                )
    finally:
        os.close(pidfd)
    return None


@contextmanager
def _guest_process(
    kernel: KernelImage, guest: GuestSpec, control: Path, memory: Path
) -> Iterator[subprocess.Popen[bytes]]:
    # The command line goes into the kernel's random number generator, so nothing of this
    # machine or moment may be in it: the control directory is named by its link in /proc.
    arguments = [
        f"mem={guest.memory_bytes // 1024}K",
        "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
        "init=/proc/self/cwd/init",
        "con=null", "con0=fd:0,fd:1", "ssl=null", "panic=-1", "noreboot",
        *_TABLES,
    ]  # fmt: skip
    if guest.time_travel:
        arguments += ["time-travel=inf-cpu", f"time-travel-start={_EPOCH_NS}"]
        arguments += [f"random-seed={guest.seed % 2**64}"]
    if not has_seccomp_filters():
        arguments += ["userspace=ptrace"]
    with open(control / "console", "ab") as console:
        process = subprocess.Popen(
            [str(kernel.path), *arguments],
            cwd=control,
            env={
                "HOME": str(control),
                "TMPDIR": str(memory),
                "PATH": _PATH,
                "GLIBC_TUNABLES": "glibc.pthread.rseq=0",  # the host updates it at each switch
            },
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            preexec_fn=_before_exec,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _before_exec() -> None:
    end_with_parent()
    raise_limits()
    # When memory runs out on the host the guest is to go first, and we are to tell of it.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    # The guest's memory begins where the host puts the heap: at a random place, up to 16 MB of it
    # are lost, and sizes that the guest derives from it differ. Some containers forbid asking.
    _libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE))


@contextmanager
def _control_directory(memory: Path) -> Iterator[Path]:
    """A directory that is gone at the end, also when somebody kills us: a process that waits for
    our end of a pipe to be closed sees to that."""
    name = memory / f"{_CONTROL_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    remover = subprocess.Popen(
        ["sh", "-c", 'read _; exec rm -rf "$0"', name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # Not before somebody is there to remove it: an interrupt may come at any moment.
        name.mkdir(mode=0o700)
        yield name
    finally:
        remover.communicate()


def _write_control(control: Path, guest: GuestSpec) -> None:
    interpreter = getattr(sys, "_base_executable", sys.executable)
    (control / "python").symlink_to(Path(interpreter).resolve())
    init = control / "init"
    program = Path(__file__).with_name("guest.py").read_text()
    init.write_text("#!/proc/self/cwd/python -IS\n" + program)
    init.chmod(0o700)
    environment = {
        "PATH": os.environ.get("PATH", "") + ":" + _PATH,
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **guest.environment,
    }
    search = environment["PATH"].split(":") + environment.get("PYTHONPATH", "").split(":")
    readable = [guest.directory, Path(sys.prefix), Path(sys.base_prefix), *guest.readable]
    readable += [Path(entry) for entry in [*sys.path, *search] if entry.startswith("/")]
    readable += [Path(word).parent for word in guest.argv if word.startswith("/")]
    (control / "guest.json").write_text(
        json.dumps(
            {
                "argv": list(guest.argv),
                "directory": str(guest.directory),
                "environment": environment,
                # Parents first: a directory inside of one that is there needs nothing of its own.
                "readable": [str(path) for path in sorted(set(readable)) if os.path.isdir(path)],
                "writable": [str(path.resolve()) for path in guest.writable],
                "time_travel": guest.time_travel,
                "deadlock_timeout_s": guest.deadlock_timeout_s,
            }
        )
    )
