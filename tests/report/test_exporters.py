from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import load_run
from analysis.exporters import render_nccl_style, render_openmetrics, write_trace
from analysis.exporters.perfetto import FABRIC_PROCESS, process_of
from analysis.metrics.flow import NoFlows, read_flows
from analysis.runs.run import RunError
from tests.report.synthetic_capture import make_captured_run
from tests.report.synthetic_run import FORWARD_NS, START_NS, STEP_NS, make_run


@pytest.fixture(scope="module")
def trace(run_directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(write_trace(run_directory).read_text())
    return content


def events(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_every_event_has_what_its_phase_requires(trace: dict[str, Any]) -> None:
    required = {"X": {"ts", "dur", "tid", "name"}, "M": {"name", "args"}, "C": {"ts", "args"},
                "s": {"ts", "id", "cat", "tid"}, "f": {"ts", "id", "cat", "tid", "bp"}}  # fmt: skip
    for event in trace["traceEvents"]:
        assert required[event["ph"]] | {"pid"} <= set(event), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_ranks_are_processes_with_named_threads(trace: dict[str, Any]) -> None:
    names = {e["pid"]: e["args"]["name"] for e in events(trace, "M") if e["name"] == "process_name"}
    assert len(names) == 16 + 1
    assert names[1].startswith("rank 0 (h0") and "queues" in names[FABRIC_PROCESS]
    named = {(e["pid"], e["tid"]) for e in events(trace, "M") if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events(trace, "X")} <= named
    threads = [tid for _, tid in named]
    assert len(threads) == len(set(threads))


def test_arrows_pair_and_lead_forward_from_slice_to_slice(tmp_path: Path) -> None:
    content = json.loads(write_trace(make_captured_run(tmp_path)).read_text())
    slices = defaultdict(list)
    for event in events(content, "X"):
        slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    starts, ends = ({e["id"]: e for e in events(content, phase)} for phase in "sf")
    assert starts and set(starts) == set(ends)
    assert len(starts) == len(events(content, "s")) == len(events(content, "f"))
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"] and (start["cat"], start["name"]) == (
            end["cat"],
            end["name"],
        )
        for event in (start, end):
            around = slices[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] < stop for begin, stop in around), event


def test_slices_of_a_thread_nest(trace: dict[str, Any]) -> None:
    by_thread = defaultdict(list)
    for event in events(trace, "X"):
        end = round(event["ts"] * 1000) + round(event["dur"] * 1000)
        by_thread[event["tid"]].append((round(event["ts"] * 1000), -end))
    for slices in by_thread.values():
        open_until: list[int] = []
        for start, negative_end in sorted(slices):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or -negative_end <= open_until[-1]
            open_until.append(-negative_end)


def test_slices_have_the_logged_durations(trace: dict[str, Any]) -> None:
    found = {
        e["pid"]: e["dur"]
        for e in events(trace, "X")
        if e["name"] == "i0.embedding_forward.0" and e["cat"] == "collective"
    }
    assert found == {
        rank + 1: pytest.approx((FORWARD_NS + STEP_NS * rank) / 1000) for rank in range(16)
    }


def test_queue_depth_is_a_counter(trace: dict[str, Any]) -> None:
    counters = defaultdict(list)
    for event in events(trace, "C"):
        counters[event["name"]].append(event)
    assert len(counters) == 3
    values = [e["args"] for e in counters["h0 → edge0-0"]]
    assert max(v["backlog_bytes"] for v in values) == 198_000
    assert values[-1]["marked_packets"] == sum(2_000 * i > 100_000 for i in range(100))
    for found in counters.values():
        assert [e["ts"] for e in found] == sorted(e["ts"] for e in found)


def test_openmetrics_is_parsed_by_its_reference_parser(run_directory: Path) -> None:
    parser = pytest.importorskip(
        "prometheus_client.openmetrics.parser", reason="prometheus-client is not installed"
    )
    run = load_run(run_directory)
    families = {f.name: f for f in parser.text_string_to_metric_families(render_openmetrics(run))}
    sent = families["groundwire_port_transmit_bytes"]
    assert sent.type == "counter" and sent.unit == "bytes"
    assert {s.labels["port"]: s.value for s in sent.samples} == {
        r.port: r.bytes for r in run.port_counters
    }
    marks = families["groundwire_port_ecn_marked_packets"]
    assert sum(s.value for s in marks.samples) == sum(r.ecn_marks for r in run.port_counters)
    durations = families["groundwire_collective_duration_seconds"]
    forward = next(s for s in durations.samples if s.labels["kind"] == "all_to_all")
    assert forward.value == pytest.approx((FORWARD_NS + 15 * STEP_NS) / 1e9)
    assert families["groundwire_valid"].samples[0].value == 1


def test_openmetrics_has_reordering_as_a_histogram_and_trims_by_port(tmp_path: Path) -> None:
    parser = pytest.importorskip(
        "prometheus_client.openmetrics.parser", reason="prometheus-client is not installed"
    )
    directory = make_captured_run(tmp_path / "run", trouble=True)
    ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
    ports[0]["trims"] = 7
    (directory / "links.jsonl").write_text("".join(f"{json.dumps(port)}\n" for port in ports))
    run = load_run(directory)
    flows = read_flows(run)
    assert not isinstance(flows, NoFlows)
    extents = flows.reordering
    assert len(extents)
    families = {f.name: f for f in parser.text_string_to_metric_families(render_openmetrics(run))}
    histogram = families["groundwire_reordering_extent_packets"]
    assert histogram.type == "histogram"
    for sample in histogram.samples:
        if sample.name.endswith("_bucket"):
            assert sample.value == np.count_nonzero(extents <= float(sample.labels["le"]))
    told = {s.name.rpartition("_")[2]: s.value for s in histogram.samples if "le" not in s.labels}
    assert told == {"count": len(extents), "sum": extents.sum()}
    (packets,) = families["groundwire_payload_packets"].samples
    assert packets.value == sum(flow.packets for flow in flows.flows)
    trims = families["groundwire_port_trimmed_packets"]
    assert [s.value for s in trims.samples] == [7, *[0] * (len(ports) - 1)]


def test_nccl_style_lines_have_its_columns(run_directory: Path) -> None:
    text = render_nccl_style(load_run(run_directory))
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert [row[:5] for row in rows] == [
        ["4000000", "1000000", "float", "sum", "-1"],
        ["1048576", "262144", "float", "none", "-1"],
    ]
    time_us, algbw, busbw = (float(cell) for cell in rows[1][5:8])
    assert time_us == pytest.approx((FORWARD_NS + 15 * STEP_NS) / 1000, abs=0.06)
    assert algbw == pytest.approx(1_048_576 / (time_us * 1000), abs=0.006)
    assert busbw == pytest.approx(algbw * 15 / 16, abs=0.01)
    assert "# Avg bus bandwidth" in text


def test_rates_of_queue_pairs_are_counters_of_the_rank_that_sends(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    log = directory / "ranks" / "001.jsonl"
    pair = {
        "event": "queue_pair",
        "peer": 3,
        "local_qpn": 17,
        "remote_qpn": 18,
        "start_psn": 1,
        "remote_start_psn": 2,
        "local_address": "10.0.0.1",
        "remote_address": "10.0.0.2",
    }
    log.write_text(log.read_text() + json.dumps(pair) + "\n")
    host = json.loads(log.read_text().splitlines()[0])["host"]
    later = START_NS + 5_000
    samples = [
        {"host": host, "qpn": 17, "time_ns": later, "rate_bps": 25 * 10**9},
        {"host": host, "qpn": 17, "time_ns": START_NS, "rate_bps": 100 * 10**9},
        {"host": host, "qpn": 99, "time_ns": later, "rate_bps": 10**9},
    ]
    (directory / "rates.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in samples))
    content = json.loads(write_trace(directory).read_text())
    found = [each for each in events(content, "C") if each["name"].startswith("rate of")]
    known = [each for each in found if each["pid"] == process_of(1)]
    assert [each["args"]["rate_gbps"] for each in known] == [100, 25]
    assert known[1]["ts"] - known[0]["ts"] == 5
    assert "rank 1 → 3" in known[0]["name"]
    assert [each["pid"] for each in found if each not in known] == [FABRIC_PROCESS]
    (directory / "rates.jsonl").write_text('{"host": "h0"}\n')
    with pytest.raises(RunError, match=r"rates\.jsonl: line 1"):
        write_trace(directory)
