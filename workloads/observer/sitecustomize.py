"""Logs the collectives of a program's ranks, whichever Python and torch they have.

Python imports a module of this name at its start, when it finds one (`site` in its documentation).
This one waits until the program makes a process group, and then has torch tell of each operation
of `c10d` that it dispatches: those of DDP's reducer and of FSDP go there as those of
torch.distributed do. What it sees goes to `ranks/NNN.jsonl` of the run directory
(docs/formats.md). It imports nothing but the standard library and the program's own torch.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import socket
import stat
import sys
import threading
import time
from typing import Any

_PLAN_VARIABLE = "GROUNDWIRE_OBSERVE"
_WATCHED = "torch.distributed.distributed_c10d"
# Several records share a work: Gloo makes one operation of each tensor of these.
_ONE_EACH = ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_")


def _bytes(tensors: Any) -> int:
    if hasattr(tensors, "element_size"):
        return int(tensors.numel() * tensors.element_size())
    return sum(_bytes(each) for each in tensors)


def _first(arguments: Any) -> Any:
    """The first tensor among arguments and lists of them; None where there is none."""
    if hasattr(arguments, "element_size"):
        return arguments
    if isinstance(arguments, (list, tuple)):
        found = (_first(each) for each in arguments)
        return next((tensor for tensor in found if tensor is not None), None)
    return None


def _uneven(sizes: Any) -> bool:
    return len(set(sizes)) > 1


# Operation -> kind, index of the process group, and from its arguments and the group's size:
# (size in bytes as nccl-tests counts it, root, whether its parts are of unequal size).
_OPERATIONS: dict[str, tuple[str, int, Any]] = {
    "allreduce_": ("all_reduce", 1, lambda a, n: (_bytes(a[0]), 0, False)),
    "allreduce_coalesced_": ("all_reduce", 1, lambda a, n: (_bytes(a[0]), 0, False)),
    "broadcast_": ("broadcast", 1, lambda a, n: (_bytes(a[0]), a[2], False)),
    "reduce_": ("reduce", 1, lambda a, n: (_bytes(a[0]), a[3], False)),
    "allgather_": ("all_gather", 2, lambda a, n: (_bytes(a[0]), 0, False)),
    "_allgather_base_": ("all_gather", 2, lambda a, n: (_bytes(a[0]), 0, False)),
    "allgather_coalesced_": ("all_gather", 2, lambda a, n: (_bytes(a[1]) * n, 0, False)),
    "allgather_into_tensor_coalesced_": ("all_gather", 2, None),
    "reduce_scatter_": ("reduce_scatter", 2, lambda a, n: (_bytes(a[1]), 0, False)),
    "_reduce_scatter_base_": ("reduce_scatter", 2, lambda a, n: (_bytes(a[1]), 0, False)),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 2, None),
    "gather_": ("gather", 2, lambda a, n: (_bytes(a[1]) * n, a[3], False)),
    "scatter_": ("scatter", 2, lambda a, n: (_bytes(a[0]) * n, a[3], False)),
    "alltoall_base_": (
        "all_to_all", 2, lambda a, n: (_bytes(a[1]), 0, _uneven(a[3]) or _uneven(a[4])),
    ),
    "alltoall_": (
        "all_to_all", 2, lambda a, n: (_bytes(a[1]), 0, _uneven([_bytes(x) for x in a[1]])),
    ),
    "barrier": ("barrier", 1, lambda a, n: (0, 0, False)),
}  # fmt: skip
_MESSAGES = ("send", "recv_", "recv_any_source_")
# Its messages are Gloo's own; it takes two numbers of its group's count.
_MONITORED = "monitored_barrier_"


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def _sleep_to_multiple(grid_ns: int) -> None:
    """In virtual time, imports take microseconds more or less, as other files lie beside the
    program. From a round time on, what it does is the same in every run."""
    _sleep_until(-(-time.monotonic_ns() // grid_ns) * grid_ns)


def _sleep_until(at_ns: int) -> None:
    deadline = _Timespec(*divmod(at_ns, 10**9))
    monotonic, absolute, interrupted = 1, 1, 4
    sleep = ctypes.CDLL(None).clock_nanosleep
    while sleep(monotonic, absolute, ctypes.byref(deadline), None) == interrupted:
        pass


def _sleep_for(duration_ns: int) -> tuple[int, int]:
    """Let exactly this time pass; when it began and ended. A timer is late by its slack of 1 ns."""
    start_ns = time.monotonic_ns()
    if duration_ns > 1:
        _sleep_until(start_ns + duration_ns - 1)
    return start_ns, time.monotonic_ns()


def _load_charging() -> Any:
    """The module beside this one, whatever a program has of the same name."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "charging.py")
    spec = importlib.util.spec_from_file_location("groundwire_charging", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Observer:
    """What is known of this rank. Callbacks of torch come from its threads, hence the lock."""

    def __init__(self, plan: str) -> None:
        with open(plan) as file:
            self._plan = json.load(file)
        self._directory = os.path.dirname(plan)
        self.observes: bool = self._plan["observe"]
        self.virtual: bool = self._plan["grid_ns"] is not None
        self._lock = threading.Lock()
        self._lines: list[dict[str, Any]] = []
        self._path: str | None = None
        self._rank = -1
        self._tags: dict[str, int] = {}
        self._programs: dict[str, int] = {}
        self._sent: dict[tuple[Any, ...], int] = {}
        self._ended = 0
        self._waiting: dict[int, tuple[Any, list[dict[str, Any]]]] = {}
        self._iteration = 0
        self._begun_ns: int | None = None
        self._optimizer: int | None = None
        self._library: Any = None
        self._charging: Any = None

    # -- the beginning -----------------------------------------------------------------------------

    def watch(self, c10d: Any) -> None:
        """Have a `torch.distributed.distributed_c10d` that is being imported tell us of groups."""
        init, destroy = c10d.init_process_group, c10d.destroy_process_group

        @functools.wraps(init)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            self._quietly(self._install)
            if self.virtual:
                self._quietly(_sleep_to_multiple, self._plan["grid_ns"])
            made = init(*args, **kwargs)
            self._quietly(self._joined, c10d)
            return made

        @functools.wraps(destroy)
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            self._quietly(self.finish)
            try:
                return destroy(*args, **kwargs)
            finally:
                self._quietly(self.write)

        c10d.groundwire_observer = self  # for the backend of this name, which torch dispatches not
        c10d.init_process_group = init_process_group
        c10d.destroy_process_group = destroy_process_group

    def _quietly(self, what: Any, *args: Any) -> None:
        """The program goes on, whatever becomes of its being observed."""
        try:
            what(*args)
        except Exception as problem:
            self._add(
                {"event": "note", "text": f"not observed: {type(problem).__name__}: {problem}"}
            )

    def _install(self) -> None:
        if self._library is not None:
            return
        import torch
        from torch._C._distributed_c10d import Work

        self._library = torch.library.Library("c10d", "IMPL")
        for name in (*_OPERATIONS, *_MESSAGES, _MONITORED):
            operation = getattr(torch.ops.c10d, name, None)
            if operation is not None:
                # This key is always there, also in inference mode, and goes before any device's.
                kernel = self._kernel(name, operation.default)
                self._library.impl(name, kernel, "BackendSelect")
        wait = Work.wait

        def observed_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            self._settle()
            with self._lock:
                _, records = self._waiting.get(id(work), (None, []))
            began_ns = time.monotonic_ns()
            try:
                return wait(work, *args, **kwargs)
            finally:
                self._quietly(self._waited, work, records, began_ns, time.monotonic_ns())

        Work.wait = observed_wait  # type: ignore[assignment,method-assign]

        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self._steps)
        optimizer.register_optimizer_step_post_hook(self._stepped)

    def _joined(self, c10d: Any) -> None:
        """The program has its default group."""
        import torch

        size, self._rank = c10d.get_world_size(), c10d.get_rank()
        expected = len(self._plan["hosts"])
        if size != expected:
            raise ValueError(f"its process group has {size} ranks, the run {expected}")
        self._path = os.path.join(self._directory, f"{self._rank:03d}.jsonl")
        self._add({"event": "observer", "torch": str(torch.__version__)})
        addresses = self._plan["addresses"]
        if len(set(addresses)) == size:
            for peer, (port, peer_port) in sorted(self._connections(addresses).items()):
                self._add(
                    {
                        "event": "connection",
                        "group": "default",
                        "peer": peer,
                        "port": port,
                        "peer_port": peer_port,
                    }
                )

        self._quietly(self._charge)

    # -- computing ---------------------------------------------------------------------------------

    def _charge(self) -> None:
        """Charge what this thread computes from now on, where the run is to."""
        device = self._plan["charge"]
        if device is None:
            return
        if self._charging is None:

            def trouble(error: Exception) -> None:
                said = f"an operation was not charged: {type(error).__name__}: {error}"
                self._add({"event": "note", "text": said})

            module = _load_charging()
            self._charging = module.Charging(device, _sleep_for, self._computed, trouble)
        self._charging.begin()

    def _settle(self) -> None:
        if self._charging is not None:
            self._charging.settle()

    def _computed(self, line: dict[str, Any]) -> None:
        with self._lock:
            if self._begun_ns is None:
                self._begun_ns = line["start_ns"]
        self._add(line | {"iteration": self._iteration})

    def finish(self) -> None:
        """The program has come to its end, or to that of its process group."""
        if self._charging is not None:
            self._charging.end()

    def _connections(self, addresses: list[str]) -> dict[int, tuple[int, int]]:
        """(own port, the peer's) by higher rank, where there is just one that is no store's."""
        stores = {self._plan["store_port"], int(os.environ.get("MASTER_PORT") or 0)}
        peers = {address: rank for rank, address in enumerate(addresses) if rank > self._rank}
        found: dict[int, list[tuple[int, int]]] = {}
        for name in os.listdir("/proc/self/fd"):
            try:
                descriptor = int(name)
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as end:
                    if (end.family, end.type) != (socket.AF_INET, socket.SOCK_STREAM):
                        continue
                    address, peer_port = end.getpeername()
                    port = end.getsockname()[1]
            except OSError:
                continue  # it is closed by now, or not connected
            if address in peers and not stores & {port, peer_port}:
                found.setdefault(peers[address], []).append((port, peer_port))
        return {peer: ends[0] for peer, ends in found.items() if len(ends) == 1}

    # -- operations --------------------------------------------------------------------------------

    def _kernel(self, name: str, operation: Any) -> Any:
        from torch._C import DispatchKey, DispatchKeySet

        def kernel(*args: Any, **kwargs: Any) -> Any:
            device = _first(args).device.type
            below = DispatchKeySet(getattr(DispatchKey, device.upper()))
            self._settle()
            started_ns = time.monotonic_ns()
            returned = operation.redispatch(below, *args, **kwargs)
            if self._path is not None:
                self._quietly(self._posted, name, args, started_ns, returned)
            return returned

        return kernel

    def _posted(self, name: str, args: Any, started_ns: int, returned: Any) -> None:
        from torch._C._distributed_c10d import ProcessGroup, Work

        boxed = args[_OPERATIONS[name][1] if name in _OPERATIONS else 1]
        group = ProcessGroup.unbox(boxed)
        label, ranks = self._group(group)
        if name == _MONITORED:
            self._next_tag(label, 2)
            return
        if name in _MESSAGES:
            records = [self._message(name, args, label, ranks)]
        else:
            records = self._collectives(name, args, label, ranks)
        everybody = ranks == list(range(len(self._plan["hosts"])))
        with self._lock:
            if self._begun_ns is None:
                self._begun_ns = started_ns
            for record in records:
                record.setdefault("ranks", None if everybody else ranks)
                record.update(
                    phase=record["kind"], group=label, iteration=self._iteration,
                    start_ns=started_ns, end_ns=None, waited_ns=0, known=self._ended,
                )  # fmt: skip
        work = Work.unbox(returned[-1] if isinstance(returned, tuple) else returned)
        with self._lock:
            self._waiting[id(work)] = work, records
        if name in _MESSAGES:
            return
        try:
            future = work.get_future()
        except RuntimeError:
            return  # Gloo gives none to some works: they end when they are waited for
        future.add_done_callback(lambda _: self._completed(id(work), time.monotonic_ns()))

    # -- collectives of the `groundwire` backend, which come by no operation of torch's ------------

    def program(
        self, group: str, ranks: list[int], details: dict[str, Any]
    ) -> dict[str, Any] | None:
        """A collective of these ranks is about to run as a program; `group` is torch's name of the
        group, `details` are its own part of its record. Returns the record, None where there is
        nobody to log for."""
        self._settle()
        if self._path is None:
            return None
        everybody = ranks == list(range(len(self._plan["hosts"])))
        label = "default" if everybody else f"group.{group}"
        started_ns = time.monotonic_ns()
        with self._lock:
            number = self._programs.get(label, 0)
            self._programs[label] = number + 1
            if self._begun_ns is None:
                self._begun_ns = started_ns
            return {
                "event": "collective",
                "id": f"{label}.{number}.{details['kind']}",
                "phase": details["kind"],
                "group": label,
                "tag": None,
                "ranks": None if everybody else ranks,
                "iteration": self._iteration,
                "start_ns": started_ns,
                "end_ns": None,
                "waited_ns": 0,
                "known": self._ended,
            } | details

    def awaited(self, record: dict[str, Any], work: Any) -> None:
        """`work` is what the program waits for."""
        with self._lock:
            self._waiting[id(work)] = work, [record]
        work.get_future().add_done_callback(
            lambda _: self._completed(id(work), time.monotonic_ns())
        )

    def over(self, record: dict[str, Any]) -> None:
        """A program for which nobody waits has come to its end."""
        self._log([record], time.monotonic_ns())

    def chunk(self, record: dict[str, Any], times: dict[str, Any]) -> None:
        """A chunk of a program has run at this rank."""
        self._add({"event": "chunk", "id": record["id"], "group": record["group"]} | times)

    def _group(self, group: Any) -> tuple[str, list[int]]:
        """Its name in the log, and its ranks of the run."""
        from torch.distributed import distributed_c10d as c10d

        ranks = list(c10d.get_process_group_ranks(group))
        world = c10d.GroupMember.WORLD
        is_world = world is not None and group.group_name == world.group_name
        return "default" if is_world else f"group.{group.group_name}", ranks

    def _next_tag(self, label: str, count: int = 1) -> int:
        with self._lock:
            tag = self._tags.get(label, 0)
            self._tags[label] = tag + count
        return tag

    def _collectives(
        self, name: str, args: Any, label: str, ranks: list[int]
    ) -> list[dict[str, Any]]:
        kind, _, measure = _OPERATIONS[name]
        if name in _ONE_EACH:
            # All-gathers have their whole arrays in the outputs, reduce-scatters in the inputs.
            whole = args[0] if kind == "all_gather" else args[1]
            measured = [(_bytes(each), 0, False) for each in whole]
        else:
            measured = [measure(args, len(ranks))]
        element_bytes = _first(args).element_size()
        found = []
        for size_bytes, root, uneven in measured:
            tag = self._next_tag(label)
            record = {
                "event": "collective",
                "id": f"{label}.{tag}.{kind}",
                "kind": kind,
                "tag": tag,
                "size_bytes": size_bytes,
                "element_bytes": element_bytes,
                "root": root,
            }
            found.append(record | ({"uneven": True} if uneven else {}))
        return found

    def _message(self, name: str, args: Any, label: str, ranks: list[int]) -> dict[str, Any]:
        """A message; of one from anybody, the sender is known when it has come."""
        me = ranks.index(self._rank)
        record = {
            "event": "collective",
            "kind": "send_recv",
            "tag": None,
            "size_bytes": _bytes(args[0]),
            "element_bytes": _first(args).element_size(),
            "root": 0,
            "peer": 1,
        }
        if name == "recv_any_source_":
            return record | {"from_anybody": (label, ranks, args[2])}
        ends = (me, args[2]) if name == "send" else (args[2], me)
        return record | self._ends(label, ranks, ends, args[3])

    def _ends(
        self, label: str, ranks: list[int], ends: tuple[int, int], tag: int
    ) -> dict[str, Any]:
        source, destination = (ranks[end] for end in ends)
        key = label, source, destination, tag
        with self._lock:
            number = self._sent.get(key, 0)
            self._sent[key] = number + 1
        name = f"{label}.{source}to{destination}.{tag}.{number}"
        return {"id": name, "ranks": [source, destination]}

    # -- the end of operations ---------------------------------------------------------------------

    def _completed(self, number: int, now_ns: int) -> None:
        with self._lock:
            # Nobody who waits from now on has to wait.
            _, records = self._waiting.pop(number, (None, []))
        self._log(records, now_ns)

    def _waited(self, work: Any, records: list[dict[str, Any]], began_ns: int, now_ns: int) -> None:
        """Somebody waited for a work that was under way; its records may be logged by now."""
        if not records:
            return
        with self._lock:
            for record in records:
                record["waited_ns"] += now_ns - began_ns
        if "from_anybody" in records[0]:
            label, ranks, tag = records[0].pop("from_anybody")
            ends = work._source_rank(), ranks.index(self._rank)
            records[0].update(self._ends(label, ranks, ends, tag))
        try:
            work.get_future()
        except RuntimeError:
            self._completed(id(work), now_ns)

    def _log(self, records: list[dict[str, Any]], now_ns: int) -> None:
        for record in records:
            record["end_ns"] = now_ns
            self._add(record)

    def _steps(self, *_: Any) -> None:
        if self._charging is not None:
            self._charging.optimizing = True

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has made its step. Where a program has several, the first one counts."""
        self._settle()
        if self._charging is not None:
            self._charging.optimizing = False
        now_ns = time.monotonic_ns()
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._path is None or id(optimizer) != self._optimizer:
            return
        begun_ns = now_ns if self._begun_ns is None else self._begun_ns
        self._add(
            {
                "event": "iteration",
                "index": self._iteration,
                "start_ns": begun_ns,
                "end_ns": now_ns,
            }
        )
        self._iteration += 1
        self._begun_ns = now_ns

    def _add(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._lines.append(line)
            self._ended += line["event"] in ("compute", "collective")

    def write(self) -> None:
        """Append what there is to the rank's log."""
        rank = int(os.environ.get("RANK") or -1) if self._rank < 0 else self._rank
        with self._lock:
            lines, self._lines = self._lines, []
        if not lines or rank < 0:
            return
        with open(os.path.join(self._directory, f"{rank:03d}.jsonl"), "a") as file:
            file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


class _Finder(importlib.abc.MetaPathFinder):
    """Tells the observer when the program has imported the module that is to be watched."""

    def __init__(self, observer: _Observer) -> None:
        self._observer = observer

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            self._observer._quietly(self._observer.watch, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Pace(importlib.abc.MetaPathFinder):
    """In virtual time, has every import happen at an instant of its own. A program that makes
    thousands of calls at one instant, as torch does while it is imported, is taken for a poller
    (docs/virtual-kernel.md), and naps."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        time.sleep(1e-9)
        return None


def _load_hidden() -> None:
    """Load the module of this name that would have been loaded without us."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _begin() -> None:
    plan = os.environ.get(_PLAN_VARIABLE)
    if plan is None or not os.path.exists(plan):
        return
    observer = _Observer(plan)
    if observer.observes:
        sys.meta_path.insert(0, _Finder(observer))
        atexit.register(observer.write)
        atexit.register(observer.finish)  # goes first
    if observer.virtual:
        sys.meta_path.insert(0, _Pace())


_begin()
_load_hidden()
