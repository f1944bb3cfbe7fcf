"""A worker's handling of a job: a process that makes its directory, and that ends with it.

The directory appears under its name when it is complete. Where the worker sees the study's files,
it is made there; else it comes back as an archive.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from groundwire.studies.jobs import Job
from groundwire.studies.workers.job_server import JobServer, job_server

TOKEN = ".token"
PART = ".part-"
_POLL_S = 0.1
_KEPT_LINES = 30
_PATIENCE_S = 20
_NO_PROCESS = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The directory in which a study's cases are, and the text of its token file, by which a worker
    knows that it sees the same directory."""

    directory: str
    token: str


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended: its directory is in its place, or is this archive, or why there is none."""

    key: str
    failure: str | None = None
    archive: bytes | None = None


def work(job: Job, place: Place, cancelled: Callable[[], bool]) -> JobOutcome:
    """Do a job; its process is ended when `cancelled` says so."""
    cases = Path(place.directory)
    if _sees(cases, place.token):
        return _do(job, cases, cancelled)
    with tempfile.TemporaryDirectory(prefix="groundwire-case-") as scratch:
        outcome = _do(job, Path(scratch), cancelled)
        if outcome.failure is not None:
            return outcome
        return JobOutcome(job.key, archive=_pack(Path(scratch) / job.key))


def unpack(outcome: JobOutcome, cases: Path) -> None:
    """Put the archive of a worker that does not see the study's files into its place."""
    if outcome.archive is None:
        return
    part = cases / f"{PART}{secrets.token_hex(4)}"
    with tarfile.open(fileobj=io.BytesIO(outcome.archive), mode="r:gz") as archive:
        archive.extractall(part, filter="data")
    _put(part, cases / outcome.key)


def remove_parts(cases: Path) -> None:
    """Remove what jobs that were ended have left."""
    for part in cases.glob(f"{PART}*"):
        shutil.rmtree(part, ignore_errors=True)


def _sees(cases: Path, token: str) -> bool:
    try:
        return (cases / TOKEN).read_text() == token
    except OSError:
        return False


def _do(job: Job, cases: Path, cancelled: Callable[[], bool]) -> JobOutcome:
    part = cases / f"{PART}{secrets.token_hex(4)}"
    try:
        failure = _process(job, part, cancelled)
        if failure is None:
            _put(part, cases / job.key)
        return JobOutcome(job.key, failure)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, place: Path) -> None:
    try:
        part.rename(place)
    except OSError:
        if not place.is_dir():  # another worker has made the same
            raise
        shutil.rmtree(part)


def _process(job: Job, directory: Path, cancelled: Callable[[], bool]) -> str | None:
    """Returns why it failed."""
    with (
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as given,
        job_server(job.made_by) as server,
    ):
        given.write(json.dumps(asdict(job)).encode())
        given.seek(0)
        pid = server.start(directory, given, said)
        code = None if pid else _NO_PROCESS
        try:
            while code is None:
                code = server.ended(_POLL_S)
                if code is None and cancelled():
                    return "cancelled"
        finally:
            if code is None:
                _end(server, pid)
        if code == 0:
            return None
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()[-_KEPT_LINES:]
    ending = [] if code > 0 else [f"its process was ended by {signal.Signals(-code).name}"]
    text = "\n".join(ending + lines) or f"its process ended with exit code {code}"
    # The same words wherever it ran.
    return text.replace(str(directory), job.key)


def _end(server: JobServer, pid: int) -> None:
    """End a job's process as Ctrl-C does, so that it cleans up; at last by force."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if server.ended(_PATIENCE_S) is None:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        server.ended(_PATIENCE_S)


def _pack(directory: Path) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path in sorted(directory.iterdir()):
            archive.add(path, path.name)
    return target.getvalue()
