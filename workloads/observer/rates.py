"""The time of an operation: by a device's roofline (Williams et al., CACM 2009), or by a trace."""

from __future__ import annotations

from typing import Any


class Device:
    """A roofline, from the plan of a run: rates per second, times in nanoseconds."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._flops_16bit: float = plan["flops_16bit_per_s"]
        self._flops_32bit: float = plan["flops_32bit_per_s"]
        self._memory_bytes: float = plan["memory_bytes_per_s"]
        self._overhead_ns: int = plan["overhead_ns"]

    def time_ns(self, flops: int, moved_bytes: int, item_bytes: int) -> int:
        """Rates that `compute` of a spec gives a kernel (topologies/spec/compute_section.py)."""
        peak = self._flops_16bit if item_bytes <= 2 else self._flops_32bit
        seconds = max(flops / peak, moved_bytes / self._memory_bytes)
        return round(seconds * 1e9) + self._overhead_ns


class Recorded:
    """The times of operations in a trace: [name, shapes, nanoseconds] of each."""

    def __init__(self, times: list[list[Any]]) -> None:
        self._times: dict[tuple[Any, ...], int] = {}
        self._shapes: dict[str, list[Any]] = {}
        for name, shapes, time_ns in times:
            self._times[name, tuple(map(tuple, shapes))] = time_ns
            self._shapes.setdefault(name, []).append(shapes)

    def time_ns(self, name: str, shapes: tuple[tuple[int, ...], ...]) -> int | None:
        """None for what the trace lacks."""
        return self._times.get((name, shapes))

    def missing(self, name: str, shapes: tuple[tuple[int, ...], ...]) -> str:
        """The words for an operation that the trace lacks."""
        known = self._shapes.get(name)
        has = "no operation of that name" if known is None else f"it of {known[:4]}"
        return f"the trace lacks {name} of {[list(shape) for shape in shapes]}; it has {has}"


class NotInTrace(RuntimeError):
    """An operation that is to be charged and that nothing tells the time of."""
