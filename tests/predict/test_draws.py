"""Predictions over draws of ECMP's paths: the interval that another draw lies in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from analysis.predict.interface import load_predictor
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from groundwire.commands.app import app
from topologies.spec.spec import parse_spec

_SPEC = """
name: draws
fabric: {kind: fat-tree, k: 4, link: {rate: 10Gbps, delay: 1us, mtu: 9000}}
workload:
  kind: collectives
  ranks: 16
  operations: [{kind: permutation, size: 200KB, shift: 8}]
"""


def test_another_draw_lies_in_the_interval_of_nineteen_in_nine_of_ten_cases() -> None:
    """100 draws by windows of 20: the last one of each beside the 19 before it."""
    setting = setting_of_spec(parse_spec(_SPEC))
    call = CollectiveCall(Kind.PERMUTATION, 200_000, tuple(range(16)), shift=8)
    packet = load_predictor("packet")
    times = [packet.predict(replace(setting, draw=draw), call) for draw in range(1, 101)]
    assert len(set(times)) > 5  # paths do collide otherwise
    inside = [
        min(times[first : first + 19]) <= times[first + 19] <= max(times[first : first + 19])
        for first in range(81)
    ]
    assert sum(inside) >= 0.8 * len(inside)


def test_a_draw_draws_what_handshakes_measure() -> None:
    """A round trip of 1.2 us is 1 or 2 to Linux, and BBR's first pacing rate is by that. There is
    one path, so nothing else is drawn."""
    link = "link: {rate: 200Gbps, delay: 300ns, mtu: 9000}"
    setting = setting_of_spec(
        parse_spec(
            f"""
name: phases
fabric: {{kind: flat, hosts: 8, {link}}}
transport: {{congestion_control: bbr}}
workload: {{kind: collectives, ranks: 8, operations: [{{kind: broadcast, size: 1MB}}]}}
"""
        )
    )
    call = CollectiveCall(Kind.BROADCAST, 1_000_000, tuple(range(8)))
    packet = load_predictor("packet")
    times = [packet.predict(replace(setting, draw=draw), call) for draw in range(12)]
    assert len({round(ns, -2) for ns in times}) > 2
    assert times[3] == packet.predict(replace(setting, draw=3), call)


def test_predict_prints_from_where_to_where_its_answers_go(tmp_path: Path) -> None:
    path = tmp_path / "draws.yaml"
    path.write_text(_SPEC)
    command = ["predict", str(path), "--predictor", "packet", "--interval"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    (collective,) = found["collectives"]
    least, largest = collective["predicted"]["packet"]["interval_ns"]
    assert 160_000 < least < largest  # 200 KB take 160 us of a link
    assert found["iteration_intervals_ns"]["packet"] == [least, largest]
    table = CliRunner().invoke(app, command)
    assert "90%" in table.stdout


def test_an_interval_is_for_ports_that_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "draws.yaml"
    path.write_text(_SPEC)
    done = CliRunner().invoke(app, ["predict", str(path), "--interval", "--connect"])
    assert done.exit_code == 2
    assert "--connect" in done.output


def test_a_predictor_that_knows_no_paths_has_no_interval_of_no_width(tmp_path: Path) -> None:
    path = tmp_path / "draws.yaml"
    path.write_text(_SPEC)
    command = ["predict", str(path), "--interval"]
    done = CliRunner().invoke(app, [*command, "--predictor", "alpha-beta"])
    assert done.exit_code == 0 and "90%" not in done.stdout
    assert "alpha-beta says the same for every draw of paths" in done.stdout
