"""The program inside the sandbox: `python -m groundwire.labs.inside` makes a submission's runs.

It reads /given: `task.json` (runs and facts) and `folder/`, the submission. It prints
one line of JSON, the outcome. The grader is outside.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator.linux.signals import run_interruptible
from emulator.progress import Progress
from groundwire.labs.lab import Fact, LabRun
from groundwire.labs.running import make_runs


@dataclass(frozen=True)
class Task:
    """The runs of a submission: all that the inside knows of a lab."""

    runs: dict[str, dict[str, Any]]
    facts: dict[str, dict[str, Any]]

    def text(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Make the runs of /given in the working directory; print what they came to."""
    task = Task(**json.loads(Path("/given/task.json").read_text()))
    work = Path.cwd() / "folder"
    shutil.copytree("/given/folder", work)
    runs = {name: LabRun.model_validate(run) for name, run in task.runs.items()}
    facts = {name: Fact.model_validate(fact) for name, fact in task.facts.items()}
    found = make_runs(work, runs, facts, _say)
    print(json.dumps(asdict(found)), flush=True)


def _say(progress: Progress) -> None:
    if progress.stage == "lab":
        print(progress.detail, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_interruptible(main)
