"""trace.pftrace: a run for Perfetto, in its own format. It has the contents of trace.json, in whole
nanoseconds and a fifteenth of the bytes.

The messages are Perfetto's package's (perfetto.dev/docs/reference/synthetic-track-event).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from analysis.exporters.perfetto import Event, trace_events
from analysis.metrics.flow import Flows
from analysis.runs.run import Run
from analysis.runs.samples.ports import PortSeries

_SEQUENCE = 1
_CLEARED, _NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags

_PACKETS_PER_BLOCK = 10_000
"""Packets that are compressed together."""

Slice = tuple[int, int, Event]
"""Begin and end in nanoseconds, and the event."""


def write_protobuf_trace(
    path: Path, run: Run, queues: Sequence[PortSeries], flows: Flows | None
) -> None:
    """Write a run, with its queue samples and captures, as a trace at `path`. Raises OSError."""
    with path.open("wb") as file:
        trace = _Trace(file)
        trace.write(trace_events(run, queues, flows))
        trace.close()


class _Trace:
    """One sequence of packets, which names every track and every string once."""

    def __init__(self, file: IO[bytes]) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

        self._messages = messages
        self._file = file
        self._kinds = messages.TrackEvent
        self._packets: list[Any] = []
        self._tracks: dict[tuple[object, ...], int] = {}
        self._strings: dict[str, dict[str, int]] = {}
        packet = self._packet()
        packet.sequence_flags = _CLEARED
        self._put(packet)

    def write(self, events: Iterator[Event]) -> None:
        """All events. A thread's slices are sorted, so that they begin and end as they nest."""
        slices: dict[tuple[int, int], list[Slice]] = {}
        names: dict[tuple[int, int], dict[str, Any]] = {}
        others = []
        for event in events:
            if event["ph"] == "X":
                begin = _nanoseconds(event["ts"])
                end = begin + _nanoseconds(event["dur"])
                slices.setdefault((event["pid"], event["tid"]), []).append((begin, end, event))
            elif event["ph"] == "M":
                at = event["pid"], event["tid"] if event["name"].startswith("thread") else 0
                names.setdefault(at, {}).update(event["args"])
            else:
                others.append(event)
        for (process, thread), about in names.items():
            self._describe(process, thread, about)
        for (process, thread), found in slices.items():
            self._put_slices(self._tracks[process, thread], found)
        for event in others:
            if event["ph"] == "C":
                self._put_counters(event)
            else:
                self._put_instant(event)

    def _describe(self, process: int, thread: int, about: Mapping[str, Any]) -> None:
        packet = self._packet()
        described = packet.track_descriptor
        described.uuid = self._track(process, thread)
        kind = described.thread if thread else described.process
        kind.pid, kind.legacy_sort_index = process, about.get("sort_index", 0)
        if thread:
            kind.tid, kind.thread_name = thread, about["name"]
        else:
            kind.process_name = about["name"]
        self._put(packet)

    def _track(self, *key: object) -> int:
        return self._tracks.setdefault(key, len(self._tracks) + 1)

    def _put_slices(self, track: int, slices: list[Slice]) -> None:
        open_until: list[int] = []
        for begin, end, event in sorted(slices, key=lambda one: (one[0], -one[1])):
            while open_until and open_until[-1] <= begin:
                self._put_end(track, open_until.pop())
            self._put_named(track, begin, self._kinds.TYPE_SLICE_BEGIN, event)
            open_until.append(end)
        while open_until:
            self._put_end(track, open_until.pop())

    def _put_end(self, track: int, time_ns: int) -> None:
        self._put(self._event(track, time_ns, self._kinds.TYPE_SLICE_END))

    def _put_instant(self, event: Event) -> None:
        """An instant, or an end of an arrow, which is one: of a message, its first or last byte."""
        track = self._tracks[event["pid"], event["tid"]]
        ends = {"s": "flow_ids", "f": "terminating_flow_ids"}
        flow = {ends[event["ph"]]: [event["id"] + 1]} if event["ph"] in ends else {}
        time_ns = _nanoseconds(event["ts"])
        self._put_named(track, time_ns, self._kinds.TYPE_INSTANT, event, flow)

    def _put_counters(self, event: Event) -> None:
        """Each argument is a track of its own."""
        for argument, value in event["args"].items():
            key = ("counter", event["pid"], event["name"], argument)
            if key not in self._tracks:
                packet = self._packet()
                packet.track_descriptor.uuid = self._track(*key)
                packet.track_descriptor.parent_uuid = self._tracks[event["pid"], 0]
                packet.track_descriptor.name = f"{event['name']} {argument}"
                packet.track_descriptor.counter.SetInParent()
                self._put(packet)
            time_ns = _nanoseconds(event["ts"])
            packet = self._event(self._tracks[key], time_ns, self._kinds.TYPE_COUNTER)
            if isinstance(value, float):
                packet.track_event.double_counter_value = value
            else:
                packet.track_event.counter_value = value
            self._put(packet)

    def _put_named(
        self,
        track: int,
        time_ns: int,
        kind: int,
        event: Event,
        flow: Mapping[str, list[int]] | None = None,
    ) -> None:
        packet = self._event(track, time_ns, kind)
        made = packet.track_event
        made.name_iid = self._interned(packet, "event_names", event["name"])
        made.category_iids.append(self._interned(packet, "event_categories", event["cat"]))
        for field, identities in (flow or {}).items():
            getattr(made, field).extend(identities)
        for name, value in event.get("args", {}).items():
            if value is None:
                continue
            note = made.debug_annotations.add()
            note.name_iid = self._interned(packet, "debug_annotation_names", name)
            if isinstance(value, str):
                note.string_value_iid = self._interned(
                    packet, "debug_annotation_string_values", value
                )
            elif isinstance(value, float):
                note.double_value = value
            else:
                note.int_value = value
        self._put(packet)

    def _interned(self, packet: Any, table: str, text: str) -> int:
        """The number of a string; where it is new, the packet says so."""
        known = self._strings.setdefault(table, {})
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            entry = getattr(packet.interned_data, table).add()
            entry.iid = number
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return number

    def _event(self, track: int, time_ns: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = time_ns
        packet.sequence_flags = _NEEDS_STATE
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet

    def _packet(self) -> Any:
        return self._messages.TracePacket(trusted_packet_sequence_id=_SEQUENCE)

    def _put(self, packet: Any) -> None:
        self._packets.append(packet)
        if len(self._packets) >= _PACKETS_PER_BLOCK:
            self.close()

    def close(self) -> None:
        """Write what waits."""
        block = self._messages.Trace(packet=self._packets).SerializeToString()
        outer = self._messages.TracePacket(compressed_packets=zlib.compress(block))
        self._file.write(self._messages.Trace(packet=[outer]).SerializeToString())
        self._packets.clear()


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)
