"""A program that works on the kernel's tree: it ends when we do, however that is, and sees nothing
of the user's settings."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from emulator.linux.signals import end_with_parent

_PATIENCE_S = 1.5
# The places where this machine has its programs, their libraries, and room.
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR")


def build_environment() -> dict[str, str]:
    """The whole environment of a program that takes part in building.

    Nothing else of ours: KCFLAGS, CPATH or GNUTARGET would change the kernel, MAKEFLAGS, CC, O,
    TAR_OPTIONS or XZ_OPT break its build, and `make setup` itself exports some of them.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # make calls itself and finds itself as we have found it, also in an emptied environment.
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}


@contextmanager
def build_process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """`command`, its output and its errors in `stdout`; at the end of the block it has ended.

    Any exception, so also an interrupt, ends it and all that it has started: politely at first, as
    make then removes what it was making. A terminal's Ctrl-C does not reach them by itself, and a
    `kill` of us alone would leave them behind otherwise. They inherit our locked files (PEP
    446 has everything else closed), so that no other build begins before the last of them has
    ended.
    """
    process = subprocess.Popen(
        command,
        env=build_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",  # a file's name may be no text
        start_new_session=True,
        close_fds=False,
        preexec_fn=lambda: end_with_parent(signal.SIGTERM),
    )
    try:
        yield process
        process.wait()
    except BaseException:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_PATIENCE_S)
        raise
    finally:
        if process.poll() is None:
            _signal(process, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
