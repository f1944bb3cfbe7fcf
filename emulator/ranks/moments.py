"""Moments of programs' ranks at which faults of the spec begin: a rank says that it has come there.

The observer of a rank (`workloads/observer/moments.py`) connects here, and the rank waits until it
is answered: a fault begins before the rank goes on.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from emulator.network.faults import Moment
from emulator.network.network import Network
from topologies.spec.run_sections import ProcessFault
from topologies.spec.spec import Spec

_LINE_BYTES = 4096


def moments_socket(network: Network) -> Path:
    """The socket of a run, on no disk."""
    assert network.session is not None
    return network.session.directory / "moments"


def moments_plan(spec: Spec, network: Network, job: str) -> dict[str, Any] | None:
    """The observer's plan: the socket, the job, and of each rank (as text) its moments. None where
    no fault of the `job` (the only one has no name) begins at one."""
    of_ranks: dict[str, list[tuple[str, int]]] = {}
    for fault in spec.faults:
        own = fault.job if isinstance(fault, ProcessFault) else None
        if job and own != job:
            continue
        wanted = of_ranks.setdefault(str(fault.counting_rank), [])
        if fault.operation is not None:
            wanted.append(("operation", fault.operation))
        elif fault.iteration:
            wanted.append(("iteration", fault.iteration))
    of_ranks = {rank: wanted for rank, wanted in of_ranks.items() if wanted}
    if not of_ranks:
        return None
    return {"socket": str(moments_socket(network)), "job": job, "of_ranks": of_ranks}


@contextmanager
def moments_heard(network: Network, come: Callable[[Moment], None]) -> Iterator[None]:
    """Inside of the block, `come` is called, in a thread, with each moment that a rank comes to,
    which goes on when it returns."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(moments_socket(network)))
        listener.listen()
        thread = threading.Thread(target=_hear, args=(listener, come), name="moments", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _hear(listener: socket.socket, come: Callable[[Moment], None]) -> None:
    while True:
        try:
            rank, _ = listener.accept()
        except OSError:  # the run is over
            return
        with rank, suppress(OSError):
            line = rank.recv(_LINE_BYTES)
            if line:
                come(Moment(**json.loads(line)))
                rank.send(b"go on")
