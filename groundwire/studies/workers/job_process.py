"""A job as a process of its own, given its directory as argument and the job as standard input.

Its files are complete when it exits with 0; else its standard error says why. Ended by a signal, it
ends its guest.
"""

from __future__ import annotations

import json
import platform
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from groundwire.rooms import ROOMS
from groundwire.studies.jobs import JOB_FILE, PREDICTION, Job
from groundwire.studies.software import refuse_other


def do_job(job: Job, directory: Path) -> None:
    """Make the directory of a job. Raises OtherSoftware, and what running or predicting raises."""
    refuse_other(job.kind, job.made_by)
    if job.kind == "emulate":
        _emulate(job, directory)
    else:
        _predict(job, directory)
    record = {
        "key": job.key,
        "kind": job.kind,
        "software": dict(job.made_by),
        "machine": platform.node(),
    }
    (directory / JOB_FILE).write_text(json.dumps(record, indent=1) + "\n")


def _emulate(job: Job, directory: Path) -> None:
    from groundwire.pipeline import run, silent
    from topologies.spec.spec import parse_spec

    spec = parse_spec(job.spec, job.key)
    run(spec, kernel=job.kernel, out=directory, pages=job.pages, progress=silent)


def _predict(job: Job, directory: Path) -> None:
    from collectives.call import CollectiveError
    from groundwire.forecast import predict_whole
    from topologies.spec.spec import parse_spec

    directory.mkdir()
    spec = parse_spec(job.spec, job.key)
    try:
        answer: dict[str, object] = asdict(predict_whole(spec, job.predictor))
    except CollectiveError as error:
        answer = {"reason": str(error)}
    (directory / "spec.yaml").write_text(job.spec)
    (directory / PREDICTION).write_text(json.dumps(answer, indent=1) + "\n")


def main() -> None:
    """The body of the process."""
    given = json.load(sys.stdin)
    given["made_by"] = tuple((name, version) for name, version in given["made_by"])
    try:
        do_job(Job(**given), Path(sys.argv[1]))
    except (RuntimeError, OSError, ValueError) as error:
        ours = type(error).__module__.split(".")[0]
        if ours in ROOMS:
            print(error, file=sys.stderr)
        else:
            traceback.print_exc()
        sys.exit(1)
