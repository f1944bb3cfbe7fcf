"""Several runs: found in a sweep's directory, told apart by what their specs differ in."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from analysis import load_run
from analysis.metrics.tier import tier_uses
from analysis.report import render_html
from analysis.report.overview import key_figures
from analysis.report.run_figures import run_figures
from analysis.report.tables.run_tables import tables
from analysis.runs.several import labels_of
from groundwire.commands.app import app
from tests.report.synthetic_run import make_run


def _sweep(folder: Path) -> list[Path]:
    return [make_run(folder / f"{number:03d}", iterations=number) for number in (1, 2)]


def test_a_sweeps_runs_are_named_by_their_keys(tmp_path: Path) -> None:
    labels = labels_of(_sweep(tmp_path))
    assert labels == ["workload.iterations=1", "workload.iterations=2"]


def test_names_that_a_user_chose_stay(tmp_path: Path) -> None:
    directories = [make_run(tmp_path / name, iterations=1) for name in ("slow", "fast")]
    assert labels_of(directories) == ["slow", "fast"]


def test_runs_of_one_spec_keep_their_numbers(tmp_path: Path) -> None:
    directories = [make_run(tmp_path / name, iterations=1) for name in ("001", "002")]
    assert labels_of(directories) == ["001", "002"]


def test_report_takes_a_sweeps_directory(tmp_path: Path) -> None:
    _sweep(tmp_path / "sweep")
    done = CliRunner().invoke(app, ["report", str(tmp_path / "sweep")])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'sweep' / 'report.html'}\n"
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert "<th>workload.iterations=2</th>" in page


def test_the_head_of_a_report_says_what_runs_differ_in(tmp_path: Path) -> None:
    directories = [make_run(tmp_path / n, iterations=i) for n, i in (("a", 1), ("b", 2))]
    page = render_html(run_figures(directories))
    words = "<th>differs in</th><td>workload.iterations=1</td><td>workload.iterations=2</td>"
    assert words in page
    assert "differs in" not in render_html(run_figures(directories[:1]))


def test_no_more_runs_than_a_page_can_have(tmp_path: Path) -> None:
    first = make_run(tmp_path / "000", ranks=2, iterations=1, fabric="kind: flat, hosts: 2")
    for number in range(1, 17):
        (tmp_path / f"{number:03d}").symlink_to(first)
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert "expected at most 16 runs side by side, found 17" in done.stderr


def test_exposed_is_the_same_share_in_the_report_and_in_the_result(run_directory: Path) -> None:
    rows = load_run(run_directory).result["iterations"]
    share = sum(r["exposed_comm_ns"] for r in rows) / sum(r["duration_ns"] for r in rows)
    told = {figure.title: figure for figure in key_figures(run_figures([run_directory])[0])}
    assert told["exposed share"].value == f"{share * 100:#.3g}%"
    assert "collectives" in told["alpha-beta error"].remark


def test_links_of_a_run_without_collectives_are_not_called_idle(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", iterations=1)
    for log in (directory / "ranks").glob("*.jsonl"):
        lines = log.read_text().splitlines()
        log.write_text("".join(line + "\n" for line in lines if '"collective"' not in line))
    run = load_run(directory)
    assert {use.mean_utilisation for use in tier_uses(run)} == {None}
    table = tables(run)["tiers"]
    assert set(table.column("mean_utilisation")) == {None}
    assert all(isinstance(sent, int) and sent > 0 for sent in table.column("bytes"))
