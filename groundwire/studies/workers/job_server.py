"""Processes for jobs, forked by one that has imported what all of them need.

Importing takes a second, a third of what a small run in a copied guest takes on the host. A server,
python -m groundwire.studies.workers.job_server with a socket as standard input, does one job at a
time. It ends with its worker, or when there was nothing to do for a while. A job's process ends
with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from emulator.linux.signals import end_with_parent
from groundwire.studies.software import software

Software = tuple[tuple[str, str], ...]

_IMPORTED = (
    "groundwire.studies.workers.job_process",
    "groundwire.pipeline",
    "groundwire.finishing",
)
_NUMBER = struct.Struct("=i")
_PATH_BYTES = 4096
_LOST = -signal.SIGKILL

_IDLE_S = 30.0

_idle: list[JobServer] = []
_lock = threading.Lock()


class JobServer:
    """A server, seen from its worker. It has imported the software `made_by`."""

    def __init__(self, made_by: Software) -> None:
        self.made_by = made_by
        self.environment = dict(os.environ)
        self._launch()

    def _launch(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "groundwire.studies.workers.job_server"],
                cwd=Path(__file__).resolve().parents[3],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is for the study, which ends us
                preexec_fn=end_with_parent,
            )

    def start(self, directory: Path, given: BinaryIO, said: BinaryIO) -> int:
        """Start a job's process, which reads `given` and writes `said`; its number. 0 when the
        server cannot do so."""
        for _ in range(2):
            with suppress(OSError):
                descriptors = [given.fileno(), said.fileno()]
                socket.send_fds(self._socket, [os.fsencode(directory)], descriptors)
                if pid := self._number():
                    return pid
            self.close()  # it has ended, as it does after a while
            self._launch()
        return 0

    def ended(self, timeout_s: float) -> int | None:
        """The process's exit code, negative for a signal; None while it runs. A process whose
        server has ended has ended with it."""
        self._socket.settimeout(timeout_s)
        try:
            code = self._number()
        except TimeoutError:
            return None
        except OSError:
            code = None
        finally:
            self._socket.settimeout(None)
        return _LOST if code is None else code

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()

    def _number(self) -> int | None:
        data = self._socket.recv(_NUMBER.size)
        return _NUMBER.unpack(data)[0] if len(data) == _NUMBER.size else None


@contextmanager
def job_server(made_by: Software) -> Iterator[JobServer]:
    """A server of this process that does nothing else meanwhile. It is used again for jobs of the
    same software and in the same environment; after an error it is not."""
    with _lock:
        server = _idle.pop() if _idle else None
    if server is not None and (server.made_by, server.environment) != (made_by, dict(os.environ)):
        server.close()
        server = None
    server = server or JobServer(made_by)
    try:
        yield server
    except BaseException:
        server.close()
        raise
    with _lock:
        _idle.append(server)


def _serve(orders: socket.socket) -> None:
    """In the server: fork a process for each job, one after another."""
    while select.select([orders], [], [], _IDLE_S)[0]:
        path, descriptors, _, _ = socket.recv_fds(orders, _PATH_BYTES, 2)
        if not path:
            return
        pid = os.fork()
        if pid == 0:
            _become(os.fsdecode(path), orders, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        orders.send(_NUMBER.pack(pid))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            orders.send(_NUMBER.pack(code))


def _become(directory: str, orders: socket.socket, given: int, said: int) -> None:
    """In the fork: do the job as a program of its own would. Never returns."""
    from emulator.linux.signals import run_interruptible
    from groundwire.studies.workers.job_process import main

    code: object = 1
    try:
        end_with_parent()
        os.setsid()
        orders.close()
        os.dup2(given, 0)
        os.dup2(said, 2)
        os.close(given)
        os.close(said)
        sys.argv = [sys.argv[0], directory]
        run_interruptible(main)
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _main() -> None:
    from groundwire.importing import imported

    orders = socket.socket(fileno=os.dup(0))
    for name in _IMPORTED:
        imported(name)
    software("emulate")  # of what has been imported; it is computed once
    _serve(orders)


if __name__ == "__main__":
    _main()
