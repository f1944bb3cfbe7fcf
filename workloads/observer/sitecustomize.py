"""Has a program's Python load the observer of its rank.

Python imports a module of this name at its start, when it finds one (`site` in its documentation).
The modules beside this one are loaded by their files, as of a package that no program has.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

_PLAN_VARIABLE = "GROUNDWIRE_OBSERVE"
_PACKAGE = "groundwire_observer"
_GPUS = "groundwire_virtual_gpu"
_GROUPS, _SPAWN = "torch.distributed.distributed_c10d", "torch.multiprocessing.spawn"
_JAX_PROFILER = "jax._src.profiler"
_LINGERS_S = 0.1
"""About what a Python with torch takes to end, where computing takes time."""


def _load(name: str) -> Any:
    """The module of this name beside this one, of a package that is this directory."""
    if _PACKAGE not in sys.modules:
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
        sys.modules[_PACKAGE] = package
    return importlib.import_module(f"{_PACKAGE}.{name}")


class _Finder(importlib.abc.MetaPathFinder):
    """Calls `told` with a module that the program has imported; once."""

    def __init__(self, name: str, told: Callable[[Any], None]) -> None:
        self._name, self._told = name, told

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            self._told(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _watch_steps(observer: Any, profiler: Any) -> None:
    observer._quietly(_load("jax_steps").watch_steps, profiler, observer._add)


def _linger() -> None:
    """Rank 0 has the store that others may still ask, and ends as slowly as on any machine."""
    if os.environ.get("RANK") == "0" and _GROUPS in sys.modules:
        time.sleep(_LINGERS_S)


def _load_hidden() -> None:
    """Load the module of this name that would have been loaded without us."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _begin_gpus(plan: Any) -> None:
    """Before torch is imported: it is to find GPUs, and this rank the network of its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    package = types.ModuleType(_GPUS)
    package.__path__ = [os.path.join(os.path.dirname(here), "virtual_gpu", "interpreter")]
    sys.modules[_GPUS] = package
    importlib.import_module(f"{_GPUS}.place").enter(plan)
    importlib.import_module(f"{_GPUS}.loading").install(plan)


def _begin() -> None:
    file = os.environ.get(_PLAN_VARIABLE)
    if file is None or not os.path.exists(file):
        return
    observer = _load("observer").Observer(file)
    sys.modules[_PACKAGE].of_process = observer  # type: ignore[attr-defined]
    if observer.gpus is not None:
        _begin_gpus(observer.gpus)
    observer._quietly(_load("stacks").listen, os.path.join(os.path.dirname(file), "stacks"))
    if observer.virtual:
        atexit.register(_linger)  # goes last
    if observer.observes:
        sys.meta_path.insert(
            0, _Finder(_GROUPS, lambda module: observer._quietly(observer.watch, module))
        )
        sys.meta_path.insert(0, _Finder(_SPAWN, observer.meeting.watch_spawn))
        sys.meta_path.insert(
            0, _Finder(_JAX_PROFILER, lambda module: _watch_steps(observer, module))
        )
        atexit.register(observer.leave)
        atexit.register(observer.finish)  # goes first
    if observer.virtual:
        sys.meta_path.insert(0, _load("pace").Pace())


_begin()
_load_hidden()
