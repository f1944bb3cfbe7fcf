from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import load_run
from analysis.report import render_html, render_markdown, write_csv
from analysis.report.run_figures import RunFigures, run_figures
from analysis.report.sections import sections
from analysis.report.tables.run_tables import tables
from analysis.report.tables.table import Column, Table, Unit, table
from tests.report.synthetic_run import make_run
from topologies.spec.spec import parse_spec


def test_frames_hold_what_the_tables_hold(run_directory: Path) -> None:
    pytest.importorskip("pandas", reason="pandas (the extra `tables`) is not installed")
    for each in tables(load_run(run_directory)).values():
        frame = each.frame()
        assert tuple(frame.columns) == each.keys
        assert len(frame) == len(each.rows)
    frame = tables(load_run(run_directory))["collectives"].frame()
    result = json.loads((run_directory / "result.json").read_text())
    assert list(frame["duration_ns"]) == [c["duration_ns"] for c in result["collectives"]]
    assert list(frame["alpha-beta_error"]) == [
        c["predicted"]["alpha-beta"]["error"] for c in result["collectives"]
    ]


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values, 1 columns"):
        table("t", "T", [Column("a", "a")], [(1, 2)])


def test_an_unknown_column_is_named_with_those_that_exist(run_directory: Path) -> None:
    each: Table = tables(load_run(run_directory))["ports"]
    with pytest.raises(KeyError, match=r"no column 'speed'.*rate_bps"):
        each.column("speed")


def test_csv_files_give_the_raw_values_back(
    run_directory: Path, slower_directory: Path, tmp_path: Path
) -> None:
    paths = write_csv(run_figures([run_directory, slower_directory]), tmp_path / "out")
    assert {p.name for p in paths} == {f"{name}.csv" for name in tables(load_run(run_directory))}
    with (tmp_path / "out" / "ports.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ports = tables(load_run(run_directory))["ports"].records()
    assert len(rows) == 2 * len(ports)
    for row, port in zip(rows, ports, strict=False):
        assert row["run"] == "fat-tree"
        assert int(row["bytes"]) == port["bytes"]
        assert row["port"] == port["port"]


def test_markdown_tables_are_well_formed(run_directory: Path, slower_directory: Path) -> None:
    text = render_markdown(run_figures([run_directory, slower_directory]))
    assert "**Valid** (virtual kernel)" in text
    assert "**Invalid**: do not use these figures.\n\n- a &lt;b&gt;hog&lt;/b&gt; ran" in text
    lines = text.splitlines()
    rules = [i for i, line in enumerate(lines) if line.startswith("|-")]
    assert len(rules) == 2 * 7 + 1  # one of the two has samples of its ports
    for rule in rules:
        columns = lines[rule].count("|")
        assert lines[rule - 1].count("|") == columns
        assert lines[rule + 1].count("|") == columns


def test_units_are_in_the_names_of_number_columns(run_directory: Path) -> None:
    endings = {Unit.DURATION: "_ns", Unit.SIZE: "bytes", Unit.RATE: "_bps", Unit.GBPS: "_gbps"}
    for each in tables(load_run(run_directory)).values():
        for column in each.columns:
            if column.unit in endings:
                assert column.key.endswith(endings[column.unit]), column


def test_analysis_needs_no_torch_and_no_emulator(run_directory: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from analysis.report.finish import finish_run;"
        "from analysis.runs.run import load_run;"
        f"finish_run(load_run(Path({str(run_directory)!r})));"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'emulator', 'pandas') "
        "or m.startswith('workloads.execution')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_collectives_of_the_same_name_in_two_groups_keep_their_predictions(
    tmp_path: Path,
) -> None:
    from analysis.results.result import write_result
    from tests.report.synthetic_run import make_run

    directory = make_run(tmp_path / "run", iterations=1)
    for log in (directory / "ranks").glob("*.jsonl"):
        text = log.read_text().replace("i0.mlp_gradient.0", "i0.embedding_forward.0")
        lines = [
            line.replace('"group": "default"', '"group": "data"') if "all_reduce" in line else line
            for line in text.splitlines()
        ]
        log.write_text("\n".join(lines) + "\n")
    rows = write_result(load_run(directory))["collectives"]
    expected = {(r["group"], r["id"]): r["predicted"]["alpha-beta"]["duration_ns"] for r in rows}
    assert len(set(expected.values())) == 2
    found = tables(load_run(directory))["collectives"].records()
    assert {(r["group"], r["id"]): r["alpha-beta_ns"] for r in found} == expected
    assert "Measured and predicted" in render_html(run_figures([directory]))


@pytest.mark.parametrize(
    ("observe", "observed", "said"),
    [
        (True, True, "The program called no collectives"),
        (True, False, "its ranks are no observed PyTorch program"),
        (False, False, "it ran unobserved"),
    ],
)
def test_a_report_says_why_a_programs_run_has_no_collectives(
    tmp_path: Path, observe: bool, observed: bool, said: str
) -> None:
    run = load_run(make_run(tmp_path / "run", ranks=2))
    workload = f"{{kind: command, argv: [python, x.py], ranks: 2, observe: {observe}}}".lower()
    spec = parse_spec(f"name: x\nfabric: {{kind: flat, hosts: 2}}\nworkload: {workload}\n")
    ranks = tuple(replace(log, observed=observed, collectives=()) for log in run.ranks)
    figures = RunFigures(replace(run, spec=spec, ranks=ranks), "x")
    assert said in figures.why_no_collectives


def test_a_program_without_collectives_has_no_empty_sections(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", ranks=2, fabric="kind: flat, hosts: 2")
    run = load_run(directory)
    workload = "{kind: command, argv: [python, x.py], ranks: 2}"
    spec = parse_spec(f"name: x\nfabric: {{kind: flat, hosts: 2}}\nworkload: {workload}\n")
    ranks = tuple(replace(log, collectives=(), computes=(), iterations=()) for log in run.ranks)
    (directory / "ranks" / "000.out").write_bytes(b"\x1b[1mloss\x1b[0m <b>0.5</b>\x00\n")
    (directory / "ranks" / "001.err").write_text("x" * 9000 + "\nthe end\n")
    figures = RunFigures(replace(run, spec=spec, ranks=ranks), "x")
    keys = [section.key for section in sections([figures], 1080)]
    assert keys == ["fabric", "queues"]
    page = render_html([figures])
    assert "No collectives were found: the wire shows none that is known" in page
    assert "<h2>Output of the ranks</h2>" in page
    assert "loss &lt;b&gt;0.5&lt;/b&gt;\N{REPLACEMENT CHARACTER}</pre>" in page
    assert '<pre tabindex="0">the end</pre>' in page
    assert "Output of the ranks" not in render_html([RunFigures(run, "x")])
