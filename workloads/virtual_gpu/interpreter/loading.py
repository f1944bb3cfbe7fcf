"""Has torch find a CUDA device in itself while it is being imported.

torch reads the registry of devices once, when `torch._C` is created. So the compiled part is
there before, and the names that a CPU wheel lacks are put into `torch._C` before torch's own
Python looks.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .stand_ins import StandIns, complete_deepspeed
from .triton_kernels import complete_autotuner, complete_jit

_LIBRARY = "_groundwire_gpu.so"
_NVML = "libnvidia-ml.so.1"
"""Whoever opens it by this name later, as pynvml does, gets the one that is there already."""
_MODULE = "_groundwire_gpu"
_OF_TORCH = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch.so", "libtorch_python.so")
_SETTLES_S = 0.05
"""In real time; about as long as autograd's thread takes to drop the objects of a last backward."""
CUDA_VERSION = "12.8"
"""The version of CUDA that scripts are told."""


def install(plan: dict[str, Any]) -> None:
    """Give the torch of this process the devices of a plan (`workloads/virtual_gpu/plan.py`)."""
    for name, then in (
        ("torch._inductor.compile_fx", _compile_without_kernels),
        ("torch.version", _tell_version),
        ("torch.storage", _complete_storages),
        ("deepspeed.ops.op_builder.builder", complete_deepspeed),
        ("triton.runtime.jit", _complete_triton(plan)),
        ("triton.runtime.autotuner", complete_autotuner),
    ):
        sys.meta_path.insert(0, _Finder(name, then))
    sys.meta_path.insert(0, _Finder("torch._C", lambda module: _complete(module, plan), plan))
    sys.meta_path.append(StandIns())


class _Loader(importlib.abc.Loader):
    def __init__(self, real: Any, then: Callable[[Any], None], plan: Any) -> None:
        self._real, self._then, self._plan = real, then, plan

    def create_module(self, spec: Any) -> Any:
        if self._plan is not None:
            own = os.path.join(os.path.dirname(spec.origin), "lib")
            for path in (os.path.join(own, name) for name in _OF_TORCH):
                if os.path.exists(path):
                    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            for name in (_LIBRARY, _NVML):
                path = os.path.join(self._plan["library"], name)
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        return self._real.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._real.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Calls `then` with a module when it has been imported; once."""

    def __init__(self, name: str, then: Callable[[Any], None], plan: Any = None) -> None:
        self._name, self._then, self._plan = name, then, plan

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then, self._plan)
        return spec


def _complete(C: Any, plan: dict[str, Any]) -> None:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    path = os.path.join(plan["library"], _LIBRARY)
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None and spec.loader is not None
    gpu = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = gpu
    spec.loader.exec_module(gpu)
    gpu.configure(plan)
    for name, shapes, types, time_ns in plan["times"]:
        gpu.add_time(name, shapes, types, time_ns)
    from .torch_c import complete

    complete(C, gpu, plan)
    with open(os.path.join(plan["library"], "operators.txt")) as file:
        gpu.take_over(file.read().split())


def _complete_triton(plan: dict[str, Any]) -> Callable[[Any], None]:
    def complete(module: Any) -> None:
        complete_jit(sys.modules[_MODULE], plan)(module)

    return complete


def _tell_version(module: Any) -> None:
    module.cuda = CUDA_VERSION


def _compile_without_kernels(module: Any) -> None:
    """Inductor would write kernels for Triton, which has no device."""

    def compile_fx(graph: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        registry = sys.modules["torch"]._dynamo.backends.registry
        return registry.lookup_backend("aot_eager")(graph, inputs)

    module.compile_fx = compile_fx


def _complete_storages(module: Any) -> None:
    """torch compiles two methods of storages for CPUs only."""
    atexit.register(time.sleep, _SETTLES_S)
    gpu = sys.modules[_MODULE]
    kind = module.UntypedStorage
    resize, make = kind.resize_, kind.__new__

    def resize_(storage: Any, size: int) -> Any:
        if storage.device.type != "cuda":
            return resize(storage, size)
        gpu.resize_storage(storage._cdata, int(size))
        return storage

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        torch = sys.modules["torch"]
        if device is None:
            return make(cls, *args, **kwargs)
        if torch.device(device).type != "cuda":
            return make(cls, *args, device=device, **kwargs)
        size = kwargs.get("size", 0)
        if args:
            size = args[0] if isinstance(args[0], int) else len(args[0])
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()

    kind.resize_, kind.__new__ = resize_, new
