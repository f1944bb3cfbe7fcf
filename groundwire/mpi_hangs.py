"""The hang of a program of MPI's, with what its captures tell of its messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emulator.ranks.failures.hang_watch import HANG_FILE
from emulator.session import hangs_of
from topologies.spec.spec import Spec

_CALL = re.compile(r"\bP?(MPI_\w+)")


def tell_mpi_messages(directory: Path, spec: Spec) -> str:
    """Add to `hang.json` of a run directory what the captures tell of the ranks that `mpirun` has
    started: who waits for whom, and the last messages of each. Returns that in words; empty where
    nothing hangs, or no program is MPI's. Raises OSError."""
    hangs = hangs_of(directory)
    said = []
    for hang in hangs:
        part = spec.parts[hang["job"] or spec.name]
        program = part.workload.program
        if program is not None and program.per == "job":
            lines = list(_told(directory, part, hang))
            prefix = f"job {hang['job']}: " if hang["job"] else ""
            said += [prefix + line for line in lines]
            hang["said"] = "\n".join(filter(None, [*lines, hang["said"]]))
    if said:
        (directory / HANG_FILE).write_text(json.dumps(hangs, indent=1) + "\n")
    return "\n".join(said)


def _told(directory: Path, part: Spec, hang: dict[str, Any]) -> Iterator[str]:
    """The lines of a job, which go into what is known of its hang."""
    from analysis.decode.mpi.messages import messages_so_far
    from analysis.decode.mpi.waits import mpi_hang
    from analysis.decode.tcp.pcap import CaptureFormatError
    from analysis.runs.run import RunError

    hosts = part.plan.hosts
    try:
        messages = messages_so_far(directory, part.plan.fabric, hosts)
    except (CaptureFormatError, RunError, OSError) as error:
        messages = []
        yield f"the captures cannot be read: {error}"
    calls = {each["rank"]: _call(each) for each in hang["ranks"]}
    found = mpi_hang(calls, messages, len(hang["ranks"]), hang["at_ns"])
    hang["absent"], hang["cycle"] = list(found.absent), list(found.cycle)
    for each, state in zip(found.ranks, hang["ranks"], strict=True):
        state["waits_for"] = list(each.waits_for)
        state["mpi"] = each.as_dict()
    yield from found.lines()
    if not messages:
        yield "no message of OpenMPI is in the captures: between hosts, by TCP, release 4.1"
    elif len(set(hosts)) < len(hosts):
        yield "messages between ranks of one host are in memory: the wire has none of them"


def _call(rank: Mapping[str, Any]) -> str:
    """The outermost function of MPI on a rank's stack; empty where there is none."""
    names = [found[1] for place in rank["native"] if (found := _CALL.search(place))]
    return names[-1] if names else ""
