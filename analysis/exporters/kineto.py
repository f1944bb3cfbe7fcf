"""Profiles of a run's virtual GPUs as torch.profiler writes them (Kineto), which Holistic Trace
Analysis and `groundwire trace import` read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from analysis.runs.kernels import read_kernels
from analysis.runs.records import CollectiveRecord, GpuRecord
from analysis.runs.run import RankLog, Run
from collectives.kinds import Kind
from workloads.virtual_gpu.interpreter.kineto import (
    CommunicationEvent,
    Event,
    device_events,
)

_NAMES: dict[str, str] = {
    Kind.ALL_REDUCE: "allreduce",
    Kind.ALL_GATHER: "_allgather_base",
    Kind.REDUCE_SCATTER: "_reduce_scatter_base",
}
_TYPES = {1: "Byte", 2: "BFloat16", 4: "Float", 8: "Long"}
"""The log has bytes of an element, and not its type: one of that size."""
_HOST_PROCESS, _HOST_THREAD = 100_000, 1


def write_kineto(folder: Path, run: Run) -> tuple[Path, ...]:
    """Write NAME.RANK.json of each rank into a folder, which is made if need be. Raises ValueError
    where the run has no virtual GPUs, RunError."""
    if not any(log.gpus for log in run.ranks):
        raise ValueError("has no virtual GPUs, and so no kernels with times (--gpus-per-host)")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for log in run.ranks:
        path = folder / f"{run.spec.name}.{log.rank}.json"
        encode = json.JSONEncoder(separators=(",", ":")).encode
        with path.open("w") as file:
            # With spaces, as Holistic Trace Analysis looks for `"rank": N` in the text.
            file.write(json.dumps(_head(run, log))[:-1])
            file.write(',"traceEvents":[\n')
            file.write(",\n".join(map(encode, _events(run, log))))
            file.write("\n]}\n")
        paths.append(path)
    return tuple(paths)


def _head(run: Run, log: RankLog) -> dict[str, object]:
    every = list(range(len(run.ranks)))
    groups = [("default", "default", every)]
    groups += [(each.name, each.mesh or each.name, each.ranks) for each in log.groups]
    config = {
        name: {
            "pg_name": name,
            "pg_desc": described,
            "backend_config": "cuda:nccl",
            "ranks": list(ranks),
            "pg_size": len(ranks),
            "group_count": len(groups),
        }
        for name, described, ranks in groups
    }
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": gpu.device, "name": run.spec.compute.device, "totalGlobalMem": gpu.memory_bytes}
            for gpu in log.gpus
        ],
        "distributedInfo": {
            "backend": "nccl",
            "rank": log.rank,
            "world_size": len(run.ranks),
            "pg_count": len(config),
            "pg_config": list(config.values()),
            "nccl_version": "2.27.5",
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "trace_name": f"{run.spec.name}.{log.rank}.json",
    }


def _events(run: Run, log: RankLog) -> Iterator[Event]:
    scale = run.environment.scale

    def microseconds(time_ns: int) -> float:
        return round(time_ns / scale / 1000, 3)

    host = {"pid": _HOST_PROCESS, "tid": _HOST_THREAD}
    names = (("process_name", f"python: rank {log.rank}"), ("thread_name", "thread 1 (python)"))
    for what, name in names:
        yield {**host, "ph": "M", "name": what, "ts": 0.0, "args": {"name": name}}
    kernels = list(read_kernels(run, log.rank))
    members = {each.name: tuple(each.ranks) for each in log.groups}
    everybody = tuple(range(len(run.ranks)))
    calls = [
        _communication(log, each, members.get(each.group) or tuple(each.ranks or everybody))
        for each in log.collectives
    ]
    places = sorted(
        [(each.launched_ns, each.start_ns, 0, i) for i, each in enumerate(kernels)]
        + [(each.launched_ns, each.start_ns, 1, i) for i, each in enumerate(calls)]
    )
    # A host launches in no time where nothing says otherwise, and steps are told apart by launches:
    # those of one instant follow each other by a nanosecond.
    launched_ns: dict[tuple[int, int], int] = {}
    every: list[tuple[int, int]] = []
    before_ns = -1
    for at_ns, start_ns, kind, i in places:
        before_ns = launched_ns[kind, i] = max(at_ns, before_ns + scale)
        every.append((start_ns, before_ns))
    kernels = [each._replace(launched_ns=launched_ns[0, i]) for i, each in enumerate(kernels)]
    calls = [each._replace(launched_ns=launched_ns[1, i]) for i, each in enumerate(calls)]
    began_ns = every[0][1] if every else 0
    for step in log.iterations:
        inside = [at_ns for start_ns, at_ns in every if start_ns < step.end_ns]
        ended_ns = max((began_ns, *inside)) + scale
        since_us = microseconds(began_ns)
        lasting = {"ts": since_us, "dur": round(microseconds(ended_ns) - since_us, 3)}
        name = f"ProfilerStep#{step.index}"
        yield {**host, **lasting, "ph": "X", "cat": "user_annotation", "name": name, "args": {}}
        began_ns = ended_ns
    yield from device_events(kernels, calls, _HOST_PROCESS, _HOST_THREAD, microseconds)


def _communication(
    log: RankLog, record: CollectiveRecord, ranks: tuple[int, ...]
) -> CommunicationEvent:
    elements = record.size_bytes // record.element_bytes
    share = elements // max(len(ranks), 1)
    name, brought, got, peer = _NAMES.get(record.kind, record.kind), elements, elements, None
    if record.kind == Kind.SEND_RECV:
        assert record.ranks is not None
        source, destination = record.ranks
        name, peer = ("send", destination) if log.rank == source else ("recv", source)
    elif record.kind == Kind.ALL_GATHER:
        brought = share
    elif record.kind == Kind.REDUCE_SCATTER:
        got = share
    return CommunicationEvent(
        _device(log.gpus),
        record.stream or 0,
        name,
        record.group,
        ranks,
        _TYPES.get(record.element_bytes, "Byte"),
        brought,
        got,
        record.start_ns if record.posted_ns is None else record.posted_ns,
        record.start_ns,
        record.end_ns,
        record.root,
        peer,
    )


def _device(gpus: tuple[GpuRecord, ...]) -> int:
    return gpus[0].device if gpus else 0
