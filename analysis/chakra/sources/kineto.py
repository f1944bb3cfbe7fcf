"""PyTorch's profiles of GPUs (Kineto's Chrome traces) as graphs, of runs on NCCL.

`torch.profiler` writes one for each rank. Its kernels have streams and times, those of NCCL also
what they communicate and in which process group; `recorded.py` makes a graph of them. Where a
kernel does not say it (older versions of PyTorch, and messages that go together), the host's
`record_param_comms` that launched it does, and at last the file of ExecutionTraceObserver beside
the profile.

Source: pytorch/kineto, libkineto/src/output_json.cpp (keys of an event), pytorch/pytorch,
torch/csrc/profiler/util.cpp (what collectives say).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import Graph
from analysis.chakra.sources.nccl_calls import (
    ELEMENT_BYTES,
    NcclCall,
    communicates,
    is_message,
    peer_of,
)
from analysis.chakra.sources.recorded import HOST_WAITS, Communication, Kernel, RecordedDevice

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime")
_RECORDED = "record_param_comms"
_MOST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class _HostCall:
    """A `record_param_comms` of the host: when, on which thread, and its arguments."""

    start_ns: int
    end_ns: int
    thread: str
    place: int
    words: Mapping[str, Any]


def read_kineto(
    document: Mapping[str, Any], path: Path, observed: Mapping[int, NcclCall] | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """A rank's graph, and notes on what is read otherwise than it stands there.

    `observed` are the calls of the observer's file of the same run, by the id of their record
    function. Raises ChakraError naming the event at fault.
    """
    return _Profile(document, path, observed or {}).read()


class _Profile:
    def __init__(
        self, document: Mapping[str, Any], path: Path, observed: Mapping[int, NcclCall]
    ) -> None:
        self._path = path
        self._observed = observed
        events = document.get("traceEvents")
        if not isinstance(events, list):
            raise ChakraError(path, None, "traceEvents: expected a list of events")
        self._events = events
        self._groups, self._rank = self._distributed(document.get("distributedInfo"))
        self._uneven = 0
        self._streams: set[int] = set()

    def read(self) -> tuple[Graph, tuple[str, ...]]:
        launches: dict[str, tuple[int, str]] = {}
        device = RecordedDevice()
        kernels: list[tuple[int, Mapping[str, Any]]] = []
        calls: list[_HostCall] = []
        for place, event in enumerate(self._events):
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            category = event.get("cat")
            if category in _DEVICE:
                kernels.append((place, event))
            elif category in _HOST:
                start_ns, _ = self._times(place, event)
                name = str(event.get("name"))
                if any(word in name for word in HOST_WAITS):
                    device.waits_ns.append(start_ns)
                correlation = self._words(place, event).get("correlation")
                if correlation is not None:
                    launches[str(correlation)] = start_ns, str(event.get("tid"))
            elif event.get("name") == _RECORDED:
                start_ns, end_ns = self._times(place, event)
                words = self._words(place, event)
                calls.append(_HostCall(start_ns, end_ns, str(event.get("tid")), place, words))
        if not kernels:
            self._fail(None, "has no kernels of a device: record it with ProfilerActivity.CUDA")
        self._one_device(kernels)
        within: list[tuple[int, int]] = []
        claims = _Claims(calls)
        told = [self._timed(place, event, launches) for place, event in kernels]
        for place, event, kernel, thread in sorted(told, key=lambda one: one[2].launch_ns):
            words = self._words(place, event)
            if not _is_nccl(event, words):
                device.compute.append(kernel)
                continue
            parts = []
            for call in self._calls(place, words, claims.of(kernel.launch_ns, thread), within):
                self._uneven += call.uneven
                try:
                    parts.append(call.part(self._rank))
                except ValueError as error:
                    self._fail(place, f"{event.get('name')}: {error}")
            device.communication.append(Communication(kernel, tuple(parts)))
        own = sorted(within)
        device.waits_ns = [at for at in device.waits_ns if not _inside(at, own)]
        return device.graph(), tuple(self._notes(device))

    def _notes(self, device: RecordedDevice) -> Iterator[str]:
        streams = {kernel.stream for kernel in device.compute}
        if len(streams) > 1:
            yield (
                f"it computes on {len(streams)} streams; what overlaps there is one stretch of "
                "computation here"
            )
        if self._uneven:
            yield (
                f"{self._uneven} all-to-alls have unequal parts; they are read with equal ones of "
                "the same bytes in all"
            )

    def _calls(
        self,
        place: int,
        words: Mapping[str, Any],
        recorded: list[_HostCall],
        within: list[tuple[int, int]],
    ) -> list[NcclCall]:
        """The communication of a kernel: by itself, else by what its host recorded."""
        name = words.get("Collective name")
        own = communicates(str(name)) and self._sized(words)
        # Messages that go together are one kernel, which says one of them at most.
        together = [call for call in recorded if is_message(str(self._name(call)))]
        if own and len(together) < 2:
            within += [(call.start_ns, call.end_ns) for call in recorded]
            return [self._call(place, words)]
        found: list[NcclCall] = []
        for call in recorded:
            seen = self._observed.get(_whole(call.words.get("Record function id")))
            known = communicates(str(call.words.get("Collective name")))
            if known and self._sized(call.words):
                found.append(self._call(call.place, call.words))
            elif seen is not None and communicates(seen.name):
                found.append(seen)
            else:
                continue
            within.append((call.start_ns, call.end_ns))
        if not found:
            self._fail(
                place,
                f"{self._events[place].get('name')} says neither what it communicates nor in which "
                "process group: put the file of ExecutionTraceObserver beside the profile, as "
                "PREFIX.RANK.et.json",
            )
        return found

    def _name(self, call: _HostCall) -> str | None:
        seen = self._observed.get(_whole(call.words.get("Record function id")))
        return call.words.get("Collective name") or (None if seen is None else seen.name)

    def _sized(self, words: Mapping[str, Any]) -> bool:
        return "In msg nelems" in words and "dtype" in words

    def _call(self, place: int, words: Mapping[str, Any]) -> NcclCall:
        ranks = self._ranks(place, words)
        name = str(words["Collective name"])
        dtype = str(words.get("dtype")).lower()
        if dtype not in ELEMENT_BYTES:
            self._fail(place, f"dtype: found {words.get('dtype')!r}, allowed a type of PyTorch")
        position = _whole(words.get("Rank"), -1)
        peer = None
        if is_message(name):
            told = words.get("Dst Rank" if name == "send" else "Src Rank")
            try:
                peer = _whole(told) if told is not None else peer_of(position, ranks)
            except ValueError as error:
                self._fail(place, f"Rank: {error}")
        splits = [*_list(words.get("In split size")), *_list(words.get("Out split size"))]
        return NcclCall(
            name,
            self._number(place, words, "In msg nelems"),
            self._number(place, words, "Out msg nelems"),
            ELEMENT_BYTES[dtype],
            ranks,
            position if 0 <= position < len(ranks) else 0,
            peer,
            len(set(splits)) > 1,
        )

    def _ranks(self, place: int, words: Mapping[str, Any]) -> tuple[int, ...]:
        """The ranks of a call's group: as its event lists them, else as the profile does."""
        listed = words.get("Process Group Ranks")
        name = str(words.get("Process Group Name", ""))
        if (isinstance(listed, str) and "..." in listed) or listed in (None, "", "[]", []):
            if name in self._groups:
                return self._groups[name]
            start = _whole(words.get("Global rank start"), -1)
            stride, size = _whole(words.get("Global rank stride"), 1), words.get("Group size")
            if start >= 0 and isinstance(size, int) and 0 < size <= 1 << 20:
                return tuple(range(start, start + stride * size, max(stride, 1)))
            self._fail(
                place,
                f"Process Group Ranks: found {listed!r}, and distributedInfo has no group {name!r}",
            )
        ranks = tuple(_list(listed))
        if not ranks or len(set(ranks)) != len(ranks) or min(ranks) < 0:
            self._fail(place, f"Process Group Ranks: found {listed!r}, expected ranks")
        return ranks

    def _distributed(self, about: object) -> tuple[dict[str, tuple[int, ...]], int]:
        """The groups by name, and the rank. A profile without them is of one process."""
        if not isinstance(about, dict):
            self._fail(None, "has no distributedInfo, which says which rank it is")
        rank = about.get("rank")
        world = about.get("world_size")
        if not isinstance(rank, int) or not isinstance(world, int) or not 0 <= rank < world:
            self._fail(
                None,
                f"distributedInfo: found rank {rank!r} of world_size {world!r}, expected numbers",
            )
        groups: dict[str, tuple[int, ...]] = {}
        listed = about.get("pg_config")
        for group in listed if isinstance(listed, list) else ():
            if isinstance(group, dict):
                ranks = tuple(_list(group.get("ranks"))) or tuple(range(world))
                groups[str(group.get("pg_name"))] = ranks
        return groups, rank

    def _one_device(self, kernels: list[tuple[int, Mapping[str, Any]]]) -> None:
        devices = {str(self._words(place, event).get("device")) for place, event in kernels}
        if len(devices) > 1:
            found = ", ".join(sorted(devices))
            self._fail(None, f"has kernels of devices {found}; one device for each rank is read")

    def _timed(
        self, place: int, event: Mapping[str, Any], launches: Mapping[str, tuple[int, str]]
    ) -> tuple[int, Mapping[str, Any], Kernel, str]:
        start_ns, end_ns = self._times(place, event)
        words = self._words(place, event)
        launch_ns, thread = launches.get(str(words.get("correlation")), (start_ns, ""))
        stream = _whole(words.get("stream", event.get("tid")), 0)
        kernel = Kernel(
            str(event.get("name"))[:80], stream, min(launch_ns, start_ns), start_ns, end_ns
        )
        return place, event, kernel, thread

    def _times(self, place: int, event: Mapping[str, Any]) -> tuple[int, int]:
        """Nanoseconds, of the microseconds and their fractions in the file."""
        found = []
        for key in ("ts", "dur"):
            value = event.get(key, 0)
            if isinstance(value, str):
                try:
                    value = float(value)
                except ValueError:
                    value = None
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value * 1000 < _MOST_NS:
                self._fail(place, f"{key}: found {event.get(key)!r}, expected microseconds")
            found.append(round(value * 1000))
        return found[0], found[0] + found[1]

    def _words(self, place: int, event: Mapping[str, Any]) -> Mapping[str, Any]:
        words = event.get("args", {})
        if not isinstance(words, dict):
            self._fail(place, f"args: found {type(words).__name__}, expected an object")
        return words

    def _number(self, place: int, words: Mapping[str, Any], key: str) -> int:
        value = words.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._fail(place, f"{key}: found {value!r}, expected a whole number")
        return value

    def _fail(self, place: int | None, what: str) -> NoReturn:
        where = "" if place is None else f"event {place}: "
        raise ChakraError(self._path, None, f"{where}{what}")


class _Claims:
    """Which of the host's calls a kernel carries out: the one around its launch, else all since the
    last kernel of the thread."""

    def __init__(self, calls: list[_HostCall]) -> None:
        self._by_thread: dict[str, list[_HostCall]] = defaultdict(list)
        for call in sorted(calls, key=lambda one: (one.start_ns, -one.end_ns)):
            self._by_thread[call.thread].append(call)
        self._taken: set[int] = set()

    def of(self, launch_ns: int, thread: str) -> list[_HostCall]:
        calls = self._by_thread.get(thread, [])
        begun = bisect_right(calls, launch_ns, key=lambda call: call.start_ns)
        around = [call for call in calls[:begun] if call.end_ns >= launch_ns][-1:]
        name = around[0].words.get("Collective name") if around else None
        if around and (name is None or communicates(str(name))):
            self._taken.add(around[0].place)
            return around
        found: list[_HostCall] = []
        for call in reversed(calls[:begun]):
            if call.place in self._taken:
                break
            found.append(call)
        self._taken.update(call.place for call in found)
        return found[::-1]


def _is_nccl(event: Mapping[str, Any], words: Mapping[str, Any]) -> bool:
    if event.get("cat") != "kernel":
        return False
    name = str(event.get("name")).lower()
    return "Collective name" in words or name.startswith(("nccl", "rccl", "void nccl"))


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    place = bisect_right(spans, (at, _MOST_NS))
    return place > 0 and spans[place - 1][1] >= at


def _list(value: object) -> list[int]:
    """Numbers of a list, or of its text; none of what is neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, int) and not isinstance(item, bool)]


def _whole(value: object, otherwise: int = 0) -> int:
    """A number that may stand there as text."""
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
