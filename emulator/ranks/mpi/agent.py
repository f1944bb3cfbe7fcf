"""The place of ssh for `mpirun`: runs a command on another host of the fabric.

It runs in a process of its own, as `AGENT HOST COMMAND...`, below a program in another host.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from emulator.linux import namespaces
from workloads.observer.forks import STEP_NS


def main(hosts_file: str) -> NoReturn:
    """Become the host that the command line names, and execute the command there by a shell, in
    the directory of the run. Ends with exit status 255, as ssh does, when that cannot be."""
    known = json.loads(Path(hosts_file).read_text())
    if len(sys.argv) < 3 or sys.argv[1] not in known["hosts"]:
        names = ", ".join(known["hosts"])
        _fail(f"found {' '.join(sys.argv[1:]) or 'nothing'}; expected HOST COMMAND..., of {names}")
    name, *command = sys.argv[1:]
    host = known["hosts"][name]
    try:
        covers = {Path(path): Path(by) for path, by in host["covers"].items()}
        place = namespaces.HostPlace(Path(host["netns"]), Path(host["ipc"]), covers)
        namespaces.become_host(name, place)
        os.chdir(known["directory"])
        time.sleep(list(known["hosts"]).index(name) * STEP_NS / 1e9)
        os.execv("/bin/sh", ["sh", "-c", " ".join(command)])
    except OSError as error:
        _fail(f"{name}: {error}")


def _fail(words: str) -> NoReturn:
    print(f"groundwire: {words}", file=sys.stderr)
    sys.exit(255)
