"""Has a rank's Python write the stacks of its threads when it is asked to by a signal.

A handler of C++ does it (`faulthandler`), so that it works while the rank waits in a call, whatever
that is. `sitecustomize.py` beside this file loads it; it imports nothing but the standard library.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal

SIGNAL = signal.SIGRTMIN + 16
_ABOVE = 512
"""A program's own files keep their numbers."""


def listen(directory: str) -> None:
    """Write stacks on `SIGNAL`, into a file in the folder `directory`: its name is that of the
    process's place in the run, and its number."""
    if not os.path.isdir(directory):
        return
    path = os.path.join(directory, f"{_place()}.{os.getpid()}")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        kept = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    finally:
        os.close(file)
    faulthandler.register(SIGNAL, kept, all_threads=True, chain=False)


def _place() -> str:
    """The rank of this process, or that of the host on which it starts ranks."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        found = os.environ.get(name, "")
        if found.isdigit():
            return found
    return f"host-{os.environ.get('GROUP_RANK', '')}"
