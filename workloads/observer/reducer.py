"""The waits of torch itself at the end of a backward pass.

DDP's reducer posts a bucket's collective when the bucket's gradients are there, itself or by a
communication hook. When all are, it waits for the buckets before the pass returns
(torch/csrc/distributed/c10d/reducer.cpp, `finalize_backward`). The autograd engine calls it as a
final callback, one after the other: between a callback that is asked for when the first collective
is posted and one that is asked for in that one, the reducer waits. `observer.py` beside this file
loads it; it imports nothing but the module beside it, the standard library and the program's torch.
"""

from __future__ import annotations

from collections.abc import Callable

from .works import Works


class BackwardPasses:
    """`settle` has the time pass that is owed for computing."""

    def __init__(self, works: Works, settle: Callable[[], None]) -> None:
        self._works, self._settle = works, settle
        self._pass = -1

    def posting(self) -> None:
        """A collective is about to be posted, in a backward pass or elsewhere."""
        import torch

        now = torch._C._current_graph_task_id()
        if now not in (-1, self._pass):
            self._pass = now
            _at_the_end(self._computed)

    def _computed(self) -> None:
        """All gradients of the pass are there."""
        self._settle()
        _at_the_end(self._works.wait_from_now())


def _at_the_end(call: Callable[[], None]) -> None:
    """Have the engine call something after what it was asked to call before."""
    from torch.autograd import Variable

    Variable._execution_engine.queue_callback(call)
