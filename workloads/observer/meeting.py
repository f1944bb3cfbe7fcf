"""A check of the place where a script's ranks meet, before they wait there for ever.

A run's ranks are on several hosts, each started by Groundwire. A script that starts its own ranks
on one machine, or that has them meet at this machine's own address, would wait until its store
gives up. `observer.py` beside this file loads it; it imports nothing but the standard library.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from typing import Any
from urllib.parse import urlparse

_MAKES_GROUPS = ("init_process_group", "init_rpc")


class OwnMeeting(ValueError):
    """A script whose ranks would meet on each host by themselves: says what to change."""


class Meeting:
    """The meeting of a run whose ranks have these `hosts`."""

    def __init__(self, hosts: list[str]) -> None:
        self.renew(hosts)

    def renew(self, hosts: list[str]) -> None:
        """In a process that has been forked from that of another run, or for another rank."""
        self._hosts = hosts
        self._on_one_host = len(set(hosts)) == 1
        self._here = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)

    def check(self, init_method: Any, store: Any, size: Any) -> None:
        """Before a process group of so many ranks is made (-1: as the environment says). Raises
        OwnMeeting."""
        if self._on_one_host or store is not None:
            return
        asked = int(os.environ.get("WORLD_SIZE") or 1) if size in (None, -1) else int(size)
        if asked <= self._here or not _is_this_machine(init_method):
            return
        if multiprocessing.parent_process() is not None:
            raise OwnMeeting(self._starts_own(asked))
        raise OwnMeeting(
            f"the script has its {asked} ranks meet at this machine's own address, but they are on "
            f"{len(set(self._hosts))} hosts. Leave MASTER_ADDR and MASTER_PORT as the script finds "
            "them (os.environ.setdefault, or none of it), and init_method at env://"
        )

    def watch_spawn(self, module: Any) -> None:
        """Look at what a `torch.multiprocessing.spawn` starts."""
        start = module.start_processes

        @functools.wraps(start)
        def start_processes(
            fn: Any, args: Any = (), nprocs: int = 1, *others: Any, **kwargs: Any
        ) -> Any:
            if not self._on_one_host and nprocs > self._here and _makes_groups(fn):
                raise OwnMeeting(self._starts_own(nprocs))
            return start(fn, args, nprocs, *others, **kwargs)

        module.start_processes = start_processes

    def _starts_own(self, ranks: int) -> str:
        return (
            f"the script starts {ranks} ranks of its own on each host, but Groundwire has started "
            f"it once for each of {len(self._hosts)} ranks. Have it be one rank: call its function "
            'with int(os.environ["RANK"]) and int(os.environ["WORLD_SIZE"]), and leave MASTER_ADDR '
            "and MASTER_PORT as it finds them; torchrun's scripts do so. To run all of them on one "
            f"host: --ranks {ranks} --ranks-per-host {ranks} --per host"
        )


def _is_this_machine(init_method: Any) -> bool:
    method = "env://" if init_method is None else str(init_method)
    if method.startswith("env://"):
        address = os.environ.get("MASTER_ADDR", "")
    elif method.startswith("tcp://"):
        address = urlparse(method).hostname or ""
    else:
        return False
    return address in ("localhost", "::1") or address.startswith("127.")


def _makes_groups(function: Any) -> bool:
    """Whether the file that a function is in makes process groups."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    path = getattr(module, "__file__", None)
    if path is None:
        return False
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    return any(name in text for name in _MAKES_GROUPS)
