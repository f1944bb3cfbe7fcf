"""Runs of several jobs of which some failed: what they say, without any kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from analysis.report.finish import finish_run
from analysis.report.markdown import render_markdown
from analysis.report.run_figures import run_figures
from analysis.results.result import write_result
from analysis.results.verdict import verdict_of
from analysis.runs.run import RunError, load_run
from groundwire.commands.console.figures import output_console
from groundwire.commands.console.outcome import outcome
from groundwire.commands.console.result_table import print_result
from groundwire.commands.report import report
from tests.report.synthetic_run import make_run
from topologies.spec.spec import Spec, parse_spec

_WORDS = "job bad: rank 1 on h1 exited with status 1; its last words:\n[Errno 97] \x1b[2Jgone"
_SPEC = """
name: beside
fabric: {kind: flat, hosts: 4}
jobs:
  - {name: bad, workload: {kind: dlrm, ranks: 2, iterations: 2}}
  - {name: other, workload: {kind: dlrm, ranks: 2, iterations: 2}, repeat: REPEAT}
predict: [alpha-beta]
"""


def _run_of_jobs(directory: Path, *, idle: bool) -> Path:
    """A run in which job `bad` failed, beside one that is idle or came to its end."""
    spec: Spec = parse_spec(_SPEC.replace("REPEAT", "0" if idle else "1"))
    other = make_run(directory / "jobs" / "other", "kind: flat, hosts: 4", ranks=2)
    (directory / "spec.yaml").write_text(spec.to_yaml())
    (directory / "links.jsonl").write_bytes((other / "links.jsonl").read_bytes())
    environment = json.loads((other / "environment.json").read_text())
    failed = {"at_ns": 10_000_500_000, "rank": 1, "said": _WORDS}
    jobs = [{"name": "bad", "hosts": ["h0", "h1"], "retransmits": 0, "failed": failed}]
    if not idle:
        (other / "spec.yaml").write_text(spec.parts["other"].to_yaml())
        own = environment | {"hosts": ["h2", "h3"]}
        (other / "environment.json").write_text(json.dumps(own))
        jobs.append({"name": "other", "hosts": ["h2", "h3"], "retransmits": 3})
    whole = environment | {
        "hosts": ["h0", "h1", "h2", "h3"],
        "jobs": jobs,
        "origin_ns": 10_000_000_000,
    }
    (directory / "environment.json").write_text(json.dumps(whole))
    return directory


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "finished"])
def test_a_run_with_a_failed_job_is_not_valid(tmp_path: Path, idle: bool) -> None:
    """Whatever the other job did: without the failed one it had less company than was asked for."""
    run = load_run(_run_of_jobs(tmp_path / "run", idle=idle))
    result = write_result(run)
    assert result["valid"] is False
    assert result["invalid_reasons"] == [f"job failed: {_WORDS}"]
    assert verdict_of(run).reasons == result["invalid_reasons"]
    if not idle:
        own = json.loads((tmp_path / "run" / "jobs" / "other" / "result.json").read_text())
        assert own["valid"] is True


def test_where_all_jobs_failed_there_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = _run_of_jobs(tmp_path / "run", idle=True)
    run = load_run(directory)
    result = write_result(run)
    assert finish_run(run).report is None
    assert not (directory / "report.html").exists()
    with pytest.raises(RunError, match="no job of it came to its end"):
        run_figures([directory])
    with pytest.raises(typer.Exit) as ended:
        outcome(report)([directory])
    assert ended.value.exit_code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {directory}: no job of it came to its end:\n  - job bad: rank")
    print_result(result, directory, output_console())
    shown = capsys.readouterr().out
    assert "INVALID: do not use these figures" in shown
    # The report shows the program's words, brackets and all, and no terminal obeys them.
    assert "[Errno 97] \\x1b[2Jgone" in shown and "\x1b[2J" not in said + shown


def test_names_in_markdown_are_text(tmp_path: Path) -> None:
    """GitHub and notebooks show HTML and links that stand in markdown."""
    reason = "process <script>alert(1)</script> [a](javascript:b) | was `late` & *loud*"
    run = make_run(tmp_path / "<img src=x>", "kind: flat, hosts: 4", ranks=4, invalid=(reason,))
    text = render_markdown(run_figures([run]))
    assert "<script>" not in text and "<img" not in text and "[a](" not in text
    assert (
        "- process &lt;script&gt;alert(1)&lt;/script&gt; \\[a\\](javascript:b) \\| was \\`late\\` "
        "&amp; \\*loud\\*" in text
    )
    assert "## &lt;img src=x&gt;" in text


def test_a_run_that_failed_says_where_to_look(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", "kind: flat, hosts: 4", ranks=2)
    (directory / "environment.json").unlink()
    with pytest.raises(RunError, match=r"did not come to its end.* is in .*run/ranks"):
        load_run(directory)
    (directory / "hang.json").write_text("{}")
    with pytest.raises(RunError, match=r"this run hung .*run/hang.json says who waits for whom"):
        load_run(directory)
