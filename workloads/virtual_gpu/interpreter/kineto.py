"""Kernels and collectives of a device as events of a Kineto profile, as torch.profiler writes it
where CUPTI tells of them.

Source: pytorch/kineto, libkineto/src/output_json.cpp (events and their keys); pytorch/pytorch,
torch/csrc/profiler/util.cpp (saveNcclMeta: the words of NCCL's kernels).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Event = dict[str, Any]
Microseconds = Callable[[int], float]
"""From nanoseconds of a run to microseconds of a profile."""

_COPIES = {"copy to device": "Memcpy HtoD", "copy to host": "Memcpy DtoH"}
_DEFAULT_STREAM = 7
"""CUPTI's number of CUDA's default stream; others follow it."""
_LAUNCH_US = 0.001
"""A launch takes the host's time only where the run says so."""


class KernelEvent(NamedTuple):
    """A kernel, or a copy between the host and the device; nanoseconds."""

    device: int
    stream: int
    operator: str
    phase: str
    launched_ns: int
    start_ns: int
    end_ns: int
    flops: int
    bytes: int
    number: int = -1
    """Among the launches of its process."""
    after: tuple[int, ...] = ()
    """Launches on other streams that it waits for."""


class CommunicationEvent(NamedTuple):
    """A collective or a message on a stream; `name` is torch's (`allreduce`, `_allgather_base`),
    `root` a position in the group, `peer` the rank at the other end of a message."""

    device: int
    stream: int
    name: str
    group: str
    ranks: tuple[int, ...]
    type: str
    in_elements: int
    out_elements: int
    launched_ns: int
    start_ns: int
    end_ns: int
    root: int = 0
    peer: int | None = None


def device_events(
    kernels: Iterable[KernelEvent],
    communications: Iterable[CommunicationEvent],
    process: int,
    thread: int,
    microseconds: Microseconds,
    first_correlation: int = 1,
) -> Iterator[Event]:
    """The rows of a device's streams, each item with its launch by a thread of a process."""
    streams: dict[tuple[int, int], None] = {}
    number = first_correlation
    calls = ((each, _kernel(each)) for each in kernels)
    messages = ((each, _communication(each)) for each in communications)
    for source in (calls, messages):
        for each, (category, runtime, name, words) in source:
            stream = each.stream + _DEFAULT_STREAM
            streams[each.device, stream] = None
            start_us = microseconds(each.start_ns)
            launched_us = microseconds(each.launched_ns)
            about = {"External id": number, "correlation": number}
            host = {"ph": "X", "pid": process, "tid": thread, "ts": launched_us, "dur": _LAUNCH_US}
            yield {**host, "cat": "cuda_runtime", "name": runtime, "args": about}
            device = {"pid": each.device, "tid": stream, "ts": start_us}
            place = {"device": each.device, "context": 1, "stream": stream}
            took_us = round(microseconds(each.end_ns) - start_us, 3)
            yield {
                **device, "ph": "X", "cat": category, "name": name, "dur": max(took_us, 0.0),
                "args": about | place | words,
            }  # fmt: skip
            arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
            yield {**arrow, "ph": "s", "pid": process, "tid": thread, "ts": launched_us}
            yield {**arrow, **device, "ph": "f", "bp": "e"}
            number += 1
    yield from _names(streams)


def _kernel(kernel: KernelEvent) -> tuple[str, str, str, dict[str, Any]]:
    copied = _COPIES.get(kernel.operator)
    if copied is not None:
        return "gpu_memcpy", "cudaMemcpyAsync", copied, {"bytes": kernel.bytes}
    words = {"flops": kernel.flops, "bytes": kernel.bytes, "phase": kernel.phase}
    return "kernel", "cudaLaunchKernel", kernel.operator, words


def _communication(call: CommunicationEvent) -> tuple[str, str, str, dict[str, Any]]:
    words: dict[str, Any] = {
        "Collective name": call.name,
        "In msg nelems": call.in_elements,
        "Out msg nelems": call.out_elements,
        "Group size": len(call.ranks),
        "dtype": call.type,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": call.group,
        "Process Group Description": call.group,
        "Process Group Ranks": json.dumps(list(call.ranks)),
        "Rank": call.root,
    }
    if call.peer is not None:
        words["Dst Rank" if call.name == "send" else "Src Rank"] = call.peer
    parts = call.name.strip("_").replace("_base", "").split("_")
    kernel = "".join(part.capitalize() for part in parts)
    return "kernel", "cudaLaunchKernelExC", f"ncclDevKernel_{kernel}", words


def _names(streams: Iterable[tuple[int, int]]) -> Iterator[Event]:
    told = set()
    for device, stream in sorted(streams):
        if device not in told:
            told.add(device)
            yield _metadata("process_name", device, 0, {"name": "python"})
            yield _metadata("process_labels", device, 0, {"labels": f"GPU {device}"})
            yield _metadata("process_sort_index", device, 0, {"sort_index": 5_000_000 + device})
        yield _metadata("thread_name", device, stream, {"name": f"stream {stream}"})
        yield _metadata("thread_sort_index", device, stream, {"sort_index": stream})


def _metadata(name: str, process: int, thread: int, words: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0.0, "args": words}
