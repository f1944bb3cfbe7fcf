"""The operations of this rank that are under way: when they end, and who waits for them.

torch tells of the end of most works by their futures. It gives none to messages and to Gloo's
reduce-scatter. A thread waits for each of these, so that they end when they do, and not when the
program gets to waiting for them. The work of a message can be waited for once only, and that of a
reduce-scatter writes its output in the waiting. So the program waits for the thread first.

A rank waits in many ways: by a work, by a work's future, in an operation of torch's dispatcher
(`wait_tensor`, which DTensor and compiled code call), or within a call of C++ that returns when its
collectives are over. `observer.py` beside this file loads it; it imports nothing but the standard
library, the module beside it and the program's own torch.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .operations import below
from .posts import Post

_MOST_WATCHED = 512
"""So many threads wait for works at most; what is posted beyond that ends where it is awaited."""
_STACK_BYTES = 1 << 18
_LATE_NS = 1_000_000
"""A callback may tell of an end by so much after the wait for it returned, in real time."""

# Calls of C++ that post collectives, and return when these are over.
_BLOCKING = (
    ("torch.distributed", "_broadcast_coalesced"),
    ("torch.distributed", "_verify_params_across_processes"),
)
_BLOCKING_METHODS = (("Reducer", "_rebuild_buckets"),)
_FUNCTIONAL_MESSAGES = ("isend", "irecv", "batch_p2p_ops")


class Operation:
    """A work of torch's, and the collectives or the message that it carries out."""

    __slots__ = (
        "awaited", "ended_ns", "error", "future_taken", "has_future", "message", "over", "post",
        "records", "work",
    )  # fmt: skip

    def __init__(
        self,
        work: Any,
        records: list[dict[str, Any]],
        message: str | None,
        post: Post | None = None,
    ) -> None:
        """`message` is torch's name of the operation where it is one, `post` its line among the
        posts of the rank."""
        self.work, self.records, self.message, self.post = work, records, message, post
        self.ended_ns: int | None = None
        self.error: BaseException | None = None
        self.over: threading.Event | None = None
        """Is set when the thread that waits for it has come to its end; None: there is no such."""
        self.has_future = True
        self.awaited = False
        """Whether somebody waited for it by itself."""
        self.future_taken = False
        """Whether somebody may wait for it by its future."""


class Works:
    """`ended` is told of an operation at its end, in any thread, once. `settle` has the time pass
    that is owed for computing (`charging`). `waits` is told of what a thread begins to wait for,
    `leaves` of what it waits for no more though it is not over, and whether by an error."""

    def __init__(
        self,
        ended: Callable[[Operation], None],
        settle: Callable[[], None],
        waits: Callable[[Sequence[Operation]], None],
        leaves: Callable[[Sequence[Operation], bool], None],
    ) -> None:
        self._ended, self._settle, self._waiting, self._leaves = ended, settle, waits, leaves
        self._lock = threading.Lock()
        self._under_way: dict[int, Operation] = {}
        self._by_storage: dict[int, Operation] = {}
        self._watched = 0
        self._waits: list[tuple[int, int, Sequence[Operation], bool]] = []
        self._captures: list[tuple[list[Operation], bool]] = []
        self._functional = threading.local()
        self._library: Any = None
        self._wait: Any = None
        self._future_of: Any = None
        self.thread = threading.get_ident()
        """The rank's main thread: the one that made its process group."""
        self.unwatched = 0
        """How many works ended where they were awaited."""

    # -- operations --------------------------------------------------------------------------------

    def begin(self, operation: Operation, outputs: Any) -> None:
        """An operation was posted, which writes these tensors."""
        work = operation.work
        with self._lock:
            self._under_way[id(work)] = operation
            for tensor in outputs:
                if str(tensor.layout) == "torch.strided":  # others have no storage
                    self._by_storage[tensor.untyped_storage()._cdata] = operation
            for captured, _ in self._captures:
                captured.append(operation)
            waits = any(waits for _, waits in self._captures)
        if waits:
            self._waiting((operation,))
        try:
            future = self._future_of(work)
        except RuntimeError:
            operation.has_future = False
            if operation.message != "send":
                self._watch(operation)
            return
        future.add_done_callback(lambda told: self._told(operation, told))

    def left(self) -> list[Operation]:
        """The operations whose end was not seen; they are forgotten."""
        with self._lock:
            left = [each for each in self._under_way.values() if each.ended_ns is None]
            self._under_way = {
                key: each for key, each in self._under_way.items() if each.ended_ns is not None
            }
        return left

    def _told(self, operation: Operation, future: Any) -> None:
        now_ns = time.monotonic_ns()
        try:
            future.value()
        except Exception as error:
            operation.error = error
        self._end(operation, now_ns)
        self._forget(operation)

    def _end(self, operation: Operation, now_ns: int) -> None:
        with self._lock:
            if operation.ended_ns is not None:
                return
            operation.ended_ns = now_ns
        self._ended(operation)

    def _forget(self, operation: Operation) -> None:
        with self._lock:
            self._under_way.pop(id(operation.work), None)
            self._by_storage = {
                key: each for key, each in self._by_storage.items() if each is not operation
            }

    def _watch(self, operation: Operation) -> None:
        """Have a thread wait for a work."""
        import torch

        with self._lock:
            unable = self._watched >= _MOST_WATCHED
            if unable or getattr(self._functional, "messages", False):
                self.unwatched += unable
                return
            self._watched += 1
        over = operation.over = threading.Event()

        def watch() -> None:
            try:
                with torch.no_grad():
                    self._wait(operation.work)
            except BaseException as error:
                operation.error = error
            with self._lock:
                self._watched -= 1
            self._end(operation, time.monotonic_ns())
            over.set()
            if operation.message is None:
                self._forget(operation)

        before = threading.stack_size(_STACK_BYTES)
        try:
            _thread.start_new_thread(watch, ())
        finally:
            threading.stack_size(before)

    # -- waits -------------------------------------------------------------------------------------

    def install(self) -> None:
        """Be told of all that this process waits for."""
        import torch
        from torch._C import _distributed_c10d as c10d

        self._wait, self._future_of = c10d.Work.wait, c10d.Work.get_future
        wait, get_future, wait_future = c10d.Work.wait, c10d.Work.get_future, torch._C.Future.wait

        def observed_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            self._settle()
            operation = self._under_way.get(id(work))
            if operation is None:
                return wait(work, *args, **kwargs)
            return self._awaited(operation, lambda: wait(work, *args, **kwargs), *args, **kwargs)

        is_completed = c10d.Work.is_completed

        def yielding_is_completed(work: Any) -> bool:
            """No virtual time passes while a program asks and makes no system call."""
            completed = bool(is_completed(work))
            if not completed:
                os.sched_yield()
            return completed

        def observed_future(work: Any) -> Any:
            operation = self._under_way.get(id(work))
            if operation is not None:
                operation.future_taken = True
            return get_future(work)

        def observed_wait_future(future: Any) -> Any:
            self._settle()
            with self._lock:
                asked = [each for each in self._under_way.values() if each.future_taken]
            return self._within(asked, lambda: wait_future(future))

        c10d.Work.wait = observed_wait  # type: ignore[assignment,method-assign]
        c10d.Work.is_completed = yielding_is_completed  # type: ignore[assignment,method-assign]
        c10d.Work.get_future = observed_future  # type: ignore[assignment,method-assign]
        torch._C.Future.wait = observed_wait_future
        for module, name in _BLOCKING:
            self._observe_blocking(_module(module), name)
        for kind, name in _BLOCKING_METHODS:
            self._observe_blocking(getattr(c10d, kind, None), name)
        reducer = getattr(c10d, "Reducer", None)
        if hasattr(reducer, "_run_comm_hook"):
            self._observe_hook(reducer)
        self._observe_functional(torch)

    def _observe_blocking(self, owner: Any, name: str) -> None:
        call = getattr(owner, name, None)
        if call is None:
            return

        def blocking(*args: Any, **kwargs: Any) -> Any:
            self._settle()
            posted = self._capture([], waits=True)
            try:
                return self._within(posted, lambda: call(*args, **kwargs))
            finally:
                self._release(posted)

        setattr(owner, name, blocking)

    def _observe_hook(self, reducer: Any) -> None:
        """DDP's Join has the reducer post a bucket, and waits for the future."""
        run = reducer._run_comm_hook

        def run_comm_hook(*args: Any, **kwargs: Any) -> Any:
            posted = self._capture([], waits=False)
            try:
                return run(*args, **kwargs)
            finally:
                self._release(posted)
                for operation in posted:
                    operation.future_taken = True

        reducer._run_comm_hook = run_comm_hook

    def _capture(self, captured: list[Operation], *, waits: bool) -> list[Operation]:
        """Have all that is posted from now on put into this list as well; whether a thread waits
        for it at once."""
        with self._lock:
            self._captures.append((captured, waits))
        return captured

    def _release(self, captured: list[Operation]) -> None:
        with self._lock:
            self._captures = [each for each in self._captures if each[0] is not captured]

    def wait_from_now(self) -> Callable[[], None]:
        """The main thread may wait in C++ from now on until it calls what is returned: for what is
        under way, or is posted meanwhile."""
        with self._lock:
            asked = list(self._under_way.values())
        self._waiting(asked)
        self._capture(asked, waits=True)
        began_ns = time.monotonic_ns()

        def over() -> None:
            self._release(asked)
            self._leaves(asked, False)
            self._note(asked, began_ns, time.monotonic_ns(), whole=False)

        return over

    def _observe_functional(self, torch: Any) -> None:
        """The operations of DTensor, tensor parallelism and compiled code wait in C++."""
        namespace = torch.ops._c10d_functional
        self._library = torch.library.Library("_c10d_functional", "IMPL")
        waits = getattr(namespace, "wait_tensor", None)
        if waits is None:
            return

        def wait_tensor(tensor: Any) -> Any:
            def go_on() -> Any:
                return waits.default.redispatch(below(tensor), tensor)

            if tensor.device.type == "meta":
                return go_on()
            self._settle()
            with self._lock:
                operation = self._by_storage.get(tensor.untyped_storage()._cdata)
            return go_on() if operation is None else self._awaited(operation, go_on)

        self._library.impl("wait_tensor", wait_tensor, "BackendSelect")
        for name in _FUNCTIONAL_MESSAGES:
            messages = getattr(namespace, name, None)
            if messages is not None:
                kernel = self._unwatched(messages.default)
                self._library.impl(name, kernel, "BackendSelect")

    def _unwatched(self, operation: Any) -> Callable[..., Any]:
        """C++ waits for these messages itself, which it can do once only."""

        def kernel(*args: Any) -> Any:
            tensors = [each for each in args if hasattr(each, "element_size")] or args[3]
            self._functional.messages = True
            try:
                return operation.redispatch(below(tensors[0]), *args)
            finally:
                self._functional.messages = False

        return kernel

    def _awaited(
        self, operation: Operation, wait: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Wait for an operation, after the thread that does where there is one."""
        operation.awaited = True
        self._waiting((operation,))
        began_ns = time.monotonic_ns()
        try:
            if operation.over is None:
                returned = wait()
            else:
                returned = self._after_thread(operation, wait, *args, **kwargs)
        except BaseException as error:
            operation.error = error
            raise
        finally:
            now_ns = time.monotonic_ns()
            self._note([operation], began_ns, now_ns, whole=True)
            if operation.over is None and not operation.has_future:
                if operation.message != "send":
                    operation.records[0]["awaited"] = True
                self._end(operation, now_ns)
                self._forget(operation)
            self._leaves((operation,), operation.error is not None)
        return returned

    def _after_thread(
        self,
        operation: Operation,
        wait: Callable[[], Any],
        timeout: Any = None,
    ) -> Any:
        assert operation.over is not None
        seconds = None if timeout is None else max(0.0, timeout.total_seconds())
        if not operation.over.wait(seconds or None):
            raise RuntimeError(f"Timed out waiting {seconds} s for {operation.records[0]['kind']}")
        if operation.message is None:
            return wait()
        self._forget(operation)
        if operation.error is not None:
            raise operation.error
        return True

    def _within(self, operations: Sequence[Operation], wait: Callable[[], Any]) -> Any:
        """Wait in a call that says nothing of what it waits for: those of `operations` that end
        meanwhile."""
        self._waiting(operations)
        began_ns = time.monotonic_ns()
        failed = True
        try:
            returned = wait()
            failed = False
        finally:
            self._leaves(operations, failed)
            self._note(operations, began_ns, time.monotonic_ns(), whole=False)
        return returned

    def _note(
        self, operations: Sequence[Operation], began_ns: int, now_ns: int, whole: bool
    ) -> None:
        if now_ns > began_ns and operations and threading.get_ident() == self.thread:
            with self._lock:
                self._waits.append((began_ns, now_ns, operations, whole))

    def settle_waits(self) -> None:
        """Say in the records of operations when this rank's main thread waited for them."""
        with self._lock:
            waits, self._waits = self._waits, []
        for began_ns, now_ns, operations, whole in waits:
            if whole:
                add_wait(operations[0].records, began_ns, now_ns)
                continue
            known = [each for each in operations if each.ended_ns is not None and not each.awaited]
            for operation in sorted(known, key=lambda each: each.ended_ns or 0):
                ended_ns = min(operation.ended_ns or 0, now_ns)
                if (operation.ended_ns or 0) <= now_ns + _LATE_NS and ended_ns > began_ns:
                    add_wait(operation.records, began_ns, ended_ns)
                    began_ns = ended_ns


def add_wait(records: Sequence[dict[str, Any]], began_ns: int, ended_ns: int) -> None:
    """The main thread waited so long for a work. Several collectives may share one: the first
    stands for all, so that no time counts twice."""
    if ended_ns > began_ns:
        record = records[0]
        record["waited_ns"] += ended_ns - began_ns
        record.setdefault("waits", []).append([began_ns, ended_ns])


def _module(name: str) -> Any:
    import importlib

    return importlib.import_module(name)
