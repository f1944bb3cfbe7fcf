from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import RunError, load_run
from analysis.decode.run_capture import load_capture
from analysis.decode.tcp.pcap import CaptureFormatError
from analysis.exporters.perfetto import process_of, write_trace
from analysis.metrics.flow import Flows, NoFlows, flows_of, read_flows
from analysis.metrics.packets import PayloadPackets, reordered, reordering_extents, sent_again
from analysis.metrics.port_traffic import port_traffic
from analysis.metrics.traffic import CAPTURE, SCHEDULE, captured_traffic
from analysis.report import render_html
from analysis.report.run_figures import run_figures
from analysis.report.tables.run_tables import tables
from tests.report.synthetic_capture import MSS, SIZE, make_captured_run, wire_ns

PACKETS = -(-(SIZE + 48) // MSS)


def flows(directory: Path) -> Flows:
    capture = load_capture(load_run(directory))
    assert capture is not None
    return flows_of(capture)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_captured_run(tmp_path_factory.mktemp("captured") / "quiet")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_captured_run(tmp_path_factory.mktemp("captured") / "troubled", trouble=True)


def test_every_captured_byte_is_attributed(quiet: Path) -> None:
    attribution = flows(quiet).capture.attribution
    assert attribution.unattributed_bytes == 0 and attribution.unlogged_bytes == 0
    wire = tables(load_run(quiet), flows(quiet))["wire"]
    total = sum(int(str(value)) for value in wire.column("wire_bytes"))
    # Each packet is in both captures and counts once.
    assert 2 * total == sum(file.data_connection_bytes for file in attribution.files)


def test_a_message_takes_what_an_empty_network_takes(quiet: Path) -> None:
    messages = flows(quiet).messages
    assert len(messages) == 2
    last = (SIZE + 48) % MSS
    # The last frame leaves after all others, then crosses two links.
    expected = (PACKETS - 1) * wire_ns(MSS) + 2 * (wire_ns(last) + 500)
    assert messages.fct_ns == pytest.approx([expected] * 2, abs=2)
    # The ideal waits a whole frame at the switch: the one before the last still blocks it.
    assert messages.slowdown == pytest.approx([1, 1], rel=0.02)
    start = 10_000_060_000
    assert list(messages.start_ns) == [start, start]


def test_nothing_happened_on_a_quiet_network(quiet: Path) -> None:
    for flow in flows(quiet).flows:
        assert (flow.retransmitted_packets, flow.reordered, flow.ce_packets) == (0, 0, 0)
        assert flow.packets >= PACKETS


def test_trouble_is_counted_where_it_happened(troubled: Path) -> None:
    there, back = sorted(flows(troubled).flows, key=lambda flow: flow.source)
    assert (there.source, there.destination) == (0, 1)
    assert there.retransmitted_packets == 1
    assert there.reordered == 1
    assert there.ce_packets == 1
    assert there.ce_fraction == 1 / there.packets
    assert (back.retransmitted_packets, back.reordered, back.ce_packets) == (0, 0, 0)


def test_round_trips_are_from_departure_to_acknowledgement(quiet: Path) -> None:
    full = round(2 * (wire_ns(MSS) + 500) + 2 * (wire_ns(0) + 500))
    samples = np.concatenate([flow.rtt_ns for flow in flows(quiet).flows])
    assert np.isclose(samples, full, atol=2).sum() == 2 * (PACKETS - 1)
    assert samples.min() >= 2000


def test_phases_leave_out_what_is_no_collective(quiet: Path) -> None:
    assert {p: len(rows) for p, rows in flows(quiet).phases().items()} == {
        "embedding_forward": 2,
        "mlp_gradient": 0,
    }


def test_a_port_is_wholly_used_while_it_sends_back_to_back(quiet: Path) -> None:
    ports = {each.port: each for each in port_traffic(flows(quiet).capture)}
    assert set(ports) == {"h0-eth0", "h1-eth0", "s0-eth0", "s0-eth1"}
    # Half a frame ahead, so that rounding moves no frame over an edge.
    begin = 10_000_060_000 - wire_ns(MSS) / 2
    edges = begin + np.arange(-1, 6) * np.float64(8 * wire_ns(MSS))
    use = ports["h0-eth0"].utilisation(edges)
    # Frames of 9 KB and an acknowledgement of 90 bytes for each one that came.
    assert use[0] < 0.05
    assert use[1:] == pytest.approx([1 + 90 / 9038] * 5, abs=0.01)
    sent = ports["h0-eth0"].wire_bytes.sum()
    assert ports["s0-eth1"].wire_bytes.sum() == sent
    assert ports["s0-eth1"].at_peer and not ports["h0-eth0"].at_peer


def test_captured_traffic_holds_the_payload(quiet: Path) -> None:
    matrix = captured_traffic(flows(quiet)).bytes
    # Two announcements and the data's own preamble; the connecting side's hello.
    assert matrix.tolist() == [[0, SIZE + 3 * 48], [SIZE + 3 * 48 + 8, 0]]


def test_flow_table_agrees_with_the_flows(troubled: Path) -> None:
    run = load_run(troubled)
    found = flows(troubled)
    rows = tables(run, found)["flows"].records()
    assert [r["retransmitted_packets"] for r in rows] == [
        f.retransmitted_packets for f in found.flows
    ]
    assert {r["messages"] for r in rows} == {1}
    assert "flows" not in tables(run)


def test_arrows_join_the_slices_of_sender_and_receiver(quiet: Path) -> None:
    events = json.loads(write_trace(quiet).read_text())["traceEvents"]
    arrows = [e for e in events if e["ph"] in "sf"]
    assert len(arrows) == 4
    slices = [e for e in events if e["ph"] == "X" and e["cat"] == "collective"]
    for arrow in arrows:
        around = [
            s for s in slices
            if s["tid"] == arrow["tid"] and s["ts"] <= arrow["ts"] <= s["ts"] + s["dur"]
        ]  # fmt: skip
        assert [s["name"] for s in around] == ["i0.embedding_forward.0"]
        assert around[0]["pid"] == arrow["pid"]
    by_id = {e["id"]: e["pid"] for e in arrows if e["ph"] == "s"}
    for end in (e for e in arrows if e["ph"] == "f"):
        assert {by_id[end["id"]], end["pid"]} == {process_of(0), process_of(1)}
        assert end["bp"] == "e"


def test_the_page_draws_the_distributions(quiet: Path) -> None:
    html = render_html(run_figures([quiet]))
    assert 'class="cdf p0"' in html
    assert "every byte on Gloo&#39;s connections is attributed" in html


def test_the_page_says_that_there_is_no_capture(run_directory: Path) -> None:
    assert "No capture in this run" in render_html(run_figures([run_directory]))


def test_packets_cut_too_short_are_told_on_the_page(tmp_path: Path) -> None:
    directory = make_captured_run(tmp_path / "run", snaplen=80)
    html = render_html(run_figures([directory]))
    assert "do not tell Gloo&#39;s messages" in html and "at least 114 is needed" in html
    events = json.loads(write_trace(directory).read_text())["traceEvents"]
    assert not [e for e in events if e["ph"] in "sf"]


def test_a_capture_of_some_hosts_does_not_pass_for_all_traffic(tmp_path: Path) -> None:
    directory = make_captured_run(tmp_path / "run")
    (figures,) = run_figures([directory])
    assert figures.traffic.source == CAPTURE
    (directory / "capture" / "h1-eth0.pcap").unlink()
    (figures,) = run_figures([directory])
    assert figures.flows is not None
    assert figures.traffic.source == SCHEDULE


def test_captures_too_large_are_left_alone(quiet: Path) -> None:
    found = read_flows(load_run(quiet), most_bytes=1000)
    assert isinstance(found, NoFlows) and "too large" in found.reason


def test_a_damaged_capture_is_named(tmp_path: Path) -> None:
    directory = make_captured_run(tmp_path / "run")
    path = directory / "capture" / "h0-eth0.pcap"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(CaptureFormatError, match=r"h0-eth0\.pcap"):
        render_html(run_figures([directory]))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"clock_offset_ns": "x"}'])
def test_a_damaged_index_is_named(tmp_path: Path, content: str) -> None:
    directory = make_captured_run(tmp_path / "run")
    (directory / "capture" / "index.json").write_text(content)
    with pytest.raises(RunError, match=r"index\.json: "):
        load_capture(load_run(directory))


def make_segments(starts: list[int], size: int) -> PayloadPackets:
    position = np.array(starts, dtype=np.int64)
    none = np.zeros(len(starts), dtype=np.int64)
    times = np.arange(len(starts), dtype=np.int64)
    return PayloadPackets(none, none, times, position, position + size, none.astype(np.bool_))


@given(st.permutations(range(12)))
def test_reordering_counts_packets_behind_later_ones(order: list[int]) -> None:
    sent = make_segments([100 * i for i in range(12)], 100)
    received = make_segments([100 * i for i in order], 100)
    overtaken = sum(any(before > here for before in order[:i]) for i, here in enumerate(order))
    late = reordered(received, sent)
    assert int(late.sum()) == overtaken
    behind = [
        i - min(j for j in range(i) if order[j] > here)
        for i, here in enumerate(order)
        if any(before > here for before in order[:i])
    ]
    assert reordering_extents(received, late).tolist() == behind


@given(st.lists(st.integers(0, 11), max_size=20))
def test_segments_sent_again_are_the_repeats(extra: list[int]) -> None:
    starts = [100 * i for i in range(12)] + [100 * i for i in extra]
    assert sent_again(make_segments(starts, 100)).tolist() == [False] * 12 + [True] * len(extra)
