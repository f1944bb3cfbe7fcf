"""What a worker does with a job: a process that makes its directory, and that ends with it.

The directory appears under its name when it is complete. Where the worker sees the study's files it
is made there; else it comes back as an archive.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.linux.signals import end_with_parent
from groundwire.studies.jobs import Job

TOKEN = ".token"
PART = ".part-"
_POLL_S = 0.1
_KEPT_LINES = 30
_PATIENCE_S = 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where cases go: the study's directory of cases, and what is written in its token file, by
    which a worker knows that it sees the same directory."""

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
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given:
        given.write(json.dumps(asdict(job)).encode())
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "groundwire.studies.job_process", str(directory)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # a terminal's Ctrl-C is for the study, which ends us
            preexec_fn=end_with_parent,
        )
        try:
            while True:
                try:
                    code = process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if cancelled():
                        return "cancelled"
        finally:
            _end(process)
        if code == 0:
            return None
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()[-_KEPT_LINES:]
    ending = [] if code > 0 else [f"its process was ended by {signal.Signals(-code).name}"]
    text = "\n".join(ending + lines) or f"its process ended with exit code {code}"
    # The same words wherever it ran.
    return text.replace(str(directory), job.key)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it as Ctrl-C does, so that it cleans up; at last by force."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _pack(directory: Path) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path in sorted(directory.iterdir()):
            archive.add(path, path.name)
    return target.getvalue()
