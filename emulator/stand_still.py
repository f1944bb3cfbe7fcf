"""A run that stands still at a time, in the guest: it goes on in copies only.

Each copy gets an order. With a command it runs that on a host, keeps what it says, and ends; the
last one goes on with the run. So nothing that is looked at changes the run.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from emulator.linux import namespaces
from emulator.virtual.standing import ORDER, SAID
from workloads.execution.clock import sleep_until_ns

_COPIES = "/proc/um_copies"
_PLACE = "/run/order"
_PATH_BYTES = 4096
_TOLD_BEFORE_NS = 1_000_000
"""The command hears so long before it that the run stands: word of it passes through process 1."""
_RB_POWER_OFF = 0x4321FEDC

_libc = ctypes.CDLL(None, use_errno=True)

BecomeHost = Callable[[str], None]
"""Makes this process one of a host's, by name. Raises OSError, KeyError for no host."""


def stand_still(at_ns: int, socket: int, tell: Callable[[], None], become: BecomeHost) -> None:
    """From a thread, stand still at `at_ns` of the monotonic clock. Copies are asked for at the
    `socket` of the machine below, and `tell` is called before."""

    def stand() -> None:
        sleep_until_ns(at_ns - _TOLD_BEFORE_NS)
        tell()
        sleep_until_ns(at_ns)
        with open(_COPIES, "r+b", buffering=0) as copies:
            copies.write(str(socket).encode())
            control = copies.read(_PATH_BYTES)
        os.makedirs(_PLACE)
        namespaces.mount_of_the_machine(control, _PLACE)
        order = json.loads(Path(_PLACE, ORDER).read_text())
        if order:
            _obey(order["host"], order["command"], become)
        namespaces.unmount(Path(_PLACE))

    if at_ns - _TOLD_BEFORE_NS > time.monotonic_ns():
        threading.Thread(target=stand, name="stand-still", daemon=True).start()


def _obey(host: str, command: str, become: BecomeHost) -> NoReturn:
    """Run a command on a host, and end the guest. Processes that the command has started end with
    it."""
    said = os.open(f"{_PLACE}/{SAID}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    pid = os.fork()
    if pid == 0:
        try:
            become(host)
            null = os.open(os.devnull, os.O_RDONLY)
            for target, descriptor in enumerate((null, said, said)):
                os.dup2(descriptor, target)
            os.execvp("sh", ("sh", "-c", command))
        except BaseException as error:
            words = error.strerror if isinstance(error, OSError) else repr(error)
            os.write(said, f"{host}: {words}\n".encode())
        finally:
            os._exit(127)
    os.waitpid(pid, 0)
    os.fsync(said)
    os.sync()
    _libc.reboot(ctypes.c_int(_RB_POWER_OFF))
    raise AssertionError("the guest has ended")
