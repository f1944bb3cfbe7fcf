"""How a guest begins: what it is to run, a directory for what it and we tell each other, and its
first process of the host."""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from emulator.linux.signals import end_with_parent
from emulator.virtual.building.image import KernelImage
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.host.features import has_seccomp_filters
from emulator.virtual.host.limits import raise_limits

_ADDR_NO_RANDOMIZE = 0x0040000
_OOM_SCORE_ADJ = "500"  # as if it held half of the memory more than it does (proc(5))
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

    A command that `prepares` does what does not depend on its experiment, says so on file 3, and
    reads a byte of file 4: then the host's directories of `places` are where these say.

    `files` of the guest's own have these contents from its boot on.

    A command that `tells_of_hangs` gets a SIGUSR1 before the guest ends for a deadlock.

    A command that `stands_at_ns` finds this number, and that of the socket at which copies are
    asked for then, as JSON in `until_file`.

    `copy_of` is the socket of a guest that stands still there (standing.py): the command goes on in
    a copy of it. Only `places`, `memory_bytes` and the timeouts of the rest are heeded then.
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
    prepares: bool = False
    tells_of_hangs: bool = False
    places: Mapping[Path, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    copy_of: Path | None = None
    stands_at_ns: int | None = None
    until_file: str = ""


@contextmanager
def guest_process(
    kernel: KernelImage,
    guest: GuestSpec,
    control: Path,
    memory: Path,
    requests: socket.socket | None = None,
) -> Iterator[int]:
    """Boot a guest; the number of its first process. It has `requests`, under the same number."""
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
            pass_fds=[] if requests is None else [requests.fileno()],
        )
    try:
        yield process.pid
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
def control_directory(memory: Path) -> Iterator[Path]:
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


def write_control(control: Path, guest: GuestSpec, requests: socket.socket | None = None) -> None:
    """The first program of the guest, and its arguments."""
    interpreter = getattr(sys, "_base_executable", sys.executable)
    (control / "python").symlink_to(Path(interpreter).resolve())
    init = control / "init"
    program = Path(__file__).with_name("guest.py").read_text()
    init.write_text("#!/proc/self/cwd/python -IS\n" + program)
    init.chmod(0o700)
    files = dict(guest.files)
    if guest.stands_at_ns is not None and requests is not None:
        until = {"at_ns": guest.stands_at_ns, "socket": requests.fileno()}
        files[guest.until_file] = json.dumps(until)
        requests = None  # it is no prepared guest
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
                "prepares": guest.prepares,
                "tells_of_hangs": guest.tells_of_hangs,
                "requests": None if requests is None else requests.fileno(),
                "files": files,
                "places": {str(path.resolve()): place for path, place in guest.places.items()},
            }
        )
    )
