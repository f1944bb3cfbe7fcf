"""Scripts whose groups are given trees of switches, in the virtual kernel."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.metrics.in_network.links import tree_links
from analysis.metrics.in_network.slots import slot_uses
from analysis.runs.collectives import collectives_of
from analysis.runs.run import Run, load_run
from tests.exec.programs import execute

HERE = Path(__file__).parent
BY_SWITCHES = """
collectives:
  backend: programs
  all_reduce: {algorithm: aggregation}
  broadcast: {algorithm: aggregation}
  reduce: {algorithm: aggregation}
predict: [packet, flow, alpha-beta]
"""
FLAT = """
fabric: {kind: flat, hosts: 4, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}}
aggregation:
  {slots: 12, quota: 6, when_full: fall-back, nodes: {s0: {dtypes: [float32, int64]}}}
capture: {points: [hosts]}
"""


def run_script(directory: Path, spec: str, script: str, *arguments: str) -> Run:
    (directory / "fabric.yaml").write_text(spec)
    (directory / "script.py").write_text((HERE / script).read_text())
    done = execute(
        directory, "fabric.yaml", "--kernel", "virtual", "--out", "run",
        "--", "python", "script.py", *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return load_run(directory / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("switches")
    return run_script(directory, FLAT + BY_SWITCHES, "switches_script.py")


def test_groups_have_trees_and_what_these_cannot_do_falls_back(run: Run) -> None:
    assert [(run.directory / "ranks" / f"{n:03d}.out").read_text() for n in range(4)] == [
        "right\n"
    ] * 4
    found = [(c.group, c.kind, c.phase, c.algorithm) for c in collectives_of(run)]
    barrier = ("default", "all_reduce", "barrier", "aggregation")
    assert found[:7] == [
        ("default", "all_reduce", "all_reduce", "aggregation"),
        ("default", "all_reduce", "all_reduce", "aggregation"),
        ("default", "all_reduce", "all_reduce", "ring"),
        ("default", "all_reduce", "all_reduce", "ring"),
        ("default", "broadcast", "broadcast", "aggregation"),
        ("default", "reduce", "reduce", "aggregation"),
        barrier,
    ]
    rest = Counter((len(c.ranks), c.algorithm) for c in collectives_of(run)[7:])
    # The second of the groups of two found no slots; the third had those of the first.
    expected = {(2, "aggregation"): 1, (2, "ring"): 1, (3, "aggregation"): 1}
    assert rest == Counter({(4, "aggregation"): 2} | expected)


def test_each_row_has_its_predictions(run: Run) -> None:
    result = json.loads((run.directory / "result.json").read_text())
    assert result["valid"] is True
    for row in result["collectives"]:
        for name in ("packet", "flow"):
            # Two links of 500 ns each way, and what ranks were apart when they posted it.
            assert row["predicted"][name]["error"] == pytest.approx(0, abs=0.25), row["id"]


def test_bytes_on_the_wire_belong_to_the_collectives(run: Run) -> None:
    capture = load_capture(run)
    assert capture is not None
    found = capture.attribution
    assert (found.unattributed_bytes, found.unlogged_bytes) == (0, 0)
    by_id = {each.collective.id: each for each in found.by_collective() if each.collective}
    # A host sends its data once and has the result once.
    assert by_id["default.0.all_reduce"].data_bytes == 4 * 2 * 2400
    assert [(link.child, link.parent) for link in tree_links(run)] == [
        (f"h{n}", "s0") for n in range(4)
    ]


def test_switches_log_who_held_their_slots(run: Run) -> None:
    (use,) = slot_uses(run)
    assert (use.switch, use.slots) == ("s0", 12)
    # Three payloads of the first all-reduces are under way at once.
    assert 1 <= use.most <= 6


@pytest.mark.long
def test_ddp_ends_with_the_same_parameters_as_over_gloo(tmp_path: Path) -> None:
    fabric = FLAT.replace("slots: 12, quota: 6", "slots: 64")
    for name in ("switches", "gloo"):
        (tmp_path / name).mkdir()
    spec = fabric + BY_SWITCHES
    by_switches = run_script(tmp_path / "switches", spec, "ddp_script.py", "gloo")
    by_gloo = run_script(tmp_path / "gloo", FLAT.split("aggregation")[0], "ddp_script.py", "gloo")

    def totals(run: Run) -> list[float]:
        outputs = [run.directory / "ranks" / f"{n:03d}.out" for n in range(4)]
        return [float(path.read_text().split()[-1]) for path in outputs]

    assert len({*totals(by_switches)}) == 1
    assert totals(by_switches)[0] == pytest.approx(totals(by_gloo)[0], rel=1e-6)
    reduced = [c for c in collectives_of(by_switches) if c.phase == "all_reduce"]
    assert [(c.algorithm, c.iteration) for c in reduced] == [("aggregation", n) for n in range(3)]
