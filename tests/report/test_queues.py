"""Which ports a report shows where queues were counted and not sampled, and what carried them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.report import render_html
from analysis.report.charts.queues import ports_that_matter
from analysis.report.run_figures import run_figures
from tests.report.synthetic_run import make_run
from topologies.spec.spec import parse_spec


@pytest.fixture
def marked_at_switches(tmp_path: Path) -> Path:
    """All hosts queue deeply and mark nothing; three switch ports mark, one drops."""
    directory = make_run(tmp_path / "run")
    path = directory / "links.jsonl"
    ports: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    left = [("drops", 7), ("ecn_marks", 9), ("ecn_marks", 300), ("ecn_marks", 20)]
    for port in ports:
        of_host = port["node"].startswith("h")
        port |= {"ecn_marks": 0, "drops": 0, "max_backlog_bytes": 10**6 if of_host else 1000}
        if not of_host and left:
            key, value = left.pop()
            port[key] = value
    path.write_text("".join(f"{json.dumps(port)}\n" for port in ports))
    return directory


def test_ports_that_mark_and_drop_are_shown_before_deep_queues(marked_at_switches: Path) -> None:
    """The report showed twelve host ports without marks beside 8,921 marks of switches."""
    [figures] = run_figures([marked_at_switches])
    shown = ports_that_matter(figures)
    assert [(p.record.drops, p.record.ecn_marks) for p in shown[:5]] == [
        (7, 0),
        (0, 300),
        (0, 20),
        (0, 9),
        (0, 0),
    ]
    assert len(shown) == 12
    assert all(p.record.max_backlog_bytes == 10**6 for p in shown[4:])
    page = render_html([figures])
    assert "marks 300" in page and "drops 7" in page


@pytest.mark.parametrize(
    ("transport", "queue", "words"),
    [
        ("{congestion_control: cubic}", "{kind: droptail, buffer: 1MB}", "TCP, cubic"),
        ("{congestion_control: dctcp}", "{kind: droptail, buffer: 1MB}", "TCP, dctcp, ECN"),
        (
            "{kind: roce}",
            "{kind: droptail, buffer: 1MB}",
            "RoCE, congestion control none, path MTU 1024",
        ),
        (
            "{kind: roce, congestion_control: dcqcn, path_mtu: 4096}",
            "{kind: red, kmin: 100KB, kmax: 400KB, pmax: 0.1, buffer: 4MB}",
            "RoCE, congestion control dcqcn, path MTU 4096, ECN",
        ),
    ],
)  # fmt: skip
def test_the_transport_is_the_one_that_carries_the_ranks(
    transport: str, queue: str, words: str
) -> None:
    """A RoCE report said "cubic, ECN", which is TCP's beside it."""
    spec = parse_spec(
        "name: x\nfabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us, mtu: 9000}, "
        f"queue: {queue}}}\n"
        "workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}\n"
        f"transport: {transport}\n"
        "collectives: {backend: programs, all_reduce: {algorithm: ring}}\n"
    )
    assert spec.transport_words == words
