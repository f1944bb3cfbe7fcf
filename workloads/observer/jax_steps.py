"""The steps that a program of JAX marks, as iterations: `jax.profiler.StepTraceAnnotation`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def watch_steps(profiler: Any, add: Callable[[dict[str, Any]], None]) -> None:
    """Have each step of `profiler` (the module jax._src.profiler) told as a line of the log."""
    annotation = profiler.StepTraceAnnotation
    enter, leave = annotation.__enter__, annotation.__exit__
    begun_ns: dict[int, int] = {}
    count = 0

    def entered(self: Any) -> Any:
        begun_ns[id(self)] = time.monotonic_ns()
        return enter(self)

    def left(self: Any, *exception: Any) -> Any:
        nonlocal count
        start_ns = begun_ns.pop(id(self), None)
        if start_ns is not None:
            end_ns = time.monotonic_ns()
            add({"event": "iteration", "index": count, "start_ns": start_ns, "end_ns": end_ns})
            count += 1
        return leave(self, *exception)

    annotation.__enter__, annotation.__exit__ = entered, left
