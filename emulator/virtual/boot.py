"""Run commands as root in fresh guests of the virtual kernel, and report how they ended."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from emulator.parent_death import end_with_parent
from emulator.virtual.build import KernelImage
from emulator.virtual.clock import VirtualClock
from emulator.virtual.control import SYSTEM_PATH, control_directory, write_control
from emulator.virtual.core import Core, busiest
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.guest_spec import GuestResult, GuestSpec, Reason
from emulator.virtual.lines import FollowedFile
from emulator.virtual.memory import memory_directory
from emulator.virtual.out_of_memory import describe_out_of_memory
from emulator.virtual.peer_sockets import PeerSockets, peer_sockets, seed_of
from emulator.virtual.rereading import Rereading
from emulator.virtual.reserve import kept_reserve
from emulator.virtual.seccomp import has_seccomp_filters

__all__ = ["GuestResult", "GuestSpec", "run_guest", "run_guests"]

_ADDR_NO_RANDOMIZE = 0x0040000
_POLL_S = 0.02
_CONSOLE_TAIL_LINES = 40
_CONSOLE_KEPT_LINES = 4000  # a report of memory running out has a line for each process
# Virtual wall-clock time at boot: the same in every run. 2026-01-01T00:00:00Z.
_EPOCH_NS = 1_767_225_600 * 10**9
# Tables that Linux sizes by its memory. Those of sockets are as on a host of 128 GiB or more, where
# they grow no further (tcp_init and udp_table_init in net/ipv4): they decide UDP's ephemeral ports,
# and how many connections may be pending, closing or orphaned. Those of files decide nothing.
_TABLES = (
    *("thash_entries=524288", "uhash_entries=65536"),
    *("dhash_entries=131072", "ihash_entries=65536", "mhash_entries=2048", "mphash_entries=2048"),
)

_libc = ctypes.CDLL("libc.so.6", use_errno=True)


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
    writable directory that does not exist, a host that forbids ptrace.
    """
    memory = _memory_for([guest])
    with ExitStack() as held:
        running = _Guest(kernel, guest, memory, held, on_line, on_error_line or on_line)
        _follow([running], on_time)
    return running.result()


def run_guests(
    kernel: KernelImage,
    guests: Sequence[GuestSpec],
    lookahead_ns: int,
    on_line: Callable[[int, str], None],
    on_time: Callable[[int], None] | None = None,
) -> tuple[GuestResult, ...]:
    """Run guests in virtual time at once, each on a core of its own if there are as many, kept in
    step: what one sends to another takes at least `lookahead_ns`.

    As `run_guest` does. `on_line` gets the index of the guest and a line that its command has
    written, `on_time` the time of the guest that is least far. A guest that fails ends the others
    at once; their results say "stopped", if they had not ended before.
    """
    memory = _memory_for(guests)
    with ExitStack() as held:
        running: list[_Guest] = []
        with peer_sockets(len(guests), lookahead_ns) as sockets:
            for index, guest in enumerate(guests):

                def say(line: str, index: int = index) -> None:
                    on_line(index, line)

                own = held.enter_context(ExitStack())
                beside = [other.core for other in running if other.core is not None]
                peers = sockets[index] if len(guests) > 1 else None
                running.append(_Guest(kernel, guest, memory, own, say, say, peers, beside))
        _follow(running, on_time)
    return tuple(guest.result() for guest in running)


def _memory_for(guests: Sequence[GuestSpec]) -> Path:
    for guest in guests:
        for directory in guest.writable:
            if not directory.is_dir():
                raise VirtualKernelError(f"writable directory {directory} does not exist")
    return memory_directory(*(guest.memory_bytes for guest in guests))


class _Guest:
    """A guest from its boot to its end."""

    def __init__(
        self,
        kernel: KernelImage,
        spec: GuestSpec,
        memory: Path,
        held: ExitStack,
        on_line: Callable[[str], None],
        on_error_line: Callable[[str], None],
        peers: PeerSockets | None = None,
        beside: Sequence[Core] = (),
    ) -> None:
        """Boots it; closing `held` ends it. `beside` are the cores of guests that run already."""
        self.spec = spec
        self._held = held
        self._events: list[dict[str, Any]] = []
        self._standing: tuple[Reason, str] | None = None
        self._started_s = self.moved_s = time.monotonic()
        self._wall_s = 0.0
        until_ready = held.enter_context(ExitStack())
        control = until_ready.enter_context(control_directory(memory))
        write_control(control, spec)
        self._console = FollowedFile(
            control / "console", lambda line: None, keep=_CONSOLE_KEPT_LINES
        )

        def note(line: str) -> None:
            self._events.append(json.loads(line))
            until_ready.close()  # the guest has all of it open

        # In this order: who sees a line of the command can kill us and nothing is left.
        self._files = (
            FollowedFile(control / "status", note),
            self._console,
            FollowedFile(control / "stdout", on_line),
            FollowedFile(control / "stderr", on_error_line),
        )
        held.callback(self._close_files)
        process = held.enter_context(_guest_process(kernel, spec, control, memory, peers))
        self.pid = process.pid
        self._clock = VirtualClock(process.pid, kernel.symbols)
        self.now_ns = 0
        in_step = peers is not None
        self.core = Core(process.pid, beside, in_step) if spec.time_travel else None
        if self.core is not None:
            held.enter_context(kept_reserve(process.pid, kernel.symbols, self.core))
        self._memory_watch = Rereading(process.pid, kernel.symbols, spec.memory_bytes)

    def pass_on(self) -> None:
        """Hand over what it has said."""
        for file in self._files:
            file.poll()
            if not self._events:
                break  # it is not ready, so there is nothing in the others

    def look_at_clock(self) -> bool:
        """Whether its time has moved since the last look."""
        now_ns = self._clock.read_ns()
        if now_ns == self.now_ns and self.spec.time_travel:
            return False
        self.now_ns, self.moved_s = now_ns, time.monotonic()
        self._memory_watch.time_passed()
        return True

    def exhaustion(self) -> str | None:
        """What is so when it will read its programs again for ever, for lack of memory."""
        return self._memory_watch.describe() if self._memory_watch.is_without_end() else None

    def kill(self, reason: Reason, message: str) -> None:
        """End it at once; that is what is said of it if it has not said itself how it ended."""
        self._standing = self._standing or (reason, message)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def settle(self) -> None:
        """It has ended: let go of all that was its own."""
        self._held.close()
        self._wall_s = time.monotonic() - self._started_s

    def _close_files(self) -> None:
        for file in self._files:
            file.close()

    def result(self) -> GuestResult:
        """How it ended."""
        console = tuple(self._console.tail)
        end: dict[str, Any] = self._events[-1] if self._events else {"event": "none"}
        virtual_ns = int(end.get("virtual_ns", self._clock.read_ns()))

        def result(reason: Reason, message: str, status: int | None = None) -> GuestResult:
            stops = end.get("stops", {})
            tail = console[-_CONSOLE_TAIL_LINES:]
            return GuestResult(reason, status, message, tail, virtual_ns, self._wall_s, stops)

        if end["event"] == "exited":
            status = int(end["status"])
            return result("exited", "", status if status >= 0 else 128 - status)
        if end["event"] == "deadlock":
            table = "\n".join(end["processes"])
            limit_s = self.spec.deadlock_timeout_s
            return result("deadlock", f"no process ran for {limit_s:g} virtual seconds:\n{table}")
        if self._standing is not None:
            return result(*self._standing)
        exhausted = describe_out_of_memory(console, self.spec.memory_bytes)
        if exhausted is not None:
            return result("out-of-memory", exhausted)
        for line in console:
            if "Kernel panic" in line:
                return result("panic", line)
        if end["event"] == "failed":
            return result("died", f"the guest's init failed: {end['message']}")
        for line in console:
            if "reboot: " in line:  # "Restarting system", "Power down", "System halted"
                said = line.partition("reboot: ")[2]
                message = f"a process in the guest switched it off or restarted it: {said}"
                return result("died", message)
        return result("died", "the guest ended without a report")


def _follow(guests: Sequence[_Guest], on_time: Callable[[int], None] | None) -> None:
    """Pass on output until all guests are gone, or one has failed, which ends the others."""
    poller = select.poll()
    with ExitStack() as held:
        running: dict[int, _Guest] = {}
        for guest in guests:
            pidfd = os.pidfd_open(guest.pid)
            held.callback(os.close, pidfd)
            poller.register(pidfd, select.POLLIN)
            running[pidfd] = guest
        while running:
            ended = []
            for pidfd, _ in poller.poll(_POLL_S * 1000):
                poller.unregister(pidfd)
                ended.append(running.pop(pidfd))
            for guest in ended:
                guest.pass_on()
            failed = any(guest.result().failed for guest in ended)
            here = list(running.values())
            standing = _look(here, on_time) if here and not failed else None
            if standing is not None:
                guest, reason, message = standing
                guest.kill(reason, message)
            if failed or standing is not None:
                for guest in here:
                    guest.kill("stopped", "it was ended, as another kernel of the run had failed")
                running.clear()
                ended += here
            for guest in ended:
                guest.settle()


def _look(
    guests: Sequence[_Guest], on_time: Callable[[int], None] | None
) -> tuple[_Guest, Reason, str] | None:
    """Pass on what guests say. If one of them stands still: why, and what is known."""
    for guest in guests:
        if guest.core is not None:
            others = (other.core for other in guests if other is not guest)
            guest.core.settle(frozenset(core.number for core in others if core is not None))
        guest.pass_on()
    moved = [guest.look_at_clock() for guest in guests]
    if any(moved) and on_time is not None:
        on_time(min(guest.now_ns for guest in guests))
    for guest, has_moved in zip(guests, moved, strict=True):
        exhausted = None if has_moved else guest.exhaustion()
        if exhausted is not None:
            return guest, "out-of-memory", exhausted
    # Who waits for the others moves when they do, so none is stalled unless all stand still.
    limit_s = guests[0].spec.stall_timeout_s
    if time.monotonic() - max(guest.moved_s for guest in guests) <= limit_s:
        return None
    guest = guests[busiest([guest.pid for guest in guests])]
    message = (
        f"no virtual time passed for {limit_s:g} real seconds "
        f"(it stands at {guest.now_ns / 1e9:.9f} s): something computes or polls without end"
    )
    return guest, "stalled", message


@contextmanager
def _guest_process(
    kernel: KernelImage, guest: GuestSpec, control: Path, memory: Path, peers: PeerSockets | None
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
        arguments += [f"random-seed={seed_of(guest.seed, peers.index if peers else 0)}"]
    if not has_seccomp_filters():
        arguments += ["userspace=ptrace"]
    environment = {
        "HOME": str(control),
        "TMPDIR": str(memory),
        "PATH": SYSTEM_PATH,
        "GLIBC_TUNABLES": "glibc.pthread.rseq=0",  # the host updates it at each switch
    }
    if peers is not None:
        environment["UM_PEERS"] = peers.variable
    with open(control / "console", "ab") as console:
        process = subprocess.Popen(
            [str(kernel.path), *arguments],
            cwd=control,
            env=environment,
            pass_fds=peers.descriptors if peers is not None else (),
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
    # The guest's memory begins where the host puts the heap: at a random place, up to 16 MB of it
    # are lost, and sizes that the guest derives from it differ. Some containers forbid asking.
    _libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE))
