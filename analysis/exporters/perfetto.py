"""trace.json: a run for Perfetto (ui.perfetto.dev) and chrome://tracing.

Format: the Trace Event Format's JSON object form (docs.google.com/document/d/1CvAClvFfyA5R-
PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete events (X), metadata (M), counters (C), flows (s, f);
times in microseconds with nanosecond decimals, from the run's first event on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.decode.roce.notifications import Notifications, notifications
from analysis.metrics.flow import Flows, NoFlows, read_flows
from analysis.metrics.phase_names import phase_name
from analysis.runs.collectives import ALIGNMENT
from analysis.runs.faults import fault_spans
from analysis.runs.kernels import read_kernels
from analysis.runs.records import ChunkRecord, CollectiveRecord
from analysis.runs.run import RankLog, Run, load_run
from analysis.runs.samples.ports import PortSeries, port_series, ports_that_queued
from analysis.runs.samples.rates import RateSeries, rate_series
from workloads.virtual_gpu.interpreter.kineto import KernelEvent

Event = dict[str, Any]

FABRIC_PROCESS = 1_000_000
"""The process that holds the ports' counters; ranks are processes 1, 2, ..."""

_THREADS_PER_RANK = 1000
_MAIN = 0
_CHUNKS = 500
"""Rows from here on have the phases of chunks, by dimension."""


MAX_KERNELS = 200_000
"""Beyond this many kernels of virtual GPUs, those of further ranks are left out."""

MAX_ARROWS = 20_000
"""Beyond this many messages, the smallest ones are left out."""

MAX_COUNTER_EVENTS = 300_000
"""Beyond this many queue samples, the ports with the shallowest queues are left out."""


def write_trace(directory: Path) -> Path:
    """Write a run directory's trace.json and return its path. Raises RunError."""
    run = load_run(directory)
    flows = read_flows(run)
    return write_trace_of(run, port_series(run), None if isinstance(flows, NoFlows) else flows)


def write_trace_of(run: Run, queues: Sequence[PortSeries], flows: Flows | None) -> Path:
    """The same for a run whose queue samples and captures are loaded already."""
    return _write(run, trace_events(run, queues, flows))


def write_jobs_trace(run: Run) -> Path:
    """Write the trace of several jobs on their common clock, and return its path: each job's ranks
    behind those of the job before, and the ports once. Messages' arrows are in the jobs' own
    traces. Raises RunError."""
    return _write(run, _jobs_events(run))


def _jobs_events(run: Run) -> Iterator[Event]:
    finished = run.finished
    clock = _Clock(*(own for _, own in finished))
    first = 0
    for job, own in finished:
        for event in (*_rank_events(own, clock), *_rate_counters(rate_series(own), clock)):
            if event["pid"] != FABRIC_PROCESS:
                event["pid"] += first
                if "tid" in event:
                    event["tid"] += first * _THREADS_PER_RANK
            if event["name"] == "process_name":
                event["args"]["name"] = f"{job.name}: {event['args']['name']}"
            elif event["name"] == "process_sort_index":
                event["args"]["sort_index"] += first
            yield event
        first += len(own.ranks)
    yield from _queue_counters(run, port_series(run), clock)
    yield from _fault_instants(run, clock)


def _write(run: Run, events: Iterable[Event]) -> Path:
    path = run.directory / "trace.json"
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with path.open("w") as file:
        file.write('{"displayTimeUnit":"ns","otherData":')
        file.write(encode({"name": run.spec.name, "kernel": run.environment.kernel}))
        file.write(',"traceEvents":[\n')
        file.write(",\n".join(map(encode, events)))
        file.write("\n]}\n")
    return path


def trace_events(
    run: Run, queues: Sequence[PortSeries] = (), flows: Flows | None = None
) -> Iterator[Event]:
    """The events of a run."""
    clock = _Clock(run)
    yield from _rank_events(run, clock)
    if flows is not None:
        yield from _message_arrows(run, flows, clock)
    yield from _queue_counters(run, queues, clock)
    yield from _rate_counters(rate_series(run), clock)
    yield from _fault_instants(run, clock)
    if flows is not None:
        yield from _notification_instants(notifications(flows.capture), clock)


def _rank_events(run: Run, clock: _Clock) -> Iterator[Event]:
    left = MAX_KERNELS
    for log in run.ranks:
        yield from _rank_names(log)
        yield from _rank_slices(log, clock)
        yield from _chunk_slices(log, clock)
        if log.gpus and left > 0:
            kernels = read_kernels(run, log.rank)[:left]
            left -= len(kernels)
            yield from _kernel_slices(log, kernels, clock)


class _Clock:
    """Log time to microseconds of the trace, in target time, from the first event of these runs."""

    def __init__(self, *runs: Run) -> None:
        starts = [
            event.start_ns
            for run in runs
            for log in run.ranks
            for events in (log.iterations, log.computes, log.collectives)
            for event in events
        ]
        self.origin_ns = min(starts, default=0)
        self._scale = runs[0].environment.scale

    def microseconds(self, time_ns: int) -> float:
        return round((time_ns - self.origin_ns) / self._scale / 1000, 3)

    def lasting(self, start_ns: int, end_ns: int) -> dict[str, float]:
        """`ts` and `dur`. Both ends are rounded before they are subtracted, so that slices that
        touch do not overlap by a nanosecond."""
        start, end = self.microseconds(start_ns), self.microseconds(end_ns)
        return {"ts": start, "dur": round(max(end - start, 0), 3)}


def process_of(rank: int) -> int:
    """The trace's process id of a rank (0 is the kernel's idle process to Perfetto)."""
    return rank + 1


def thread_of(rank: int, row: int = _MAIN) -> int:
    """Thread ids are unique over all processes: Perfetto takes them so."""
    return process_of(rank) * _THREADS_PER_RANK + row


def flight_rows(records: Sequence[CollectiveRecord]) -> dict[tuple[str, str], int]:
    """The thread row (from 1) of each collective of one rank: slices of a row never overlap. Those
    of a virtual GPU have a row for each stream."""
    if any(record.stream is not None for record in records):
        by_stream = stream_rows(records)
        return {(each.group, each.id): by_stream[each.stream or 0] for each in records}
    rows: dict[tuple[str, str], int] = {}
    free_from: list[int] = []
    for record in sorted(records, key=lambda r: (r.start_ns, r.end_ns, r.id)):
        row = next((i for i, t in enumerate(free_from) if t <= record.start_ns), len(free_from))
        if row == len(free_from):
            free_from.append(0)
        free_from[row] = record.end_ns
        rows[record.group, record.id] = row + 1
    return rows


def stream_rows(records: Sequence[CollectiveRecord]) -> dict[int, int]:
    """The thread row of each stream: the default one's is the first."""
    streams = sorted({0, *(each.stream or 0 for each in records)})
    return {stream: row for row, stream in enumerate(streams, 1)}


def _rank_names(log: RankLog) -> Iterator[Event]:
    rank, process = log.rank, process_of(log.rank)
    yield _metadata("process_name", process, {"name": f"rank {rank} ({log.host})"})
    yield _metadata("process_sort_index", process, {"sort_index": rank})
    rows = sorted(set(flight_rows(log.collectives).values()))
    names = [(_MAIN, "main thread"), *((row, f"in flight {row}") for row in rows)]
    if log.gpus:
        names = [(_MAIN, "iterations"), *_stream_names(log, stream_rows(log.collectives))]
    for row, name in names:
        thread = thread_of(rank, row)
        yield _metadata("thread_name", process, {"name": name}, thread)
        yield _metadata("thread_sort_index", process, {"sort_index": row}, thread)


def _metadata(name: str, process: int, arguments: dict[str, Any], thread: int = 0) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": arguments}


def _rank_slices(log: RankLog, clock: _Clock) -> Iterator[Event]:
    process = process_of(log.rank)
    main = {"ph": "X", "pid": process, "tid": thread_of(log.rank)}
    for iteration in log.iterations:
        yield {
            **main,
            "name": f"iteration {iteration.index}",
            "cat": "iteration",
            **clock.lasting(iteration.start_ns, iteration.end_ns),
        }
    for compute in log.computes:
        yield {
            **main,
            "name": compute.name,
            "cat": "compute",
            **clock.lasting(compute.start_ns, compute.end_ns),
            "args": {"phase": compute.phase, "flops": compute.flops, "bytes": compute.bytes},
        }
    rows = flight_rows(log.collectives)
    for record in log.collectives:
        category = "alignment" if record.phase == ALIGNMENT else "collective"
        arguments = {
            "phase": phase_name(record.phase),
            "kind": record.kind,
            "group": record.group,
            "size_bytes": record.size_bytes,
            "iteration": record.iteration,
            "exposed_us": round(record.waited_ns / 1000, 3),
        }
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread_of(log.rank, rows[record.group, record.id]),
            "name": record.id,
            "cat": category,
            **clock.lasting(record.start_ns, record.end_ns),
            "args": arguments,
        }
        if record.waited_ns and record.phase != ALIGNMENT:
            yield {
                **main,
                "name": f"wait for {record.id}",
                "cat": "exposed",
                **clock.lasting(record.end_ns - record.waited_ns, record.end_ns),
            }


def _stream_names(log: RankLog, rows: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """With the dimension of the mesh whose collectives a stream has."""
    dimensions = {group.name: group.mesh or group.name for group in log.groups}
    for stream, row in rows.items():
        own = {
            dimensions.get(each.group, each.group)
            for each in log.collectives
            if each.stream == stream
        }
        said = ["default"] if stream == 0 else sorted(own)
        yield row, f"stream {stream}" + (f" ({', '.join(said)})" if said else "")


def _kernel_slices(log: RankLog, kernels: Sequence[KernelEvent], clock: _Clock) -> Iterator[Event]:
    process, rows = process_of(log.rank), stream_rows(log.collectives)
    for kernel in kernels:
        if kernel.stream not in rows:
            rows[kernel.stream] = row = len(rows) + 1
            thread = thread_of(log.rank, row)
            name = f"stream {kernel.stream}"
            yield _metadata("thread_name", process, {"name": name}, thread)
            yield _metadata("thread_sort_index", process, {"sort_index": row}, thread)
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread_of(log.rank, rows[kernel.stream]),
            "name": kernel.operator.removeprefix("aten::"),
            "cat": "kernel",
            **clock.lasting(kernel.start_ns, kernel.end_ns),
            "args": {"phase": kernel.phase, "flops": kernel.flops, "bytes": kernel.bytes},
        }


def _chunk_slices(log: RankLog, clock: _Clock) -> Iterator[Event]:
    """The phases of chunks of programs: as many rows for each dimension as are in use at once."""
    process = process_of(log.rank)
    by_dimension: dict[str, list[tuple[int, int, str, ChunkRecord]]] = {}
    for chunk in log.chunks:
        for name, start_ns, end_ns in chunk.phases:
            last = name.rpartition(" ")[2]
            dimension = f"dimension {last}" if last.isdecimal() else "chunks"
            by_dimension.setdefault(dimension, []).append((start_ns, end_ns, name, chunk))
    row = _CHUNKS
    for dimension, slices in sorted(by_dimension.items()):
        free_from: list[int] = []
        for start_ns, end_ns, name, chunk in sorted(slices, key=lambda one: one[:3]):
            place = next((i for i, t in enumerate(free_from) if t <= start_ns), len(free_from))
            if row + place >= _THREADS_PER_RANK:
                continue
            thread = thread_of(log.rank, row + place)
            if place == len(free_from):
                free_from.append(0)
                yield _metadata("thread_name", process, {"name": dimension}, thread)
                yield _metadata("thread_sort_index", process, {"sort_index": row + place}, thread)
            free_from[place] = end_ns
            yield {
                "ph": "X",
                "pid": process,
                "tid": thread,
                "name": f"{chunk.chunk}: {name}",
                "cat": "chunk",
                **clock.lasting(start_ns, end_ns),
                "args": {"collective": chunk.id, "group": chunk.group, "chunk": chunk.chunk},
            }
        row += len(free_from)


def _message_arrows(run: Run, flows: Flows, clock: _Clock) -> Iterator[Event]:
    """An arrow per message, from its collective's slice at the sender to that at the receiver. None
    where one of them has left no log, as a rank that was killed."""
    rows = {log.rank: flight_rows(log.collectives) for log in run.ranks}
    messages, collectives = flows.messages, flows.capture.attribution.collectives
    chosen = [
        index
        for index in np.argsort(-messages.size_bytes, kind="stable")[:MAX_ARROWS].tolist()
        if messages.collective[index] >= 0
        and collectives[int(messages.collective[index])].phase != ALIGNMENT
    ]
    for index in sorted(chosen):
        flow = flows.flows[int(messages.flow[index])]
        collective = collectives[int(messages.collective[index])]
        if not {flow.source, flow.destination} <= collective.intervals_ns.keys():
            continue
        size = int(messages.size_bytes[index])
        for phase, rank, time_ns in (
            ("s", flow.source, int(messages.start_ns[index])),
            ("f", flow.destination, int(messages.end_ns[index])),
        ):
            # An arrow binds to the slice around its end, which a slice's last moment is not.
            start_ns, end_ns = collective.intervals_ns[rank]
            end_ns -= run.environment.scale
            event: Event = {
                "ph": phase,
                "id": index,
                "cat": "message",
                "name": f"{size} bytes",
                "pid": process_of(rank),
                "tid": thread_of(rank, rows[rank][collective.group, collective.id]),
                "ts": clock.microseconds(min(max(time_ns, start_ns), end_ns)),
            }
            if phase == "f":
                event["bp"] = "e"
            yield event


def _queue_counters(run: Run, queues: Sequence[PortSeries], clock: _Clock) -> Iterator[Event]:
    if not queues:
        return
    yield _metadata("process_name", FABRIC_PROCESS, {"name": "fabric: queues"})
    yield _metadata("process_sort_index", FABRIC_PROCESS, {"sort_index": len(run.ranks)})
    names = {record.port: f"{record.node} → {record.peer}" for record in run.port_counters}
    left = MAX_COUNTER_EVENTS
    for each in ports_that_queued(queues):
        left -= len(each.times_ns)
        if left < 0:
            return
        name = names.get(each.port, each.port)
        for time_ns, backlog, marked in zip(
            each.times_ns, each.peak_bytes, each.marks, strict=True
        ):
            if time_ns < clock.origin_ns:
                continue
            # Each argument becomes a counter track of its own.
            values = {"backlog_bytes": backlog, "marked_packets": marked}
            ts = clock.microseconds(time_ns)
            yield {"ph": "C", "pid": FABRIC_PROCESS, "ts": ts, "name": name, "args": values}


def _rate_counters(rates: Sequence[RateSeries], clock: _Clock) -> Iterator[Event]:
    """A track for each queue pair, with the rank that sends where that is known."""
    left = MAX_COUNTER_EVENTS
    for each in sorted(rates, key=lambda series: -len(series.times_ns)):
        left -= len(each.times_ns)
        if left < 0:
            return
        process = FABRIC_PROCESS if each.source is None else process_of(each.source)
        for time_ns, rate_bps in zip(each.times_ns, each.rates_bps, strict=True):
            if time_ns >= clock.origin_ns:
                yield {
                    "ph": "C",
                    "pid": process,
                    "ts": clock.microseconds(time_ns),
                    "name": f"rate of {each.name}",
                    "args": {"rate_gbps": rate_bps / 1e9},
                }


def _fault_instants(run: Run, clock: _Clock) -> Iterator[Event]:
    """Instants at which faults begin and end, on the first rank's main thread."""
    for span in fault_spans(run):
        for time_ns, word in ((span.start_ns, "begins"), (span.end_ns, "ends")):
            if time_ns is not None and time_ns >= clock.origin_ns:
                yield {
                    "ph": "i",
                    "s": "g",
                    "pid": process_of(0),
                    "tid": thread_of(0),
                    "ts": clock.microseconds(time_ns),
                    "name": f"{span.what} {word}",
                    "cat": "fault",
                    "args": {},
                }


def _notification_instants(found: Sequence[Notifications], clock: _Clock) -> Iterator[Event]:
    """An instant on the main thread of the rank that is told to slow down."""
    for each in found:
        if each.rank is None:
            continue
        for time_ns in each.times_ns:
            if time_ns >= clock.origin_ns:
                yield {
                    "ph": "i",
                    "s": "t",
                    "pid": process_of(each.rank),
                    "tid": thread_of(each.rank),
                    "ts": clock.microseconds(time_ns),
                    "name": "CNP",
                    "cat": "cnp",
                    "args": {"from_rank": each.peer, "queue_pair": each.qpn},
                }
