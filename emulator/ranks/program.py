"""Programs that are not ours, one per rank or per host: started, watched, ended with all that they
have started themselves."""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import re
import selectors
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from emulator.linux import namespaces
from emulator.linux.scheduling import ask_for_slice
from emulator.linux.signals import end_with_parent
from emulator.ranks.gate import Seat
from emulator.ranks.rank_process import send_report
from workloads.execution.traffic_class import NO_CLASS, TrafficClass
from workloads.observer import LIFE, OBSERVER, STACKS
from workloads.observer.forks import order
from workloads.observer.main_imports import OF_A_RANK
from workloads.virtual_gpu.plan import DEVICES_VARIABLE

_PR_SET_CHILD_SUBREAPER = 36
_CHUNK_BYTES = 1 << 16
_NOT_RUN = 127
"""The exit code of a shell, too, when it cannot run a program."""
# Ignored by Python or by the fork server; a program expects what a shell gives it.
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
)

# torch's store tries IPv6 first, says so, and goes on; the guest's kernel has none. The line is in
# the rank's file, and not on the screen of whoever looks for what the program says.
_NO_IPV6 = re.compile(r"socket\.cpp:\d+\] \[c10d\] The client socket cannot .*\(errno: 97 ")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ProgramJob:
    """A program and where it runs. `rank` is its rank, or the first of its host's. With `live`, its
    output is reported as it comes, too, with `prefix` before each line."""

    rank: int
    who: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    host: str
    place: namespaces.HostPlace
    stdout: Path
    stderr: Path
    live: bool
    prefix: str = ""
    address: str = ""
    """The address of its host."""
    traffic: TrafficClass = NO_CLASS
    seat: Seat | None = None
    """The seat of a program of one of several jobs: its place at their gate."""
    many: int = 1
    """How many ranks it has, from `rank` on."""
    starts_ranks: bool = False
    """Whether these are processes that it starts itself, as torchrun does."""
    life: int = 0
    """How often it has been killed and started again."""
    slice_ns: int = 0
    """The slice of the scheduler's that its processes ask for (0: Linux's own). Among those that
    are ready at one time, one with a shorter slice goes first."""
    python: tuple[str, ...] | None = None
    """The command line as one of a Python that imports torch, which can fork all such programs of a
    run from one import; None where it is none."""

    def forked(self, ranks: Collection[int], itself: bool) -> list[int]:
        """The processes of `ranks` of its own that have been forked from an import, and which no
        process has started therefore; with that of the program `itself` where it starts ranks."""
        found = []
        for file in (self.stdout.parent / STACKS).glob("*.*"):
            whose, _, pid = file.name.partition(".")
            is_own = whose.isdigit() and self.rank <= int(whose) < self.rank + self.many
            is_it = whose == f"host-{self.environment.get('GROUP_RANK', '')}"
            if (is_own and int(whose) in ranks) or (is_it and itself):
                found.append(int(pid))
        return found


def inherit_orphans() -> None:
    """Processes that programs leave behind become this process's own, to be ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


Watched = TypeVar("Watched")


class Watch(Generic[Watched]):
    """Processes that run, and the output of programs that are live."""

    def __init__(
        self, orders: socket.socket, on_order: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """`on_order` gets what comes by `orders`, a line of JSON each."""
        self.running: dict[int, Watched] = {}
        self.due = 0
        """How many are to be started yet."""
        self._orders, self._on_order = orders, on_order
        self._ordered = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ, None)
        self._outputs: list[_LiveOutput] = []

    def start(
        self: Watch[Any], job: ProgramJob, wait: Callable[[], None], imported: int | None = None
    ) -> int:
        """Fork a program, which calls `wait` before it is executed; returns its process. `imported`
        is the socket for orders of a Python that has imported what it needs."""
        how = os.O_APPEND if job.life else os.O_TRUNC
        streams = [
            (name, os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o644))
            for name, path in (("stdout", job.stdout), ("stderr", job.stderr))
        ]
        targets = []
        for name, file in streams:
            if not job.live:
                targets.append(file)
                continue
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            output = _LiveOutput(name, reading, file, self._orders, job)
            self._outputs.append(output)
            self._selector.register(reading, selectors.EVENT_READ, output)
            targets.append(writing)
        pid = os.fork()
        if pid == 0:
            _become_program(job, wait, targets, imported)
        for target in targets:
            os.close(target)
        self.add(pid, job)
        return pid

    def add(self, pid: int, job: Watched) -> None:
        """Watch a process that has been forked."""
        self.running[pid] = job
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)

    def call_when_readable(self, descriptor: int, call: Callable[[], None]) -> None:
        """Have something done while `ended` waits."""
        self._selector.register(descriptor, selectors.EVENT_READ, call)

    def ended(self) -> Iterator[tuple[int, Watched, int]]:
        """(process, job, wait status) of each as it ends, to the last one. Where nobody listens any
        more, all are as good as ended."""
        while self.running or self.due:
            for key, _ in self._selector.select():
                if isinstance(key.data, _LiveOutput):
                    if not key.data.copy():
                        self._selector.unregister(key.fd)
                elif isinstance(key.data, int):
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(key.data, 0)
                    yield key.data, self.running.pop(key.data), status
                elif key.data is not None:
                    key.data()
                elif not self._take_orders():
                    return

    def _take_orders(self) -> bool:
        """False where nobody is left to give any."""
        part = self._orders.recv(_CHUNK_BYTES)
        *lines, self._ordered = (self._ordered + part).split(b"\n")
        for line in lines:
            self._on_order(json.loads(line))
        return bool(part)

    def drain(self) -> None:
        """Copy what is left of the output."""
        for output in self._outputs:
            output.copy()
            output.end()


class _LiveOutput:
    """A stream of a program that goes into its file and, line by line, to whoever listens."""

    def __init__(
        self, name: str, reading: int, file: int, reports: socket.socket, job: ProgramJob
    ) -> None:
        self._name, self._reading, self._file, self._reports = name, reading, file, reports
        self._prefix = job.prefix
        self._of_job = {} if job.seat is None else {"job": job.seat.job}
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""

    def copy(self) -> bool:
        """Pass on what there is; False at its end."""
        with suppress(BlockingIOError):
            while data := os.read(self._reading, _CHUNK_BYTES):
                left = data
                while left:
                    left = left[os.write(self._file, left) :]
                *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
                for line in lines:
                    self._tell(line)
            return False
        return True

    def end(self) -> None:
        """Pass on a last line that has no end."""
        if self._line:
            self._tell(self._line)

    def _tell(self, line: str) -> None:
        if self._name == "stderr" and _NO_IPV6.search(line):
            return
        with suppress(BrokenPipeError):
            send_report(
                self._reports,
                {
                    "stream": self._name,
                    "line": self._prefix + line.rstrip("\r"),
                    **self._of_job,
                },
            )


@dataclass(frozen=True, slots=True)
class Importing:
    """A Python that imports torch for all ranks of a program, and the environment of that. Where
    ranks share what the program itself imports, `program` is its directory and what follows the
    Python in its command line."""

    python: str
    environment: Mapping[str, str]
    program: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: ProgramJob) -> Importing:
        """The one for a job with a Python."""
        assert job.python is not None
        # None of a rank's: modules may read all variables without asking for one.
        of_one = (*OF_A_RANK, "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        common = {n: value for n, value in job.environment.items() if n not in of_one}
        has_gpus = DEVICES_VARIABLE in job.environment
        program = (str(job.directory), *job.python[1:]) if has_gpus else ()
        return cls(job.python[0], common, program)


def start_importing(importing: Importing) -> int | None:
    """Have a Python import torch; returns the socket that takes its orders, when it has. None where
    that fails, which the programs themselves will tell."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            end_with_parent()
            os.setsid()
            for number in _DEFAULT_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDWR)
            for target in range(3):
                os.dup2(null, target)
            for end in (ours, theirs):
                os.set_inheritable(end.fileno(), True)
            os.chdir("/")  # what is forked has its own directory
            ends = str(theirs.fileno()), str(ours.fileno())
            python = importing.python
            arguments = (python, str(OBSERVER / "forks.py"), *ends, *importing.program)
            os.execvpe(python, arguments, importing.environment)
        finally:
            os._exit(_NOT_RUN)
    theirs.close()
    if ours.recv(16) != b"ready":
        ours.close()
        return start_importing(replace(importing, program=())) if importing.program else None
    return ours.detach()


def _life_of(job: ProgramJob) -> dict[str, str]:
    return {LIFE: str(job.life)} if job.life else {}


def _be_forked(job: ProgramJob, imported: int, outputs: Sequence[int]) -> None:
    """Have this process's program be forked from what has been imported, and end as it does.
    Returns where that cannot be."""
    assert job.python is not None
    try:
        environment = dict(job.environment) | _life_of(job)
        program = order(imported, job.python, environment, outputs, job.slice_ns)
    except ConnectionError:
        return
    code = program.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become_program(
    job: ProgramJob, wait: Callable[[], None], outputs: list[int], imported: int | None
) -> None:
    """Body of a program's process before it is one; never returns."""
    try:
        end_with_parent()
        os.setsid()
        for number in _DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, descriptor in enumerate([null, *outputs]):
            os.dup2(descriptor, target)
        job.traffic.use()
        namespaces.become_host(job.host, job.place)
        os.chdir(job.directory)
        if job.slice_ns:
            ask_for_slice(job.slice_ns)
        wait()
        if imported is not None:
            _be_forked(job, imported, (0, 1, 2))
        os.execvpe(job.argv[0], job.argv, dict(job.environment) | _life_of(job))
    except OSError as error:
        os.write(2, f"cannot run {job.argv[0]}: {error.strerror}\n".encode())
    except BaseException as error:
        os.write(2, f"cannot run {job.argv[0]}: {error!r}\n".encode())
    finally:
        os._exit(_NOT_RUN)


def end_descendants() -> None:
    """End every process that this one has started, or that those have started, and wait for it."""
    while found := descendants(os.getpid()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def descendants(*roots: int) -> list[int]:
    """The processes that some have started, and that those have started."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                # pid (name) state ppid: the name may hold anything, brackets too.
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    left = list(roots)
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found
