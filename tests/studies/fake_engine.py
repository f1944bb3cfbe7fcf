"""An engine that runs nothing: it makes up outcomes from specs, and can fail or be interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.runs.run import RESULT_SCHEMA
from groundwire.studies.engine import JobEvent
from groundwire.studies.jobs import JOB_FILE, PREDICTION, Job
from topologies.spec.spec import Spec, parse_spec


def time_of(spec: Spec) -> int:
    """A made-up iteration in nanoseconds: additive in the logarithm of nothing, so to speak."""
    slow = spec.fabric.link.rate_bps < 50_000_000_000
    return 1_000_000 + 400_000 * slow + 30_000 * (spec.placement == "random") + spec.seed


@dataclass
class FakeEngine:
    """`fails` says of which jobs there is no outcome; `interrupt_after` raises KeyboardInterrupt
    after so many. `predicts` makes up a prediction in nanoseconds. `asked` has the jobs in the
    order in which they were given."""

    fails: Callable[[Job], bool] = lambda job: False
    predicts: Callable[[Spec], int] = lambda spec: time_of(spec) // 2
    interrupt_after: int | None = None
    asked: list[Job] = field(default_factory=list)

    def __call__(self, jobs: Sequence[Job], cases: Path, tell: Callable[[JobEvent], None]) -> None:
        self.asked += jobs
        for number, job in enumerate(jobs):
            if number == self.interrupt_after:
                raise KeyboardInterrupt
            tell(JobEvent(job, "running", "here"))
            if self.fails(job):
                tell(JobEvent(job, "failed", failure="the fake failed"))
                continue
            self._make(job, cases / job.key)
            tell(JobEvent(job, "done"))

    def _make(self, job: Job, directory: Path) -> None:
        directory.mkdir()
        duration_ns = time_of(parse_spec(job.spec))
        if job.kind == "predict":
            predicted_ns = self.predicts(parse_spec(job.spec))
            answer = {"duration_ns": predicted_ns, "compute_ns": 7, "exposed_comm_ns": 8}
            (directory / PREDICTION).write_text(json.dumps(answer))
        else:
            iteration = {"duration_ns": duration_ns, "compute_ns": 1, "exposed_comm_ns": 2}
            counts = dict.fromkeys(("drops", "ecn_marks", "pauses", "retransmits"), 3)
            result = {
                "schema": RESULT_SCHEMA,
                "valid": True,
                "iterations": [iteration, iteration],
                "collectives": [],
                "summary": counts,
            }
            (directory / "result.json").write_text(json.dumps(result))
        (directory / JOB_FILE).write_text(json.dumps({"machine": "nowhere"}))
