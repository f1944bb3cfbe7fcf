"""Reductions other than sums: by switches, by programs and by Gloo's own, on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.exporters.nccl_style import render_nccl_style
from analysis.runs.run import load_run
from groundwire.commands.console.overrides import parse_overrides
from tests.session.command import run_spec, valid_rows
from topologies.spec.spec import SpecError, parse_spec

SPEC = """
name: reductions
fabric: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2}
workload:
  kind: collectives
  ranks: 4
  dtype: int32
  operations:
    - {kind: all_reduce, size: 4096, op: max, program: {algorithm: aggregation}}
    - {kind: all_reduce, size: 100KB, op: bxor, program: {algorithm: aggregation, mode: streaming}}
    - {kind: reduce, size: 4096, root: 2, op: band, program: {algorithm: aggregation}}
    - {kind: reduce_scatter, size: 64KB, op: min, program: {algorithm: ring}}
    - {kind: all_reduce, size: 4096, op: bor, program: {algorithm: halving-doubling}}
    - {kind: all_reduce, size: 8192, op: min}
    - {kind: reduce, size: 8192, op: bxor}
    - {kind: reduce_scatter, size: 128KB, op: bor}
    - {kind: all_gather, size: 8192}
aggregation: {slots: 3}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_spec(tmp_path_factory.mktemp("reductions"), SPEC)


def test_every_rank_checks_its_results(run: Path) -> None:
    for log in load_run(run).ranks:
        # The reduces' results are at their roots, 2 and 0.
        assert log.checks == 9
        found = [c.op for c in log.collectives if c.phase != "align"]
        assert found == ["max", "bxor", "band", "min", "bor", "min", "bxor", "bor", "sum"]


def test_tables_as_of_nccl_tests_name_type_and_operation(run: Path) -> None:
    text = render_nccl_style(load_run(run))
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert {row[2] for row in rows} == {"int32"}
    assert sorted(row[3] for row in rows) == sorted(
        ["max", "bxor", "band", "min", "bor", "min", "bxor", "bor", "none"]
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("dtype: int32", "dtype: float32"),
            "workload.operations[1].op: found bxor; allowed for float32: sum, min, max",
        ),
        (
            ("dtype: int32", "dtype: int16"),
            "workload.dtype: found int16; Gloo's collectives do not have it: expected "
            "another dtype, or programs for all collectives",
        ),
        (
            ("all_gather,", "all_gather, op: max,"),
            "workload.operations[8].op: found max; no op: all_gather does not reduce",
        ),
        (
            ("op: max", "op: mean"),
            "workload.operations[0].op: found mean; allowed: sum, min, max, band, bor, bxor, "
            "minloc, maxloc",
        ),
        (
            ("op: max", "op: maxloc"),
            "workload.operations[0].op: found maxloc; allowed for int32: sum, min, max, band",
        ),
        (
            ("slots: 3", "slots: 3, operations: [sum, max]"),
            "workload.operations[0].program.algorithm: found aggregation; allowed: by hosts: "
            "leaf0 reduces by sum, max, and not band",
        ),
        (
            ("slots: 3", "slots: 3, dtypes: [float32]"),
            "workload.operations[0].program.algorithm: found aggregation; allowed: by hosts: "
            "leaf0 reduces float32, and not int32",
        ),
    ],
)
def test_what_cannot_be_reduced_is_refused(change: tuple[str, str], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(SPEC.replace(*change))
    assert said in str(caught.value)


PAIRS = """
name: pairs
fabric: {kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2}
workload:
  kind: collectives
  ranks: 4
  dtype: float64
  operations:
    - {kind: all_reduce, size: 4096, op: minloc, program: {algorithm: aggregation}}
    - {kind: reduce, size: 4096, op: maxloc, root: 1, program: {algorithm: aggregation}}
    - {kind: all_reduce, size: 4096, op: maxloc, program: {algorithm: ring}}
    - {kind: barrier, program: {algorithm: aggregation}}
aggregation: {slots: 3}
"""


@pytest.mark.long
def test_switches_and_hosts_find_where_the_least_and_the_greatest_are(tmp_path: Path) -> None:
    """Ranks check the index, too (tests/ranks/test_payload.py has it that a wrong one shows)."""
    directory = run_spec(tmp_path, PAIRS)
    assert [log.checks for log in load_run(directory).ranks] == [4] * 4
    # A barrier is an all-reduce of 8 bytes: up two links, down two, and one for the rendezvous.
    barrier = valid_rows(directory, 0)[-1]
    assert (barrier["phase"], barrier["size_bytes"]) == ("barrier", 8)
    assert 5 * 500 < barrier["duration_ns"] < 6 * 500


def test_gloos_own_collectives_have_no_pairs() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(PAIRS.replace(", program: {algorithm: ring}", ""))
    said = "operations[2].op: found maxloc; Gloo does not reduce pairs: expected a program for it"
    assert said in str(caught.value)


def test_programs_reduce_what_gloo_does_not() -> None:
    ring = "{algorithm: ring}"
    changes = [
        f"collectives.{kind}={ring}"
        for kind in ("all_reduce", "reduce", "reduce_scatter", "all_gather")
    ]
    changes += ["workload.dtype=int16", "collectives.backend=programs"]
    assert parse_spec(SPEC).with_overrides(parse_overrides(changes)).workload.ranks == 4
