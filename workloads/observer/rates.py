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
        self._shares: dict[str, list[list[float]]] = plan["shares"]

    def time_ns(
        self,
        flops: int,
        moved_bytes: int,
        item_bytes: int,
        kind: str = "matrix",
        size: int | None = None,
    ) -> int:
        """Rates that `compute` of a spec gives a kernel (topologies/spec/compute_section.py).
        `kind` is that of its arithmetic, whose share goes by `size`, by default by its FLOP."""
        peak = self._flops_16bit if item_bytes <= 2 else self._flops_32bit
        arithmetic = flops / peak / self._share(kind, flops if size is None else size)
        memory = moved_bytes / self._memory_bytes / self._share("memory", moved_bytes)
        return round(max(arithmetic, memory) * 1e9) + self._overhead_ns

    def _share(self, kind: str, size: int) -> float:
        steps = self._shares.get(kind)
        return 1.0 if steps is None else next(share for least, share in steps if size >= least)


def attention_of(name: str, shapes: list[tuple[int, ...]]) -> tuple[str, int] | None:
    """The kind and the sequence's length of fused attention, by an operation's name and the shapes
    of its tensors; None for other operations."""
    scaled = "scaled_dot_product" in name
    if not scaled and "flash_attention" not in name:
        return None
    backward = "backward" in name
    query = shapes[backward] if len(shapes) > backward else ()
    if len(query) != 4:
        return None
    return "attention_backward" if backward else "attention", query[2 if scaled else 1]


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
