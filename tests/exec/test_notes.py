"""The notes in a program's result on the things that it does not know; needs no guest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.results.notes import notes_of
from analysis.runs.records import SimulatedRecord
from analysis.runs.run import Run, load_run
from tests.report.synthetic_run import make_run
from topologies.spec.spec import parse_spec

_SPEC = """
name: program
fabric: {{kind: fat-tree, k: 4}}
workload: {{kind: command, argv: [a], ranks: 4, {rest}}}
"""


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose ranks tell of nothing."""
    run = load_run(make_run(tmp_path_factory.mktemp("run"), ranks=4))
    logs = (replace(log, iterations=(), computes=(), collectives=()) for log in run.ranks)
    return replace(run, ranks=tuple(logs))


def _notes(run: Run, rest: str) -> str:
    return "\n".join(notes_of(replace(run, spec=parse_spec(_SPEC.format(rest=rest)))))


def test_mpi_without_messages_in_captures_is_said_to_have_told_nothing(silent: Run) -> None:
    assert "no message of OpenMPI was captured" in _notes(silent, "per: job")
    assert "MPI" not in _notes(silent, "per: rank")


def test_computing_that_was_not_charged_is_said_to_take_no_time(silent: Run) -> None:
    assert "nothing was charged" in _notes(silent, "per: rank")
    assert "no rank's torch told of operations" in _notes(silent, "charge: true")


def test_computing_that_was_charged_is_counted(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, ranks=4))
    computes = [each for log in run.ranks for each in log.computes]
    said = f"roofline of device v100: {len(computes):,} operations of torch"
    assert said in _notes(run, "charge: true")


def test_virtual_gpus_are_said_to_have_their_collectives_from_gloo(silent: Run) -> None:
    assert "carried by Gloo, with Gloo's algorithms" in _notes(silent, "gpus_per_host: 1")
    assert "carried by Gloo" not in _notes(silent, "per: rank")


def test_a_simulated_network_is_said_to_carry_them_itself(silent: Run) -> None:
    counted = SimulatedRecord(early_posts=0, packets=7, hops=14, retransmits=0)
    simulated = silent.environment.model_copy(update={"simulated": counted})
    said = _notes(replace(silent, environment=simulated), "gpus_per_host: 1")
    assert "carried by the packet engine" in said and "carried by Gloo" not in said
