"""Sentences at the head of a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.report.overview import findings
from analysis.report.run_figures import run_figures
from analysis.report.tables.figures import count
from analysis.report.tables.run_tables import tables
from analysis.runs.run import load_run
from tests.report.synthetic_run import make_run

_SIXTY_FOUR_LINKS = "kind: leaf-spine, leaves: 8, spines: 4, hosts_per_leaf: 4"


def _said(
    directory: Path, change: Callable[[dict[str, Any]], object], what: str = "on the wire"
) -> str:
    """The words on packets lost on the wire, where `change` is made to each port's record."""
    make_run(directory, _SIXTY_FOUR_LINKS, 16)
    ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
    assert len(ports) == 2 * 64
    for port in ports:
        change(port)
    (directory / "links.jsonl").write_text("".join(f"{json.dumps(port)}\n" for port in ports))
    told = findings(run_figures([directory])[0])
    return " ".join(words for words in told if what in words)


def _lossy(peers: set[tuple[str, str]], packets: int, drops: dict[str, int]) -> Any:
    def change(port: dict[str, Any]) -> None:
        if (port["node"], port["peer"]) in peers:
            port |= {"packets": packets, "drops": sum(drops.values()), "drops_by_reason": drops}

    return change


def test_one_lossy_link_of_64_is_told(tmp_path: Path) -> None:
    change = _lossy({("leaf3", "spine1")}, 300_000, {"corruption": 3, "buffer": 40})
    assert _said(tmp_path / "run", change) == (
        "Links that are up lost packets on the wire: leaf3-eth5 to spine1 (3, 1 in "
        f"{count(100_000)}); the other 127 ports lost none."
    )


def test_trimmed_packets_are_told_with_the_port_that_cut_most(tmp_path: Path) -> None:
    def change(port: dict[str, Any]) -> None:
        if port["node"] == "leaf3":
            port["trims"] = 30 if port["peer"] == "spine1" else 1

    what = "without their payload"
    assert _said(tmp_path / "run", change, what) == (
        "37 packets went on without their payload from 8 ports, most of them (30) from leaf3-eth5 "
        "to spine1."
    )
    ports = tables(load_run(tmp_path / "run"))["ports"]
    assert sum(int(str(value)) for value in ports.column("trims")) == 37
    assert _said(tmp_path / "none", lambda port: None, what) == ""
    whole = tables(load_run(tmp_path / "none"))["ports"]
    assert "trims" not in [column.key for column in whole.columns]


def test_full_queues_are_no_lossy_links(tmp_path: Path) -> None:
    change = _lossy({("leaf3", "spine1")}, 300_000, {"buffer": 40, "link_down": 2})
    assert _said(tmp_path / "run", change) == ""


def test_the_worst_of_many_are_named(tmp_path: Path) -> None:
    peers = {(f"leaf{i}", f"spine{j}") for i in range(1, 3) for j in range(4)}
    told = _said(tmp_path / "run", _lossy(peers, 1000, {"loss": 10}))
    assert told.count("(10, 1 in 100)") == 3
    assert told.endswith("and 5 more; the other 120 ports lost none.")


def _of_links(directory: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """The words on the busiest link."""
    _said(directory, change)
    told = findings(run_figures([directory])[0])
    return next(words for words in told if words.startswith("Link use"))


def test_a_link_without_room_is_the_bottleneck(tmp_path: Path) -> None:
    def change(port: dict[str, Any]) -> None:
        if (port["node"], port["peer"]) == ("leaf3", "spine1"):
            port["bytes"] = 10**9

    said = _of_links(tmp_path / "run", change)
    assert "the busiest link, leaf3 → spine1, 100%, is the bottleneck: it has hardly" in said


def test_the_tier_that_marks_is_the_bottleneck(tmp_path: Path) -> None:
    def change(port: dict[str, Any]) -> None:
        uplink = port["node"].startswith("leaf") and port["peer"].startswith("spine")
        port |= {"bytes": 5_000_000 * (1 + uplink), "ecn_marks": 20 * uplink}

    said = _of_links(tmp_path / "run", change)
    assert said.endswith(
        ": these are the bottleneck, as 100% of all marks and drops are at leaf-spine up."
    )


def test_marks_everywhere_name_no_bottleneck(tmp_path: Path) -> None:
    said = _of_links(tmp_path / "run", lambda port: port.update(ecn_marks=20))
    assert "bottleneck" not in said
