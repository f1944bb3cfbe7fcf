"""What torch waits for by itself at the end of a backward pass.

DDP's reducer posts a bucket's collective when the bucket's gradients are there. When all are, it
waits for the buckets, in order, before the pass returns (torch/csrc/distributed/c10d/reducer.cpp,
`finalize_backward`). The autograd engine calls it as a final callback, and what was asked for
before it is called before it. `observer.py` beside this file loads it; it imports nothing but the
standard library, the module beside it and the program's own torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from .works import add_wait

_ENGINE = ("autograd/graph.py", "autograd/__init__.py")
"""Where torch calls the engine from, by release."""
_DISPATCHER = ("torch/_ops.py", "torch/utils/_python_dispatch.py")
"""What stands between where a mode of torch's dispatcher is on, as for charging."""
_BACKEND = "torch_backend"
"""Groundwire's own, which a reducer calls as it does Gloo."""


class Reduced:
    """The collectives of one backward pass at a time."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._pass = -1
        self._final_ns: int | None = None

    def by_torch(self) -> bool:
        """Whether what is being posted comes from within a backward pass, and from no Python of
        the program's, such as a hook."""
        import torch

        if torch._C._current_graph_task_id() == -1:
            return False
        frame = sys._getframe(1)
        own = frame.f_code.co_filename.rpartition("/")[0]
        while frame is not None:
            name = frame.f_code.co_filename
            passes_on = name.rpartition("/")[0] == own or name.endswith(_DISPATCHER)
            if not passes_on and _BACKEND not in name:
                return name.endswith(_ENGINE)
            frame = frame.f_back  # type: ignore[assignment]
        return False

    def begin(self, settle: Callable[[], None]) -> None:
        """A collective of a pass is about to be posted; `settle` has the time pass that is owed."""
        import torch
        from torch.autograd import Variable

        now = torch._C._current_graph_task_id()
        if now == self._pass:
            return
        self.end()
        self._pass, self._records, self._final_ns = now, [], None

        def final() -> None:
            settle()
            self._final_ns = time.monotonic_ns()

        Variable._execution_engine.queue_callback(final)

    def posted(self, records: list[dict[str, Any]]) -> None:
        """These were posted, in order."""
        self._records += records

    def end(self) -> None:
        """Say in the records how long the pass waited for each, where it is over."""
        waiting_ns = self._final_ns
        if waiting_ns is None or any(record["end_ns"] is None for record in self._records):
            return
        for record in self._records:
            add_wait([record], waiting_ns, record["end_ns"])
            waiting_ns = max(waiting_ns, record["end_ns"])
        self._records, self._final_ns = [], None
