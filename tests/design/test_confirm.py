"""A design from its file to its directory, and its confirmation, by an engine that invents runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import groundwire
from analysis.design.comparison import equal_split
from analysis.design.models.messages import bytes_by_dimension
from analysis.design.search import Found
from analysis.runs.run import RESULT_SCHEMA
from collectives.kinds import Kind
from groundwire.designs.design import Design, design, design_document
from groundwire.designs.emulated_network import dimension_fabric, shrunk
from groundwire.designs.emulated_point import Emulation, NotEmulated, emulation_of
from groundwire.studies.engine import JobEvent
from groundwire.studies.jobs import JOB_FILE, Job
from tests.design.design_files import found_in, listed
from tests.session.command import groundwire as command
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.spec import Spec, load_spec, parse_spec
from topologies.spec.workload_section import CollectivesWorkload
from workloads.models.planned import planned_calls

TimeOf = Callable[[Spec], float]


def ideal_ns(spec: Spec) -> float:
    """The model's time for an emulated spec, from its fabric alone."""
    workload, sizes = spec.workload, spec.collectives.dimensions
    assert isinstance(workload, CollectivesWorkload) and sizes is not None
    rates = {link.link_class: link.rate_bps / 8e9 for link in spec.plan.fabric.links}
    total = 0.0
    for operation in workload.operations:
        sent = bytes_by_dimension(Kind(operation.kind), operation.size_bytes, sizes)
        total += max(one / rates[f"dimension{d}"] for d, one in enumerate(sent))
    return total


class MadeUp:
    """An engine: each run takes what `time_of` says. `asked` counts jobs."""

    def __init__(self, time_of: TimeOf, fails: str = "") -> None:
        self._time_of, self._fails = time_of, fails
        self.asked = 0

    def __call__(self, jobs: Sequence[Job], cases: Path, tell: Callable[[JobEvent], None]) -> None:
        for job in jobs:
            self.asked += 1
            if job.label == self._fails:
                tell(JobEvent(job, "failed", failure="made up to fail"))
                continue
            spec = parse_spec(job.spec)
            barrier = {"kind": "barrier", "duration_ns": 5, "predicted": {}}
            row = {"kind": "all_reduce", "duration_ns": self._time_of(spec), "predicted": {}}
            result = {"schema": RESULT_SCHEMA, "valid": True, "collectives": [barrier, row]}
            directory = cases / job.key
            directory.mkdir()
            (directory / "result.json").write_text(json.dumps(result))
            (directory / JOB_FILE).write_text("{}")
            tell(JobEvent(job, "done"))


def _confirmed(
    folder: Path, time_of: TimeOf, sizes: Sequence[int] = (4, 4), around: int = 2
) -> Design:
    file = folder / "some.yaml"
    file.write_text(listed(sizes))
    return design(file, out=folder / "out", confirm_around=around, engine=MadeUp(time_of))


def test_a_gain_that_holds_is_confirmed(tmp_path: Path) -> None:
    made = _confirmed(tmp_path, lambda spec: 1.03 * ideal_ns(spec))
    assert made.confirmation is not None
    names = [row.point.name for row in made.confirmation.rows]
    assert names == ["winner", "equal split", "15% to d0", "15% to d1"]
    assert made.confirmation.refutations == ()
    for row in made.confirmation.rows:
        assert row.measured_gain == pytest.approx(row.predicted_gain, rel=1e-4)
        assert row.full_size_gain == pytest.approx(row.predicted_gain, rel=1e-6)
        assert row.measured_ns == pytest.approx(1.03 * row.point.predicted_ns, rel=1e-4)
    assert made.confirmation.rows[0].predicted_gain == pytest.approx(1.6, rel=1e-5)
    page = (tmp_path / "out" / "design.html").read_text()
    assert "confirmed: the gain over equal split is 1.600x" in page


def test_a_gain_that_does_not_hold_is_refuted(tmp_path: Path) -> None:
    made = _confirmed(tmp_path, lambda spec: 1e6)
    assert made.confirmation is not None
    assert made.confirmation.verdict.startswith("refuted: the gain over equal split is 1.000x")
    document = design_document(made)
    assert document["confirmation"]["refuted"] is True


def test_a_neighbour_that_is_faster_refutes_it(tmp_path: Path) -> None:
    def time_of(spec: Spec) -> float:
        return ideal_ns(spec) * (0.5 if "15-to-d1" in spec.name else 1)

    made = _confirmed(tmp_path, time_of)
    assert made.confirmation is not None
    (why,) = made.confirmation.refutations
    assert why.startswith("15% to d1 is measured")


def test_the_command_ends_with_3_for_a_design_that_is_refuted(tmp_path: Path) -> None:
    """Runs that are done are kept: the command judges those of the engine that makes them up."""
    _confirmed(tmp_path, lambda spec: 1e6)
    out = tmp_path / "out"
    done = command("design", tmp_path / "some.yaml", "--out", out, "--confirm", "2")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Emulation: refuted" in done.stdout


def test_the_page_has_gains_sensitivities_and_the_front(tmp_path: Path) -> None:
    _confirmed(tmp_path, ideal_ns)
    page = (tmp_path / "out" / "design.html").read_text()
    for title in ("Predicted and measured", "What it hangs on", "Time against cost"):
        assert title in page
    figures = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert figures == {"confirmation", "sensitivities", "front"}


def _priced(folder: Path, time_of: TimeOf, more: str) -> Design:
    """Two dimensions, the outer one dearer, by another objective than the time."""
    file = folder / "priced.yaml"
    text = listed((4, 4), more).replace(
        "name: d1, kind: switch", "name: d1, tier: pod, kind: switch"
    )
    file.write_text(text)
    return design(file, out=folder / "out", confirm_around=2, engine=MadeUp(time_of))


PRODUCT = (
    "  objective: time-x-cost\n  constraints: {total_bandwidth: 500GB/s}\n  prices: {host: 3000}"
)


def test_the_product_is_judged_and_not_the_time(tmp_path: Path) -> None:
    made = _priced(tmp_path, ideal_ns, PRODUCT)
    assert made.confirmation is not None and not made.confirmation.refutations
    winner, equal, *_ = made.confirmation.rows
    split = equal_split(made.found)
    assert split is not None
    assert winner.predicted_gain == pytest.approx(split.product_gain, rel=1e-6)
    assert winner.measured_gain == pytest.approx(split.product_gain, rel=1e-3)
    assert winner.full_size_gain == pytest.approx(split.product_gain, rel=1e-6)
    assert winner.point.cost < equal.point.cost
    times = equal.point.predicted_ns / winner.point.predicted_ns
    assert winner.predicted_gain == pytest.approx(times * equal.point.cost / winner.point.cost)
    assert "the gain in time x cost over equal split is" in made.confirmation.verdict
    page = (tmp_path / "out" / "design.html").read_text()
    assert "gain in time x cost, measured" in page


def test_a_product_that_does_not_hold_is_refuted(tmp_path: Path) -> None:
    def time_of(spec: Spec) -> float:
        return ideal_ns(spec) * (1.2 if spec.name.endswith("winner") else 1)

    made = _priced(tmp_path, time_of, PRODUCT)
    assert made.confirmation is not None
    assert made.confirmation.refutations[0].startswith("the gain in time x cost over equal split")


def test_a_faster_point_that_costs_as_much_more_refutes_no_product(tmp_path: Path) -> None:
    def time_of(spec: Spec) -> float:
        return ideal_ns(spec) * (0.9 if "15-to-d1" in spec.name else 1)

    made = _priced(tmp_path, time_of, PRODUCT)
    assert made.confirmation is not None and not made.confirmation.refutations
    moved = next(row for row in made.confirmation.rows if row.point.name == "15% to d1")
    assert moved.point.cost > made.confirmation.rows[0].point.cost


def test_of_the_least_cost_the_time_must_hold(tmp_path: Path) -> None:
    objective = "  objective: cost\n  constraints: {total_bandwidth: 500GB/s, time: 1ms}"
    held = _priced(tmp_path, lambda spec: 1.05 * ideal_ns(spec), objective).confirmation
    assert held is not None and held.verdict.startswith("confirmed: the winner takes")
    (tmp_path / "later").mkdir()
    late = _priced(tmp_path / "later", lambda spec: 1.1 * ideal_ns(spec), objective).confirmation
    assert late is not None and late.refutations[0].startswith("the winner takes")


def test_runs_are_kept_and_what_failed_is_told(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(listed((4, 4)))
    first = MadeUp(ideal_ns, fails="winner")
    made = design(file, out=tmp_path / "out", confirm_around=0, engine=first)
    assert made.confirmation is not None
    assert made.confirmation.rows[0].failure == "made up to fail"
    assert made.confirmation.verdict.startswith("not judged")
    again = MadeUp(ideal_ns)
    made = design(file, out=tmp_path / "out", confirm_around=0, engine=again)
    assert again.asked == 1
    assert made.confirmation is not None and not made.confirmation.refutations


def test_a_large_network_is_shrunk_and_searched_again(tmp_path: Path) -> None:
    made = _confirmed(tmp_path, ideal_ns, (16, 8, 32), around=0)
    assert made.confirmation is not None
    winner = made.confirmation.rows[0]
    assert winner.full_size_gain == pytest.approx(2.813, abs=0.001)
    # 4-4-4: the bytes are 3/2, 3/8 and 3/32, so 3 * 48 / 63.
    assert winner.predicted_gain == pytest.approx(3 * 48 / 63, rel=1e-4)
    assert made.confirmation.rules[0].startswith("16x8x32 is emulated as 4x4x4")


def test_the_directory_has_the_winner_ready_to_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(listed((4, 4)))
    made = groundwire.design(file, out=tmp_path / "out")
    spec = load_spec(tmp_path / "out" / "winner.yaml")
    rates = {link.link_class: link.rate_bps for link in spec.plan.fabric.links}
    assert rates["dimension0"] / rates["dimension1"] == pytest.approx(4, rel=1e-6)
    rows = list(csv.DictReader((tmp_path / "out" / "points.csv").open()))
    assert float(rows[0]["d0_gbytes_per_s"]) == pytest.approx(400, rel=1e-4)
    assert json.loads((tmp_path / "out" / "design.json").read_text())["name"] == "mine"
    assert made.confirmation is None
    front = list(csv.DictReader((tmp_path / "out" / "front.csv").open()))
    costs, times = ([float(row[key]) for row in front] for key in ("cost", "time_ns"))
    assert len(front) > 10 and costs == sorted(costs) and times == sorted(times, reverse=True)


def test_what_cannot_be_emulated_says_so(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(listed((4,)))
    with pytest.raises(NotEmulated, match="fewer than 2 bandwidths"):
        design(file, out=tmp_path / "out", confirm_around=0, engine=MadeUp(ideal_ns))


BUFFERS = """
workload: {kind: collectives, ranks: 8, operations: [{kind: all_reduce, size: 64MB}]}
design:
  dimensions:
    - {name: a, kind: switch, size: 8, links: LINKS, link_bandwidth: 10GB/s,
       buffer: [10KB, 400KB], round_trip: 10us}
"""


def test_what_buffers_do_is_not_passed_off_as_measured() -> None:
    with pytest.raises(NotEmulated, match="no other point that takes another time"):
        emulation_of(found_in(BUFFERS.replace("LINKS", "4")), 1)
    found = found_in(BUFFERS.replace("LINKS", "[1, 4]").replace("400KB", "40KB"))
    emulation = emulation_of(found, 2)
    assert [point.name for point, _ in emulation.points] == ["winner", "neighbour 1"]
    assert "a links 1 for 4" in emulation.points[1][0].words
    assert any("Buffers are not emulated" in rule for rule in emulation.rules)


@given(st.lists(st.integers(2, 64), min_size=1, max_size=6))
def test_shrunk_networks_keep_their_dimensions(sizes: list[int]) -> None:
    found = shrunk(sizes, 64)
    ranks = 1
    for small, size in zip(found, sizes, strict=True):
        assert 2 <= small <= size
        ranks *= small
    assert ranks <= 64


def test_neighbours_along_a_dimension_share_a_link() -> None:
    fabric = dimension_fabric((2, 3), (10**9, 2 * 10**9), (0.0, 600.0))
    raw = {
        "name": "x",
        "fabric": fabric,
        "workload": {
            "kind": "collectives",
            "ranks": 6,
            "operations": [{"kind": "all_reduce", "size": 24}],
        },
    }
    links = parse_spec(json.dumps(raw)).plan.fabric.links
    ends = {frozenset((link.a.node, link.b.node)): link for link in links}
    assert len(links) == len(ends) == 3 + 2 * 3
    along = ends[frozenset(("h4", "h0"))]
    assert (along.link_class, along.rate_bps, along.delay_ns) == ("dimension1", 2 * 10**9, 600)
    assert ends[frozenset(("h2", "h3"))].link_class == "dimension0"


LAYERS = """
workload:
  kind: layers
  ranks: 64
  parallelism: hybrid-data-model
  innermost: 16
  layers:
    - name: a
      forward: {compute: 200us, collective: all_reduce, size: 8MB}
      input_gradient: {compute: 200us, collective: all_gather, size: 250KB}
      weight_gradient: {compute: 200us, collective: all_reduce, size: 4MB}
design:
  dimensions:
    - {name: a, kind: ring, size: 4}
    - {name: b, kind: switch, size: 8}
    - {name: c, kind: switch, size: 2}
  constraints: {total_bandwidth: 100GB/s}
  confirm: {ranks: 16, size: 1MiB, chunks: 4}
"""

TRANSFORMER = """
workload: {kind: transformer, layers: 8, hidden: 4096, heads: 32, batch_size: 64}
design:
  dimensions:
    - {name: a, kind: fully-connected, size: 4, bandwidth: 100GB/s}
    - {name: b, kind: switch, size: 4, bandwidth: 10GB/s}
  strategy: {tensor: [1, 2, 4, 8], microbatches: [1, 2], zero: [1]}
  confirm: {ranks: 16, size: 1MiB, chunks: 4}
"""

RECOMMENDER = """
workload: {kind: recommender, batch_size: 65536, rows: 20000000}
design:
  dimensions:
    - {name: a, kind: fully-connected, size: 4, bandwidth: 100GB/s}
    - {name: b, kind: switch, size: [1, 2, 4], bandwidth: 10GB/s}
  host: {memory: 32GB, memory_bandwidth: 900GB/s, flops: 60TFLOPS, expansion: [0, 100GB],
    expansion_bandwidth: 300GB/s}
  confirm: {ranks: 16, size: 1MiB, chunks: 4}
"""


def _emulation(text: str, around: int) -> tuple[Found, Emulation]:
    found = found_in(text)
    return found, emulation_of(found, around)


def test_layers_are_emulated_with_groups_of_the_degrees() -> None:
    found, emulation = _emulation(LAYERS, 1)
    assert [point.name for point, _ in emulation.points] == ["winner", "equal split", "15% to a"]
    winner, spec = emulation.points[0]
    workload = spec.workload
    assert isinstance(workload, LayersWorkload) and not workload.overlap
    # Model parallelism takes 4 and 4 of 8; the 2 that are left and the last 2 are data's.
    assert (workload.ranks, workload.innermost) == (16, 4)
    assert spec.collectives.dimensions == (2, 2, 2, 2)
    # The best split of the shrunk network is searched anew, and no slower than the equal split's.
    assert winner.predicted_ns < emulation.points[1][0].predicted_ns
    (row,) = workload.layers
    assert row.forward.size_bytes == 2**20
    gathered = row.input_gradient.size_bytes / row.forward.size_bytes
    # The data that all 16 ranks gather is divided among the 4 of the shrunk group.
    assert gathered == pytest.approx(16 * 0.25 / 8 / 4, rel=1e-3)
    predicted = {planned.name for planned in planned_calls(spec)}
    assert len(predicted) == 3
    assert "is a table of layers" in " ".join(emulation.rules)
    assert found.best.time_ns == winner.full_size_ns


def test_a_transformer_is_compared_with_other_degrees() -> None:
    found, emulation = _emulation(TRANSFORMER, 1)
    names = [point.name for point, _ in emulation.points]
    assert names == ["winner", "neighbour 1", "neighbour 2"]
    ranks = {spec.workload.ranks for _, spec in emulation.points}
    assert ranks == {16}
    degrees = [
        spec.workload.innermost
        for _, spec in emulation.points
        if isinstance(spec.workload, LayersWorkload)
    ]
    best = found.best.point.strategy
    assert best is not None
    assert degrees[0] == best.tensor and len(set(degrees)) == 3
    for point, spec in emulation.points:
        # Nothing is shrunk: predictions are the full size's, but for layers that are joined.
        full = point.full_size_ns / emulation.points[0][0].full_size_ns
        small = point.predicted_ns / emulation.points[0][0].predicted_ns
        assert small == pytest.approx(full, rel=0.1)
        assert list(planned_calls(spec))


def test_a_recommender_is_emulated_with_its_exchanges() -> None:
    found, emulation = _emulation(RECOMMENDER, 1)
    assert found.best.point.chosen["b size"] == "4"
    (_, winner), (other, neighbour) = emulation.points[:2]
    assert winner.workload.ranks == 16 and neighbour.workload.ranks == 8
    assert other.words.startswith("b size 2 for 4")
    kinds = {planned.call.kind for planned in planned_calls(winner)}
    assert kinds == {"all_to_all", "all_reduce"}
    # All hosts of a line are connected.
    sizes = winner.collectives.dimensions
    assert sizes == (4, 4)
    rates = [link.rate_bps for link in winner.plan.fabric.links if link.link_class == "dimension0"]
    assert len(rates) == 4 * 6 and set(rates) == {round(10e9 / 3)}
