"""Rates of queue pairs and CNPs in the report, of runs with known contents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

from analysis.decode.roce.notifications import Notifications
from analysis.report.charts.roce.rates import MAX_QUEUE_PAIRS, rates_chart, slowed_most
from analysis.report.charts.timeline import timeline_chart
from analysis.report.run_figures import RunFigures, figures_of
from analysis.report.sections import phase_colours, sections
from analysis.runs.run import load_run
from analysis.runs.samples.rates import rate_series
from tests.report.synthetic_run import FORWARD_NS, START_NS, make_run

WIDTH = 900.0


def _figures(directory: Path, rates: Sequence[tuple[str, int, int, int]]) -> RunFigures:
    """A run of four ranks; `rates` are (host, queue pair, us after the start, Gb/s). Queue pair 17
    of rank 0 leads to rank 1."""
    make_run(directory, "kind: flat, hosts: 4", 4, 1)
    ends = {
        "event": "queue_pair", "group": "default", "peer": 1, "local_qpn": 17, "remote_qpn": 18,
        "start_psn": 1, "remote_start_psn": 2, "local_address": "10.0.0.2",
        "remote_address": "10.0.0.3",
    }  # fmt: skip
    with (directory / "ranks" / "000.jsonl").open("a") as log:
        log.write(json.dumps(ends) + "\n")
    samples = [
        {
            "host": host,
            "qpn": qpn,
            "time_ns": START_NS + us * 1_000,
            "rate_bps": gbps * 10**9,
        }
        for host, qpn, us, gbps in rates
    ]
    if samples:
        (directory / "rates.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    return figures_of(load_run(directory))


def test_a_slowed_queue_pair_has_a_panel_with_the_notifications_that_came(tmp_path: Path) -> None:
    rates = [("h0", 17, 60, 100), ("h0", 17, 80, 25), ("h0", 17, 120, 50), ("h1", 18, 60, 100)]
    figures = _figures(tmp_path / "run", rates)
    came = tuple(START_NS + us * 1_000 for us in (70, 75, 90))
    vars(figures)["notifications"] = (Notifications(0, 1, IPv4Address("10.0.0.2"), 17, came),)
    drawing = rates_chart(figures, WIDTH)
    assert drawing is not None
    drawn = drawing.render()
    assert "rank 0 → 1, queue pair 17 of h0 (Gb/s)" in drawn
    assert "at least 25.00 Gb/s" in drawn
    assert "3 CNPs came" in drawn
    assert "queue pair 18" not in drawn  # it was never slowed down
    colours = phase_colours([figures])
    timeline = timeline_chart(figures, 0, colours, WIDTH, FORWARD_NS)
    assert timeline is not None
    assert timeline.render().count("CNPs came") == 1
    assert "rank 0: 3 CNPs came" in timeline.render()
    (section,) = [each for each in sections([figures], WIDTH) if each.key == "rates"]
    assert section.panels[0].views


def test_runs_without_controllers_have_no_such_section(tmp_path: Path) -> None:
    figures = _figures(tmp_path / "run", [])
    assert rates_chart(figures, WIDTH) is None
    assert all(section.key != "rates" for section in sections([figures], WIDTH))


def test_the_slowest_are_drawn(tmp_path: Path) -> None:
    rates = [
        ("h0", 17 + number, us, gbps)
        for number in range(2 * MAX_QUEUE_PAIRS)
        for us, gbps in ((60, 100), (80, 99 - number))
    ]
    drawn = slowed_most(_figures(tmp_path / "run", rates).rates)
    assert [min(each.rates_bps) for each in drawn] == [
        (99 - number) * 10**9 for number in reversed(range(MAX_QUEUE_PAIRS, 2 * MAX_QUEUE_PAIRS))
    ]


def test_two_ports_of_a_host_number_their_queue_pairs_alike(tmp_path: Path) -> None:
    """They are two series; whose they are is not said where logs of two ranks have the number."""
    _figures(tmp_path / "run", [])
    log = tmp_path / "run" / "ranks" / "001.jsonl"
    log.write_text(log.read_text().replace('"host": "h1"', '"host": "h0"'))
    ends = json.loads((tmp_path / "run" / "ranks" / "000.jsonl").read_text().splitlines()[-1])
    with log.open("a") as file:
        file.write(json.dumps(ends | {"peer": 3}) + "\n")
    samples = [
        {"host": "h0", "port": port, "qpn": 17, "time_ns": START_NS, "rate_bps": 10**9}
        for port in ("h0-eth1", "h0-eth0", "h0-eth1")
    ]
    lines = "".join(json.dumps(each) + "\n" for each in samples)
    (tmp_path / "run" / "rates.jsonl").write_text(lines)
    found = rate_series(load_run(tmp_path / "run"))
    assert [(each.port, len(each.times_ns)) for each in found] == [("h0-eth0", 1), ("h0-eth1", 2)]
    assert [each.name for each in found] == [
        "queue pair 17 of h0-eth0",
        "queue pair 17 of h0-eth1",
    ]
