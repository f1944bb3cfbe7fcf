"""The run directories of jobs that shared a fabric: each complete in itself, in that of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from emulator.ranks.copies.place import COPIES_FILE
from topologies.spec.spec import Spec

JOBS = "jobs"
"""The run directories of several jobs, below that of the run."""

_CAPTURE, _TWIN = "capture", "twin"
_INDEX = "index.json"


def job_directory(directory: Path, job: str) -> Path:
    """The run directory of a job, in that of the run; it is that where the job has no name, as the
    only one."""
    return directory / JOBS / job if job else directory


def complete_job_directories(spec: Spec, directory: Path) -> None:
    """Put into `jobs/NAME/` what makes it a run directory: the job's own spec and environment, the
    counters of all ports, and links to the captures at its hosts.

    Where jobs share hosts the captures hold what several have sent, and belong to none of them. A
    job that did nothing, or whose ranks did not all come to their end, leaves only logs.
    """
    environment = json.loads((directory / "environment.json").read_text())
    outcomes = {each["name"]: each for each in environment.pop("jobs")}
    for name, part in spec.parts.items():
        place, outcome = job_directory(directory, name), outcomes[name]
        if outcome["failed"] is not None:
            continue
        (place / "spec.yaml").write_text(part.to_yaml())
        own = environment | {key: outcome[key] for key in ("hosts", "retransmits")}
        (place / "environment.json").write_text(json.dumps(own, indent=1) + "\n")
        for counters in ("links.jsonl", "ports.jsonl"):
            if (directory / counters).exists():
                shutil.copyfile(directory / counters, place / counters)
        _write_copies(name, directory, place)
        others = {h for other in spec.plan.jobs if other.name != name for h in other.hosts}
        if not others & set(part.plan.hosts):
            _link_captures(part, directory, place)
        if environment["kernel"] == "native":
            # The place of the job's part of the run's twin, if there will be one.
            (place / _TWIN).symlink_to(Path("..", "..", _TWIN, JOBS, name))


def _write_copies(job: str, directory: Path, place: Path) -> None:
    """Those of the job, whose groups have its name before theirs."""
    if not (directory / COPIES_FILE).exists():
        return
    lines = []
    for line in (directory / COPIES_FILE).read_text().splitlines():
        copy = json.loads(line)
        owner, _, group = copy["group"].partition("/")
        if owner == job:
            lines.append(json.dumps(copy | {"group": group}, separators=(",", ":")) + "\n")
    (place / COPIES_FILE).write_text("".join(lines))


def _link_captures(part: Spec, directory: Path, place: Path) -> None:
    captured = [
        name
        for host in part.plan.hosts
        for link in part.plan.fabric.links_of[host]
        if (directory / _CAPTURE / (name := f"{link.port(host).interface}.pcap")).exists()
    ]
    if not captured:
        return
    (place / _CAPTURE).mkdir()
    for name in (_INDEX, *captured):
        (place / _CAPTURE / name).symlink_to(Path("..", "..", "..", _CAPTURE, name))
