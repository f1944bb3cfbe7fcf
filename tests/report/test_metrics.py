from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analysis import RunError, load_run
from analysis.metrics import (
    bisection_use,
    collective_metrics,
    ecmp_groups,
    iteration_breakdowns,
    port_metrics,
    tier_uses,
    traffic_matrix,
)
from analysis.metrics.dimension import DimensionUse, dimension_uses
from analysis.metrics.link import communicating_spans
from analysis.metrics.tier_over_time import tiers_over_time
from analysis.runs.samples.ports import port_series
from tests.report.synthetic_run import COMPUTE_NS, FORWARD_NS, GRADIENT_NS, STEP_NS, make_run

RANKS = 16


def test_collectives_by_rank_with_their_stragglers(run_directory: Path) -> None:
    forward, gradient, *_ = collective_metrics(load_run(run_directory))
    last = STEP_NS * (RANKS - 1)
    assert forward.duration_ns == FORWARD_NS + last
    assert (forward.post_spread_ns, forward.end_spread_ns) == (0, last)
    # The gradients are posted when the forward exchange ended on each rank.
    assert (gradient.post_spread_ns, gradient.end_spread_ns) == (last, 2 * last)
    assert (gradient.last_to_post, gradient.last_to_end) == (RANKS - 1, RANKS - 1)
    assert gradient.duration_ns == GRADIENT_NS + last


def test_bandwidths_and_limit_of_a_collective(run_directory: Path) -> None:
    forward = collective_metrics(load_run(run_directory))[0]
    size, n = 1_048_576, RANKS
    assert forward.algbw_gbps is not None
    assert forward.algbw_gbps == pytest.approx(8 * size / forward.duration_ns)
    assert forward.busbw_gbps == pytest.approx(forward.algbw_gbps * (n - 1) / n)
    # One host's port at MTU 9000 sends (n-1)/n of the buffer; a fat-tree has full bisection.
    goodput = 100e9 * (9000 - 52) / (9000 + 38)
    assert forward.limit_ns == pytest.approx(8e9 * size * (n - 1) / n / goodput)
    assert forward.limit_share == pytest.approx(forward.limit_ns / forward.duration_ns)


def test_an_oversubscribed_bisection_limits_an_all_to_all(tmp_path: Path) -> None:
    fabric = "kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 8"
    run = load_run(make_run(tmp_path / "run", fabric, 16))
    forward = collective_metrics(run)[0]
    goodput = 100e9 * (9000 - 52) / (9000 + 38)
    # 8 x 8 pairs of 1/16 of the buffer each cross one uplink of the rate of a host's.
    assert forward.limit_ns == pytest.approx(8e9 * 1_048_576 * 64 / 16 / goodput, rel=1e-3)


def test_the_leaves_of_a_placement_limit_an_all_to_all(tmp_path: Path) -> None:
    """Ranks lie on leaves by turns, so that each half of them has hosts of both leaves: their cut
    has as many links as there are hosts, and that of a leaf has one."""
    fabric = "kind: leaf-spine, leaves: 4, spines: 1, hosts_per_leaf: 4"
    run = load_run(make_run(tmp_path / "run", fabric, 16, placement="strided"))
    forward = collective_metrics(run)[0]
    goodput = 100e9 * (9000 - 52) / (9000 + 38)
    # A leaf's 4 ranks send 1/16 of the buffer to each of 12 others through one uplink.
    assert forward.limit_ns == pytest.approx(8e9 * 1_048_576 * 48 / 16 / goodput, rel=1e-3)


def test_an_iteration_adds_up(run_directory: Path) -> None:
    breakdown = iteration_breakdowns(load_run(run_directory))[0]
    for rank in breakdown.ranks:
        late = STEP_NS * rank.rank
        assert rank.compute_ns == 2 * COMPUTE_NS
        assert rank.exposed_ns["embedding_forward"] == FORWARD_NS + late
        assert rank.exposed_ns["mlp_gradient"] == GRADIENT_NS + late - COMPUTE_NS
        assert rank.overlapped_ns == {"embedding_forward": 0, "mlp_gradient": COMPUTE_NS}
        assert rank.other_ns == 0
        assert rank.compute_ns + sum(rank.exposed_ns.values()) == rank.duration_ns


def test_ports_are_busy_for_their_frames_with_l1_overhead(run_directory: Path) -> None:
    run = load_run(run_directory)
    communicating = 2 * (FORWARD_NS + GRADIENT_NS + 2 * STEP_NS * (RANKS - 1))
    for port in port_metrics(run):
        bits = 8 * (port.record.bytes + 24 * port.record.packets)
        assert port.utilisation == pytest.approx(bits / (100e9 * communicating / 1e9))
        # The synthetic ports' integral of 12 byte-seconds, over the same time.
        assert port.mean_backlog_bytes == pytest.approx(12e9 / communicating)


def test_traffic_follows_the_algorithms(run_directory: Path) -> None:
    matrix = traffic_matrix(load_run(run_directory)).bytes
    shard, ring = 1_048_576 // RANKS, 2 * 4_000_000 * (RANKS - 1) // RANKS
    for rank in range(RANKS):
        assert matrix[rank, rank] == 0
        # Gloo's ring sends to the rank below; two iterations.
        assert matrix[rank, (rank - 1) % RANKS] == pytest.approx(2 * (shard + ring), rel=1e-5)
        assert matrix[rank, (rank + 2) % RANKS] == 2 * shard


def test_equal_cost_groups_count_heavy_flows_on_the_paths_they_take(run_directory: Path) -> None:
    run = load_run(run_directory)
    groups = {tuple(p.record.port for p in g.ports): g for g in ecmp_groups(run)}
    # k=4: two uplinks at each of 8 edge and 8 aggregation switches.
    assert len(groups) == 16 and all(len(ports) == 2 for ports in groups)
    for group in groups.values():
        assert group.imbalance == pytest.approx(
            max(group.bytes) / (sum(group.bytes) / len(group.bytes))
        )
        assert group.paths_used is not None and 1 <= group.paths_used <= 2
        even = group.bytes[0] == group.bytes[1]
        assert (group.paths_used == pytest.approx(2)) == even
        assert (group.paths_used == 1) == (not min(group.bytes))
    # The 8 of the ring's 16 flows between neighbours below one edge switch do not go up.
    flows = [g.heavy_flows for g in groups.values() if g.node.startswith("edge")]
    assert sum(sum(f) for f in flows if f is not None) == 8
    assert all(g.collisions == 0 for g in groups.values() if sum(g.heavy_flows or ()) <= 1)


def test_tiers_cover_every_port_once(run_directory: Path) -> None:
    run = load_run(run_directory)
    tiers = tier_uses(run)
    assert sorted(p.record.port for t in tiers for p in t.ports) == sorted(
        record.port for record in run.port_counters
    )
    assert {(t.link_class, t.direction) for t in tiers} == {
        (name, way) for name in ("host", "edge-agg", "agg-core") for way in ("up", "down")
    }


def test_bisection_of_a_fat_tree_is_half_of_its_hosts(run_directory: Path) -> None:
    run = load_run(run_directory)
    use = bisection_use(run, traffic_matrix(run))
    assert use is not None
    assert use.capacity_bps == pytest.approx(8 * 100e9 * (9000 - 52) / (9000 + 38))
    # Two ring flows cross (one each way), and 64 shards of the exchange each way, twice.
    ring = 2 * 4_000_000 * 15 // 16
    assert use.crossing_bytes == pytest.approx(2 * (ring + 64 * 1_048_576 / 16), rel=1e-5)


def test_queue_samples_come_back_as_series(run_directory: Path) -> None:
    series = port_series(load_run(run_directory))
    assert len(series) == 3
    first = min(series, key=lambda s: s.max_backlog_bytes)
    assert first.max_backlog_bytes == 2_000 * 99
    assert first.marked == sum(2_000 * i > 100_000 for i in range(100))
    assert list(first.times_ns) == sorted(first.times_ns)


def _series(**columns: list[int]) -> str:
    names = ("sent_bytes", "backlog_bytes", "peak_bytes", "drops", "marks", "paused_classes")
    whole = {"port": "p", "interval_ns": 1, "times_ns": [1]} | {name: [0] for name in names}
    return json.dumps(whole | columns)


@pytest.mark.parametrize(
    "line", ["nonsense", '{"port": "h0-eth0"}', _series(backlog_bytes=[-1]), _series(marks=[])]
)
def test_a_damaged_sample_is_named(tmp_path: Path, line: str) -> None:
    directory = make_run(tmp_path / "run", queues=True)
    path = directory / "ports.jsonl"
    path.write_text(path.read_text() + line + "\n")
    number = len(path.read_text().splitlines())
    with pytest.raises(RunError, match=rf"ports\.jsonl: line {number}: "):
        port_series(load_run(directory))


def test_a_scaled_run_is_shown_in_target_time(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run")
    environment = json.loads((directory / "environment.json").read_text())
    (directory / "environment.json").write_text(json.dumps(environment | {"scale": 10}))
    forward = collective_metrics(load_run(directory))[0]
    assert forward.duration_ns == (FORWARD_NS + STEP_NS * (RANKS - 1)) // 10
    assert forward.algbw_gbps is not None
    assert forward.algbw_gbps == pytest.approx(8 * 1_048_576 / forward.duration_ns)


def test_bytes_of_a_phase_flow_evenly() -> None:
    start, end = np.array([0, 10, 50]), np.array([10, 30, 50])
    use = DimensionUse(1, 2.0, start, end, np.array([100, 40, 7]))
    times = np.array([-5.0, 0.0, 5.0, 10.0, 20.0, 30.0, 50.0, 51.0, 99.0])
    assert use.sent_until(times).tolist() == [0, 0, 50, 100, 120, 140, 140, 147, 147]
    assert (use.payload_bytes, use.load, use.busy_ns) == (147, 73.5, 30)


def test_collectives_without_dimensions_load_none(run_directory: Path) -> None:
    assert dimension_uses(load_run(run_directory)) == ()


def test_tiers_are_uneven_while_ports_take_turns(tmp_path: Path) -> None:
    """Each of a switch's uplinks has half of the bytes, one after the other: evenly used as a
    whole, and never at a time."""
    run = load_run(make_run(tmp_path / "run", iterations=1))
    begin_ns, end_ns = communicating_spans(run)[0]
    middle_ns = (begin_ns + end_ns) // 2
    uplinks = [p for p in port_metrics(run) if p.record.node.startswith("edge")]
    uplinks = [p for p in uplinks if p.record.peer.startswith("agg")]
    for port, turn in ((p, number % 2) for number, p in enumerate(uplinks)):
        first, last = ((begin_ns, middle_ns), (middle_ns, end_ns))[turn]
        line = {
            "port": port.record.port,
            "interval_ns": last - first,
            "times_ns": [first, last],
            "sent_bytes": [0, 1_000_000],
        }
        for key in ("backlog_bytes", "peak_bytes", "drops", "marks", "paused_classes"):
            line[key] = [0, 0]
        with (run.directory / "ports.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    [tier] = tiers_over_time(run, port_series(run))
    assert (tier.direction, tier.ports) == ("up", len(uplinks))
    assert tier.imbalance == pytest.approx([2.0] * len(tier.imbalance))
    assert tier.mean_imbalance == pytest.approx(tier.worst[1]) == pytest.approx(2.0)
    sent = (tier.mean * (tier.end_ns - tier.begin_ns)).sum() * tier.ports * 100e9 / 8e9
    assert sent == pytest.approx(1_000_000 * len(uplinks))
