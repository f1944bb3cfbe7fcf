"""The imports of a server that forks ranks: torch, once for all of them.

A guest takes seconds for it, as it has one core and reads every file of the host for the first
time. So what ranks never use is left out.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from collectives.garbage import uncollected

# Functions that tell the shapes of tensors without any data (device "meta"): modules that only
# register them, a fifth of torch's import. Ranks have tensors with data.
_LEFT_OUT = frozenset({"torch._meta_registrations", "torch.distributed._meta_registrations"})
_MCL_CURRENT, _MCL_ONFAULT = 1, 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_libc = ctypes.CDLL(None, use_errno=True)


class _Empty(MetaPathFinder, Loader):
    """Finds modules of these names, with nothing in them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in _LEFT_OUT else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        pass


def prepare_torch() -> None:
    """In a server: import what ranks inherit, and keep it in memory."""
    # Intra-op threads would contend for the cores that carry the fabric, and a pool does not
    # survive a fork. Backends that others have installed are not ours to start.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    with _imports():
        import torch

        import workloads.execution.rank  # noqa: F401  (so that ranks inherit it)
        from workloads.execution.payload.tensors import shared_piece

        shared_piece()
    torch.set_num_threads(1)
    _keep_freed_memory()
    # The pages of Python and torch that ranks share stay in memory. Else a guest that is too small
    # drops and rereads them for ever, and never says so. Best effort: a host may forbid it.
    _libc.mlockall(_MCL_CURRENT | _MCL_ONFAULT)


def renew_thread_pool() -> None:
    """In a process just forked, while it has one thread: have torch make its pool of threads anew.

    Else it does so at its first use, and takes no lock for it (leak_corrupted_threadpool of
    caffe2/utils/threadpool/pthreadpool-cpp.cc): of two threads that come at once, one finds none
    and raises "Invalid thread pool!".
    """
    import torch

    torch.set_num_threads(1)


@contextmanager
def inherited() -> Iterator[None]:
    """Objects that forked processes inherit. The collector does not look at them, now or later: it
    would write to, and so copy, every inherited page."""
    with uncollected():
        try:
            yield
        finally:
            gc.freeze()


@contextmanager
def _imports() -> Iterator[None]:
    """Imports without what is left out."""
    empty = _Empty()
    sys.meta_path.insert(0, empty)
    try:
        with inherited():
            yield
    finally:
        sys.meta_path.remove(empty)


def _keep_freed_memory() -> None:
    """Have malloc use large blocks again instead of giving them back: in the virtual kernel the
    first touch of a page costs more than anything that is done with it (mallopt(3))."""
    for parameter, value in ((_M_MMAP_THRESHOLD, 32 << 20), (_M_TRIM_THRESHOLD, 1 << 30)):
        _libc.mallopt(parameter, value)
