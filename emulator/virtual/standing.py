"""A guest that has booted and stands still, and its copies.

A guest takes seconds to boot and to import torch, and nothing of that depends on what it is to run.
One that has come so far stands still in the host, at a given virtual time. A copy of it has memory
of its own and goes on from there: bit for bit what a guest does that was booted for it
(emulator/kernel/patches/0020-um-copies-of-a-guest.patch).

Copies are asked for at a socket in the file system, by any process of the same user.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from emulator.virtual.building.image import KernelImage
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.host.limits import refuse_tight_limits
from emulator.virtual.memory.host_memory import memory_directory
from emulator.virtual.starting import GuestSpec, control_directory, guest_process, write_control

ORDER, SAID = "order.json", "said"
"""Files of the directory of a copy of a run that stands still (emulator/stand_still.py)."""
_SOCKET = "requests"
_ANSWER = "answer"
_OUTPUTS = ("status", "console", "stdout", "stderr")
_PATIENCE_S = 120.0
"""How long a copy is waited for: others may be asked for first, and one takes half a second."""


class NoCopy(VirtualKernelError):
    """There is no copy to be had: the guest has ended, or the host refuses something."""


@contextmanager
def bound_socket(control: Path) -> Iterator[socket.socket]:
    """The socket at which copies of a guest are asked for, in its directory `control`. Raises
    VirtualKernelError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        try:
            requests.bind(str(control / _SOCKET))
        except OSError as error:  # a path that is longer than an address may be
            raise VirtualKernelError(f"{control / _SOCKET}: {error}") from error
        yield requests


class Standing:
    """A run that stands still: commands on its hosts, and at last a copy that goes on."""

    def __init__(self, control: Path, memory: Path, written: Sequence[Path]) -> None:
        """`control` is its directory, `memory` where those of copies are made, and `written` what
        it may write to."""
        self._requests, self._memory = control / _SOCKET, memory
        self._outputs, self._written = [control / name for name in _OUTPUTS], tuple(written)

    def run(self, host: str, command: str) -> str:
        """Run a command of a shell on a host of the fabric, in a copy that ends with it; what it
        has said. A command that waits lets time pass in that copy. Raises NoCopy."""
        with control_directory(self._memory) as control, self._restored():
            with self._copy(control, {"host": host, "command": command}) as pid:
                ended = _pidfd(pid)
                if ended is not None:
                    select.select([ended], [], [])
                    os.close(ended)
            said = control / SAID
            return said.read_text(errors="replace") if said.exists() else ""

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Writes of a copy in the block to the machine's files are undone at its end, in place, as
        the guest has them open."""
        kept = {file: file.read_bytes() for file in self._files()}
        try:
            yield
        finally:
            for file in self._files():
                if file not in kept:
                    file.unlink()
                elif file.read_bytes() != kept[file]:
                    with open(file, "r+b") as old:
                        old.write(kept[file])
                        old.truncate()

    def _files(self) -> list[Path]:
        found = [each for directory in self._written for each in directory.rglob("*")]
        return [each for each in (*self._outputs, *found) if each.is_file()]

    @contextmanager
    def going_on(self) -> Iterator[int]:
        """The first process of a copy that goes on with the run. Raises NoCopy."""
        with control_directory(self._memory) as control, self._copy(control, {}) as pid:
            yield pid

    @contextmanager
    def _copy(self, control: Path, order: Mapping[str, str]) -> Iterator[int]:
        (control / ORDER).write_text(json.dumps(order))
        (control / "console").touch()
        with copied_guest(self._requests, control) as pid:
            yield pid


@contextmanager
def standing_guest(kernel: KernelImage, guest: GuestSpec) -> Iterator[Path]:
    """Boot a guest whose command says that it is prepared (emulator/guest_experiment.py); the path
    of its socket. It ends with the context, and its copies with it.

    Does not wait until it stands: who asks for a copy does. Raises VirtualKernelError as
    `run_guest` does.
    """
    refuse_tight_limits(guest.memory_bytes, guest.open_files)
    memory = memory_directory(guest.memory_bytes)
    with ExitStack() as stack:
        control = stack.enter_context(control_directory(memory))
        requests = stack.enter_context(bound_socket(control))
        write_control(control, guest, requests)
        for name in _OUTPUTS:
            (control / name).touch()
        stack.enter_context(guest_process(kernel, guest, control, memory, requests))
        requests.close()  # so that it refuses when the guest has ended
        yield control / _SOCKET


@contextmanager
def copied_guest(standing: Path, control: Path) -> Iterator[int]:
    """The first process of a copy of the guest at the socket `standing`, whose directory is
    `control`. It ends with the context, and with this process. Raises NoCopy."""
    pid = _ask(standing, control)
    # A copy is a child of the guest, not of ours.
    watcher = subprocess.Popen(
        ["sh", "-c", 'read _; exec kill -9 -- "-$0"', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield pid
    finally:
        ended = _pidfd(pid)
        watcher.kill()
        watcher.communicate()
        if ended is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            select.select([ended], [], [])
            os.close(ended)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _ask(standing: Path, control: Path) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as us:
        try:
            us.bind(str(control / _ANSWER))
            us.settimeout(1.0)
            deadline = time.monotonic() + _PATIENCE_S
            us.sendto(str(control).encode(), str(standing))
            while True:
                with contextlib.suppress(TimeoutError):
                    answer = int(us.recv(64))
                    break
                if time.monotonic() > deadline:
                    raise NoCopy(f"{standing}: no answer for {_PATIENCE_S:g} s")
                with contextlib.suppress(TimeoutError):
                    us.sendto(b"", str(standing))  # is it still there?
        except OSError as error:
            raise NoCopy(f"{standing}: {error}") from error
    if answer <= 0:
        raise NoCopy(f"{standing}: {os.strerror(-answer)}")
    return answer
