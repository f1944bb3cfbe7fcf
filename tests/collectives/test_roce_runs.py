"""Programs' messages over RDMA, in the virtual kernel, as a user starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.decode.phase_bytes import bytes_by_phase
from analysis.decode.roce.queue_pair_metrics import queue_pair_metrics
from analysis.decode.run_capture import RunCapture, load_capture
from analysis.metrics.flow import flows_of
from analysis.predict.setting import setting_of
from analysis.report.tables.run_tables import tables
from analysis.results.expected import Expectation
from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from tests.session.captured_headers import captured_headers
from tests.session.command import run_spec, valid_rows

SPEC = """
name: roce
fabric: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2,
  link: {rate: 100Gbps, delay: 1us, mtu: 4200}}
transport: {kind: roce, path_mtu: 4096}
workload:
  kind: collectives
  ranks: 4
  iterations: 1
  operations:
    - {kind: all_reduce, size: 64000}
    - {kind: all_reduce, size: 1048576, program: {algorithm: halving-doubling, chunks: 2}}
    - {kind: all_to_all, size: 1000000}
collectives: {backend: programs, all_reduce: {algorithm: ring}, all_to_all: {algorithm: direct}}
predict: [flow, alpha-beta]
capture: {points: [hosts]}
"""
CREDIT_BYTES = 16
SIZE = 4_194_304
RAILS = f"""
name: roce-on-rails
fabric: {{kind: rails, servers: 2, hosts_per_server: 2, servers_per_leaf: 1, spines: 1,
  link: {{rate: 200Gbps, delay: 1us, mtu: 4300}},
  links: {{scale-up: {{rate: 2400Gbps, delay: 25ns}}}}}}
transport: {{kind: roce, path_mtu: 4096, congestion_control: hpcc}}
workload: {{kind: collectives, ranks: 4, operations: [{{kind: all_reduce, size: {SIZE}}}]}}
collectives: {{backend: programs, all_reduce: {{algorithm: hierarchical, dimensions: [2, 2],
  inside: ring, across: ring}}}}
capture: {{points: []}}
predict: []
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_spec(tmp_path_factory.mktemp("roce"), SPEC)


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    faults = "faults: [{kind: loss, link: h0-leaf0, at: 0ns, value: 1%}]\n"
    return run_spec(tmp_path_factory.mktemp("roce"), SPEC + faults)


def _attributed(directory: Path) -> RunCapture:
    """A run's capture, of whose bytes each belongs to a collective, and each message is whole."""
    capture = load_capture(load_run(directory))
    assert capture is not None
    found = capture.attribution
    assert found.unattributed_bytes == found.unlogged_bytes == found.assumed_bytes == 0
    rows = [
        row for row in found.by_collective() if row.collective and row.collective.schedule.chunks
    ]
    assert len(rows) == 3
    for row in rows:
        assert row.collective is not None and row.collective.schedule is not None
        messages = list(row.collective.schedule.numbered_messages())
        assert row.messages == len(messages)
        assert row.data_bytes == sum(message.size_bytes for message in messages)
        assert row.preamble_bytes == CREDIT_BYTES * len(messages)
    phases = bytes_by_phase(found)
    assert sum(phase.wire_bytes for phase in phases) == sum(row.wire_bytes for row in rows)
    return capture


def test_sums_are_right_and_every_byte_is_attributed(clean: Path) -> None:
    run = load_run(clean)
    assert all(log.checks == 3 for log in run.ranks)
    assert [len(log.queue_pairs) for log in run.ranks] == [3] * 4
    capture = _attributed(clean)
    over_roce = [flow for flow in flows_of(capture).flows if flow.carried]
    assert len(over_roce) == 12
    assert all(not flow.retransmitted_packets for flow in over_roce)
    found = tables(run, flows_of(capture))["queue_pairs"]
    assert len(found.rows) == 12
    summary = run.result["summary"]
    assert (summary["retries"], summary["sequence_naks"], summary["not_ready_naks"]) == (0, 0, 0)


def test_predictions_follow_the_messages(clean: Path) -> None:
    for row in valid_rows(clean, 0):
        assert row["predicted"]["flow"]["duration_ns"] == pytest.approx(
            row["duration_ns"], rel=0.03
        ), row["id"]


def test_times_are_what_is_expected_of_programs(clean: Path) -> None:
    """By which a native run is judged. Where flows share a link, the least is less."""
    run = load_run(clean)
    expected = Expectation(setting_of(run), collectives_of(run), run.port_counters, 1).of_all()
    assert len(expected) == 3
    for each in expected:
        assert -0.006 < each.slower < 0.15
        assert -0.02 < each.faster < 0.02


def test_what_is_lost_is_sent_again_and_sums_stay_right(lossy: Path) -> None:
    run = load_run(lossy)
    assert all(log.checks == 3 for log in run.ranks)
    metrics = queue_pair_metrics(_attributed(lossy).attribution)
    assert sum(each.retransmitted_packets for each in metrics) > 0
    summary = run.result["summary"]
    assert summary["retries"] > 0
    assert summary["sequence_naks"] <= sum(each.sequence_naks for each in metrics)


def test_a_second_run_has_the_same_bytes(lossy: Path, tmp_path: Path) -> None:
    """With another memory and in another place: what ports counted, when each packet was seen, what
    ranks and queue pairs say."""
    again = run_spec(
        tmp_path, (lossy / "spec.yaml").read_text().replace("memory: auto", "memory: 2GB")
    )
    assert "2GB" in (again / "spec.yaml").read_text()
    files = ["links.jsonl", *(f"ranks/{rank:03d}.jsonl" for rank in range(4))]
    for name in files:
        assert (again / name).read_bytes() == (lossy / name).read_bytes(), name
    assert captured_headers(again) == captured_headers(lossy)
    first, second = (queue_pair_metrics(_attributed(each).attribution) for each in (lossy, again))
    assert second == first


def test_ranks_of_a_server_send_by_its_switch_and_others_by_their_nic(tmp_path: Path) -> None:
    """Each pair of ranks has a queue pair of the port that leads to the other."""
    directory = run_spec(tmp_path, RAILS)
    valid_rows(directory, 0)
    sent = {
        line["port"]: line["bytes"]
        for line in map(json.loads, (directory / "links.jsonl").open())
        if line["node"].startswith("h")
    }
    # A ring inside, of half of the bytes each way; then another of one half across.
    for host in range(4):
        assert sent[f"h{host}-eth0"] == pytest.approx(2 * SIZE / 2, rel=0.06)
        assert sent[f"h{host}-eth1"] == pytest.approx(2 * SIZE / 4, rel=0.06)
    numbers = [{pair.local_qpn for pair in log.queue_pairs} for log in load_run(directory).ranks]
    assert all(len(each) == 3 for each in numbers)
