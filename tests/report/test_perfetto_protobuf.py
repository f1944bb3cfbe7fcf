"""trace.pftrace, read by Perfetto's own messages, beside trace.json."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from analysis.exporters import write_trace
from groundwire.commands.report import ReportFormat, ReportRefused, report
from tests.report.synthetic_capture import make_captured_run


class Read:
    """A trace's packets, with interned strings put back."""

    def __init__(self, path: Path) -> None:
        outer = Trace.FromString(path.read_bytes())
        blocks = [zlib.decompress(packet.compressed_packets) for packet in outer.packet]
        self.packets = [p for block in blocks for p in Trace.FromString(block).packet]
        self.names: dict[str, dict[int, str]] = {"event": {}, "category": {}, "note": {}}
        self.tracks: dict[int, Any] = {}
        for packet in self.packets:
            data = packet.interned_data
            for kind, table in (
                ("event", data.event_names),
                ("category", data.event_categories),
                ("note", data.debug_annotation_names),
            ):
                self.names[kind].update({entry.iid: entry.name for entry in table})
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor

    def events(self, kind: int) -> list[tuple[int, Any]]:
        return [
            (packet.timestamp, packet.track_event)
            for packet in self.packets
            if packet.HasField("track_event") and packet.track_event.type == kind
        ]

    def slices(self) -> Counter[tuple[int, int, int, str]]:
        """(thread, begin, end, name): what a reader of the file in its order makes of it."""
        found: Counter[tuple[int, int, int, str]] = Counter()
        open_: dict[int, list[tuple[int, str]]] = {}
        for packet in self.packets:
            event = packet.track_event
            if not packet.HasField("track_event"):
                continue
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                name = self.names["event"][event.name_iid]
                open_.setdefault(event.track_uuid, []).append((packet.timestamp, name))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                begin, name = open_[event.track_uuid].pop()
                thread = self.tracks[event.track_uuid].thread.tid
                found[thread, begin, packet.timestamp, name] += 1
        assert not any(open_.values())
        return found


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


@pytest.fixture(scope="module", params=["plain", "captured"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, run_directory: Path
) -> tuple[Read, list[dict[str, Any]]]:
    directory = run_directory
    if request.param == "captured":
        directory = make_captured_run(tmp_path_factory.mktemp("captured"))
    written = write_trace(directory)
    path = tmp_path_factory.mktemp("trace") / "trace.pftrace"
    assert report([directory], format_=ReportFormat.perfetto, out=path) in (0, 3)
    return Read(path), json.loads(written.read_text())["traceEvents"]


def test_slices_are_those_of_the_json(both: tuple[Read, list[dict[str, Any]]]) -> None:
    found, expected = both
    slices = Counter(
        (e["tid"], _ns(e["ts"]), _ns(e["ts"]) + _ns(e["dur"]), e["name"])
        for e in expected
        if e["ph"] == "X"
    )
    assert slices and found.slices() == slices


def test_messages_are_pairs_of_instants_with_a_flow(
    both: tuple[Read, list[dict[str, Any]]],
) -> None:
    found, expected = both
    instants = found.events(TrackEvent.TYPE_INSTANT)
    for phase, field in (("s", "flow_ids"), ("f", "terminating_flow_ids")):
        ends = {e["id"] + 1: (e["tid"], _ns(e["ts"])) for e in expected if e["ph"] == phase}
        assert ends == {
            flow: (found.tracks[event.track_uuid].thread.tid, time_ns)
            for time_ns, event in instants
            for flow in getattr(event, field)
        }


def test_counters_have_a_track_for_each_argument(
    both: tuple[Read, list[dict[str, Any]]],
) -> None:
    found, expected = both
    values = Counter(
        (f"{e['name']} {argument}", _ns(e["ts"]), value)
        for e in expected
        if e["ph"] == "C"
        for argument, value in e["args"].items()
    )
    assert values == Counter(
        (found.tracks[event.track_uuid].name, time_ns, event.counter_value)
        for time_ns, event in found.events(TrackEvent.TYPE_COUNTER)
    )


def test_processes_and_what_is_said_of_slices(
    both: tuple[Read, list[dict[str, Any]]],
) -> None:
    found, expected = both
    names = {e["pid"]: e["args"]["name"] for e in expected if e["name"] == "process_name"}
    processes = [track.process for track in found.tracks.values() if track.HasField("process")]
    assert {each.pid: each.process_name for each in processes} == names
    sizes = Counter(
        note.int_value
        for _, event in found.events(TrackEvent.TYPE_SLICE_BEGIN)
        for note in event.debug_annotations
        if found.names["note"][note.name_iid] == "size_bytes"
    )
    assert sizes == Counter(
        e["args"]["size_bytes"] for e in expected if "size_bytes" in e.get("args", {})
    )


def test_it_is_a_fifth_of_the_json_and_less(run_directory: Path) -> None:
    report([run_directory], format_=ReportFormat.perfetto)
    written = run_directory / "trace.pftrace"
    assert written.stat().st_size < write_trace(run_directory).stat().st_size / 5


def test_one_file_is_not_for_two_runs(run_directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.pftrace"
    with pytest.raises(ReportRefused, match="each of 2 runs has a trace of its own"):
        report([run_directory, run_directory], format_=ReportFormat.perfetto, out=out)
