"""Has a program that asks torch for Gloo get programs in its place, where the run's spec says so.

`observer.py` beside this file loads it. It imports the program's own torch, and Groundwire's
backend, for which the program's Python needs what Groundwire needs (numpy, pydantic, PyYAML).
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

_GLOO = re.compile(r"\bgloo\b", re.IGNORECASE)
_BACKEND = "groundwire"


def by_programs(c10d: Any, root: str) -> tuple[Any, Any]:
    """`init_process_group` and `new_group` of a `torch.distributed.distributed_c10d`, with the
    backend groundwire in Gloo's place. `root` is where Groundwire's packages lie. Both raise
    ImportError where this Python cannot have that backend."""
    init, new = c10d.init_process_group, c10d.new_group

    @functools.wraps(init)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        _register(root)
        return init(_BACKEND if backend is None else _exchanged(backend), *args, **kwargs)

    @functools.wraps(new)
    def new_group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        return new(ranks, timeout, _exchanged(backend), *args, **kwargs)

    return init_process_group, new_group


def _exchanged(backend: Any) -> Any:
    return None if backend is None else _GLOO.sub(_BACKEND, str(backend))


def _register(root: str) -> None:
    if root not in sys.path:
        sys.path.append(root)
    try:
        from workloads.torch_backend.registration import register
    except ImportError as error:
        raise ImportError(
            f"collectives.backend: programs: {sys.executable} lacks a package that the backend "
            f"groundwire needs ({error}); expected a Python in which Groundwire is installed"
        ) from error
    register()
