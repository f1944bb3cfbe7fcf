"""A place for foreign code: bubblewrap around a process, with limits, and a watch over it.

A program that runs there sees a read-only system, Groundwire without its labs, one kernel, and a
folder that is gone with it. It has no network, no home and none of our environment. As root we
become a user without rights inside, as limits on processes do not hold root.
"""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import groundwire
from emulator.virtual.building.carried import KERNEL_VARIABLE
from groundwire.labs.errors import NoSandbox
from groundwire.rooms import ROOMS

WORK = "/submission"
"""The folder that the process may write to, its working directory."""
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "passwd",
    "group",
    "hosts",
)
_FIRST_USER = 61_000
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Limits:
    """The limits of a process and all that it starts, together. Output beyond `output_bytes` ends
    it, as do the others."""

    time_s: float = 300
    memory_bytes: int = 8_000_000_000
    disk_bytes: int = 256_000_000
    output_bytes: int = 1_000_000
    processes: int = 400


@dataclass(frozen=True)
class Ended:
    """How it ended: `status` as a shell has it; `stopped` says which limit ended it."""

    status: int
    output: str
    errors: str
    stopped: str | None


def require_sandbox() -> None:
    """Raises NoSandbox, with what to do, where this machine cannot keep foreign code in."""
    if shutil.which("bwrap") is None:
        raise NoSandbox(
            "submissions are foreign code, and this machine has no sandbox to run them in: "
            "sudo apt-get install bubblewrap"
        )
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        raise NoSandbox("as root a sandbox needs setpriv: apt-get install util-linux")
    tried = subprocess.run(
        [*_bubblewrap(), *_system(), *_as_nobody(), "true"], capture_output=True, text=True
    )
    if tried.returncode != 0:
        raise NoSandbox(
            "submissions are foreign code, and bubblewrap cannot make a sandbox here: "
            f"{tried.stderr.strip()}. It needs user namespaces (on Ubuntu see "
            "kernel.apparmor_restrict_unprivileged_userns)"
        )


def run_inside(argv: list[str], shown: Path, kernel: Path, limits: Limits) -> Ended:
    """Run a program in the sandbox; `shown` is a folder that it reads at /given, `kernel` the
    directory of the virtual kernel. Call `require_sandbox` first."""
    command = [
        *_bubblewrap(),
        *_system(),
        *_writable("/dev/shm", limits.memory_bytes),
        *_writable("/tmp", limits.memory_bytes),
        *_writable(WORK, limits.disk_bytes),
        *_groundwire(),
        *("--ro-bind", str(kernel.resolve()), "/kernel", "--setenv", KERNEL_VARIABLE, "/kernel"),
        *("--ro-bind", str(shown.resolve()), "/given"),
        *("--chdir", WORK),
        *_as_nobody(),
        *argv,
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        start_new_session=True,
        preexec_fn=lambda: _limit(limits),
    )
    watch = _Watch(process, limits)
    try:
        stopped = watch.until_end()
    finally:
        process.kill()  # bubblewrap's end is that of all inside: they share its process 1
        process.wait()
    return Ended(process.returncode, watch.text("output"), watch.text("errors"), stopped)


def _bubblewrap() -> list[str]:
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    if os.getuid() != 0:
        apart.append("--unshare-user")
    return ["bwrap", *apart, "--die-with-parent", "--new-session", "--clearenv"]


def _as_nobody() -> list[str]:
    """As root: the rest of the command runs as a user without any right."""
    if os.getuid() != 0:
        return ["--"]
    user = str(_FIRST_USER + os.getpid() % 1000)
    return ["--", "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
            "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]  # fmt: skip


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _SETTINGS:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev", "--dir", "/sys", "--dir", "/run")
    yield from ("--setenv", "PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    yield from ("--setenv", "LANG", "C.UTF-8", "--setenv", "HOME", WORK)


def _groundwire() -> Iterator[str]:
    """Python as it runs here, and our rooms; of a tree that holds more than those, nothing else."""
    root = Path(groundwire.__file__).resolve().parents[1]
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix)):
        if not prefix.startswith("/usr"):
            yield from _bound(Path(prefix))
    for room in ROOMS:
        yield from _bound(root / room)
    if any(root.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix, "/usr")):
        yield from ("--tmpfs", str(root / "labs"))  # solutions, and what is expected
    yield from ("--setenv", "PYTHONPATH", str(root), "--setenv", "PYTHONDONTWRITEBYTECODE", "1")


def _bound(path: Path) -> Iterator[str]:
    """Readable at its own place. Folders that lead there can be passed by everybody inside, and are
    empty but for that: a home may be closed to others outside."""
    for parent in reversed(path.parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(parent))
    yield from ("--ro-bind", str(path), str(path))


def _writable(path: str, size_bytes: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size_bytes), "--tmpfs", path]


def _limit(limits: Limits) -> None:
    """In the process to be: what holds of each process, or of all of one user's."""
    for kind, most in (
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_AS, 4 * limits.memory_bytes),  # address space is no memory yet
        (resource.RLIMIT_CPU, int(2 * limits.time_s) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


class _Watch:
    """Reads what a process writes, and looks at what it uses."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._deadline = time.monotonic() + limits.time_s
        self._read: dict[str, bytearray] = {"output": bytearray(), "errors": bytearray()}

    def text(self, name: str) -> str:
        return self._read[name].decode(errors="replace")

    def until_end(self) -> str | None:
        """The limit that was passed; None when the process ended by itself."""
        limits = self._limits
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("output", self._process.stdout), ("errors", self._process.stderr)):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select(_LOOK_EVERY_S):
                    if not self._take(key.fileobj, self._read[key.data]):  # type: ignore[arg-type]
                        selector.unregister(key.fileobj)
                if any(len(read) > limits.output_bytes for read in self._read.values()):
                    return f"more than {limits.output_bytes:,} bytes of output"
                if time.monotonic() > self._deadline:
                    return f"more than {limits.time_s:.0f} s"
                used = _memory_bytes(self._process.pid)
                if used > limits.memory_bytes:
                    return f"more than {limits.memory_bytes:,} bytes of memory"
        return None

    def _take(self, pipe: IO[bytes], read: bytearray) -> bool:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        read += data
        return bool(data)


def _memory_bytes(process: int) -> int:
    """Memory of a process and of all below it, what they share counted by its share (PSS)."""
    total, waiting = 0, [process]
    while waiting:
        pid = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{task}/children").read_text()
                waiting += [int(child) for child in children.split()]
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (OSError, ValueError):
            continue  # it has ended, or is not ours to look at
        line = next((line for line in rollup.splitlines() if line.startswith("Pss:")), "Pss: 0")
        total += int(line.split()[1]) * 1024
    return total
