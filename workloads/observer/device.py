"""The doings of a rank's virtual GPUs, for its log: when collectives ran on their streams, how long
streams waited for them, when kernels ran, and when an iteration's last one was over.

All that is known when the program ends, as the host of a GPU does not wait for it. `observer.py`
beside this file loads it; it asks the compiled part of `workloads/virtual_gpu`.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import Any

from .works import add_wait

_MODULE = "_groundwire_gpu"
_PHASES = ("forward", "backward", "optimizer")
KERNEL_COLUMNS = (
    "device", "stream", "operator", "phase", "launched_ns", "start_ns", "end_ns", "flops", "bytes",
    "number", "after",
)  # fmt: skip
_TOLD = (
    "{count:,} times {name} read values that have no contents, and was given zeros",
    "{count:,} times {name} sorted values without contents, and was given random indices",
    "{count:,} times {name} computed from zeros, as contents would tell the shape of its result",
)


def compiled_part() -> Any:
    """The module; None in a process without virtual GPUs."""
    return sys.modules.get(_MODULE)


class DeviceLog:
    """The lines of one rank's log that its virtual GPUs are to complete."""

    def __init__(self, contents: str) -> None:
        self._contents = contents
        self._posted: list[tuple[Any, list[dict[str, Any]]]] = []
        self._programs: Counter[str] = Counter()
        """How many collectives of each group have run as programs, which take no tag of Gloo's."""
        self._fell_back: Counter[str] = Counter()
        """The collectives that the spec's algorithm does not fit, by why."""
        self._steps: list[Any] = []
        self._lookups: list[dict[int, int]] = []
        self._launched_ns: list[int] = []
        self._launches: list[int] = []

    def posted(self, work: Any, records: list[dict[str, Any]]) -> bool:
        """Take over an operation that runs on a stream. False for others."""
        collective = getattr(work, "collective", None)
        if collective is None:
            return False
        self._posted.append((collective, records))  # and not the work, which holds its results
        return True

    def sizes(self, records: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
        """The bytes that are sent of operations that have just been posted."""
        collective, _ = self._posted[-1]
        sizes = collective.sizes[-len(records) :]
        return [
            (record, record["size_bytes"] * sent // whole if whole else 0)
            for record, (whole, sent) in zip(records, sizes, strict=False)
        ]

    def optimizing(self, begins: bool) -> None:
        """An optimizer begins its step, or has made it."""
        gpu = compiled_part()
        if gpu is not None:
            gpu.set_optimizing(begins)

    def stepped(self) -> None:
        """An iteration's last kernel has been launched."""
        gpu = compiled_part()
        self._steps.append(gpu.record(-1))
        self._lookups.append(gpu.take_lookups())
        self._launched_ns.append(gpu.host_now_ns())
        self._launches.append(gpu.next_number())

    def lines(self) -> list[dict[str, Any]]:
        """All lines, in order of their times, when the devices have done all they were given."""
        gpu = compiled_part()
        if gpu is None:
            return []
        devices = range(gpu.device_count())
        for device in devices:
            gpu.synchronize(device)
        lines = [*self._collectives(), *self._computed(gpu), *self._iterations(gpu)]
        lines.sort(key=lambda line: line.get("end_ns", 0))
        ends = [line["end_ns"] for line in lines if line["event"] in ("compute", "collective")]
        for line in lines:
            if line["event"] == "collective":
                line["known"] = bisect_right(ends, line["start_ns"])
        used = [device for device in devices if gpu.memory_statistics(device)["num_device_alloc"]]
        lines += [self._device(gpu, device) for device in used]
        return lines + self._notes(gpu)

    def _collectives(self) -> list[dict[str, Any]]:
        lines = []
        counted: Counter[int] = Counter()
        after = _after(compiled_part())
        for collective, records in self._posted:
            first = counted[id(collective)]  # operations that are coalesced have one
            counted[id(collective)] += len(records)
            own = slice(first, first + len(records))
            _tell_sizes(records, collective.sizes[own])
            for record, told in zip_longest(records, collective.told[own]):
                self._tell(record, told)
                record["number"] = collective.number
                record["after"] = after.get(collective.number, [])
                record["start_ns"], record["end_ns"] = collective.begin_ns, collective.end_ns
                record["stream"], record["posted_ns"] = collective.stream, collective.posted_ns
                if collective.end_ns >= 0:
                    lines.append(record)
                    continue
                kept = ("id", "kind", "group", "tag", "ranks", "iteration")
                lines.append(
                    {"event": "unfinished", "reason": None} | {key: record[key] for key in kept}
                )
            if first:
                continue
            for began_ns, ended_ns in collective.stalls:
                add_wait(records, began_ns, ended_ns)
        self._posted.clear()
        return lines

    def _tell(self, record: dict[str, Any], told: str | None) -> None:
        """Say in a record how the collective ran: in words of JSON, none for Gloo's own way. Gloo
        numbers those alone that it does itself."""
        label = record["group"]
        if record["tag"] is not None:
            record["tag"] -= self._programs[label]
        details = json.loads(told) if told else {}
        fell_back = details.pop("fell_back", "")
        if fell_back:
            self._fell_back[fell_back] += 1
        if "program" in details:
            self._programs[label] += 1
            record["tag"] = None
            record.pop("unpredicted", None)
            record.update(details)

    def _ends(self) -> list[int]:
        return [step.ns for step in self._steps]

    def _computed(self, gpu: Any) -> list[dict[str, Any]]:
        ends = self._ends()
        lines = []
        for _, stream, phase, begin_ns, end_ns, flops, moved, kernels in gpu.stretches():
            if stream != 0:
                continue
            iteration = sum(begin_ns >= end for end in ends)
            lines.append(
                {
                    "event": "compute", "name": _PHASES[phase], "phase": _PHASES[phase],
                    "iteration": iteration, "start_ns": begin_ns, "end_ns": end_ns,
                    "flops": flops, "bytes": moved, "operations": kernels,
                }
            )  # fmt: skip
        return lines

    def _iterations(self, gpu: Any) -> list[dict[str, Any]]:
        begins = [stretch[3] for stretch in gpu.stretches()]
        began_ns = min(begins, default=0)
        lines = []
        for index, end_ns in enumerate(self._ends()):
            line = {"event": "iteration", "index": index, "start_ns": began_ns, "end_ns": end_ns}
            line["launched_ns"] = self._launched_ns[index]
            line["launches"] = self._launches[index]
            looked_up = self._lookups[index]
            if looked_up:  # the words of a language model have the most rows
                line["tokens"] = looked_up[max(looked_up)]
            lines.append(line)
            began_ns = end_ns
        return lines

    def _device(self, gpu: Any, device: int) -> dict[str, Any]:
        allocated_bytes, reserved_bytes = gpu.highest_bytes(device)
        return {
            "event": "gpu",
            "device": device,
            "contents": self._contents,
            "memory_bytes": gpu.total_memory(),
            "peak_allocated_bytes": allocated_bytes,
            "peak_reserved_bytes": reserved_bytes,
            "kernels": {name: list(total) for name, total in sorted(gpu.totals().items())},
        }

    def write_kernels(self, path: str) -> None:
        """Write the kernels of this rank, each with its times (docs/formats.md), in the order of
        their ends on each stream."""
        gpu = compiled_part()
        if gpu is None:
            return
        with open(path, "w") as file:
            file.write(",".join(KERNEL_COLUMNS) + "\n")
            after = _after(gpu)
            kernels = iter(gpu.kernels())
            while some := list(islice(kernels, 10_000)):
                file.writelines(
                    f"{device},{stream},{name},{_PHASES[phase]},{','.join(map(str, figures))},"
                    f"{' '.join(map(str, after.get(figures[-1], ())))}\n"
                    for device, stream, name, phase, *figures in some
                )

    def _notes(self, gpu: Any) -> list[dict[str, Any]]:
        said = [
            words.format(name=name, count=count)
            for words, counts in zip(_TOLD, gpu.told(), strict=True)
            for name, count in sorted(counts.items())
        ]
        said += [
            f"the table lacks {what}: the roofline's time, {count:,} times"
            for what, count in sorted(gpu.not_in_table().items())
        ]
        said += [
            f"the spec's algorithm does not fit {why}: {count:,} times another one ran"
            for why, count in sorted(self._fell_back.items())
        ]
        return [{"event": "note", "text": text} for text in said]


def _after(gpu: Any) -> dict[int, list[int]]:
    """By the number of a launch those on other streams that it waits for."""
    found: dict[int, list[int]] = {}
    for number, before in gpu.dependencies():
        found.setdefault(number, []).append(before)
    return found


def _tell_sizes(records: list[dict[str, Any]], sizes: list[tuple[int, int]]) -> None:
    """Where not all of a message is sent, its record has the size of what is, and beside it that of
    the whole. `sizes` are those of what each operation brings, or gets, whole and sent."""
    for record, (whole, sent) in zip(records, sizes, strict=False):
        if sent != whole:
            record["payload_bytes"] = record["size_bytes"]
            record.pop("parts_bytes", None)  # each is scaled by itself
            record["size_bytes"] = record["size_bytes"] * sent // whole
