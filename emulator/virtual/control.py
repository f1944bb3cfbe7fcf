"""The directory in which a guest begins: its first program, what it is to do, where it reports."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.virtual.guest_spec import GuestSpec

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PREFIX = "groundwire-guest-"


@contextmanager
def control_directory(memory: Path) -> Iterator[Path]:
    """A directory that is gone at the end, also when somebody kills us: a process that waits for
    our end of a pipe to be closed sees to that."""
    name = memory / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
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


def write_control(control: Path, guest: GuestSpec) -> None:
    """What the kernel runs first in this directory, `init`, and what that reads, `guest.json`."""
    interpreter = getattr(sys, "_base_executable", sys.executable)
    (control / "python").symlink_to(Path(interpreter).resolve())
    init = control / "init"
    program = Path(__file__).with_name("guest.py").read_text()
    init.write_text("#!/proc/self/cwd/python -IS\n" + program)
    init.chmod(0o700)
    environment = {
        "PATH": os.environ.get("PATH", "") + ":" + SYSTEM_PATH,
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
