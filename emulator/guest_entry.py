"""The first program in a guest: gives the experiment paths that are the same everywhere, then
becomes it.

    python -IS guest_entry.py RUN_DIRECTORY SOURCE PREFIX

In a guest of which copies run experiments there is no run directory yet: it is empty.

Arguments and environment lie on a process's stack, and what is left there of them finds its way
into packets (torch's store sends a byte that nobody has written) and into addresses. With a path of
a fixed length for everything, a run does not depend on where the clone or the run directory is.
"""

import ctypes
import os
import sys

STAGE = "/run/experiment"
IMPORTING = f"{STAGE}/importing.json"
"""The program's Python that a guest has import torch before it has a run directory."""
UNTIL = f"{STAGE}/until.json"
"""When a run stands still, and the socket of the machine below at which copies are asked for."""
BOOT_SEED = 1
"""The seed of guests that do so: that of the spec counts from where its fabric is made."""
_MS_BIND_ALL = 4096 | 16384  # MS_BIND | MS_REC

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONPATH": f"{STAGE}/source",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}

# The variables of a guest whose hosts are charged (emulator/host_time/library.py).
_CHARGED = ("GROUNDWIRE_HOST", "GROUNDWIRE_HOST_OUTSIDE")


def main(run_directory: str, source: str, prefix: str) -> None:
    """Bind everything to its place and start the experiment there. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    library = os.environ.get("LD_PRELOAD", "")
    charged = {}
    if library:
        charged = {name: os.environ[name] for name in _CHARGED if name in os.environ}
        charged["LD_PRELOAD"] = f"{STAGE}/host/{os.path.basename(library)}"
    places = ("run", run_directory), ("source", source), ("python", prefix)
    for name, target in (*places, ("host", os.path.dirname(library))):
        if not target:
            continue
        place = f"{STAGE}/{name}"
        os.makedirs(place)
        if libc.mount(os.fsencode(target), os.fsencode(place), None, _MS_BIND_ALL, None) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), target)
    os.chdir(STAGE)
    python = f"{STAGE}/python/bin/python3"
    arguments = [python, "-m", "emulator.guest_start", f"{STAGE}/run"]
    os.execve(python, arguments, _ENVIRONMENT | charged)


if __name__ == "__main__":
    main(*sys.argv[1:])
