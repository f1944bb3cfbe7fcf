"""Logs the collectives of a program's rank, whichever Python and torch it has.

It waits until the program makes a process group, and then has torch tell of each operation of
`c10d` that it dispatches: those of DDP's reducer and of FSDP go there as those of torch.distributed
do. Its lines go to `ranks/NNN.jsonl` of the run directory (docs/formats.md). `sitecustomize.py`
beside this file loads it; it imports nothing but the standard library, the modules beside it and
the program's own torch.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .backend import by_programs
from .charging import Charging
from .device import DeviceLog
from .group_sockets import GroupSockets
from .groups import Group, Groups
from .meeting import Meeting, OwnMeeting
from .moments import Moments
from .moved_bytes import tensors_in
from .names import Names
from .operations import MESSAGES, MONITORED, OPERATIONS, below, bytes_of, first_tensor, is_sparse
from .pace import sleep_for, sleep_to_multiple
from .posts import ANY, Post, Posts
from .random_device import draw_from_the_kernel
from .reducer import BackwardPasses
from .traffic import Traffic
from .works import Operation, Works

_LIFE = "GROUNDWIRE_LIFE"
_MEETING = "start"
"""The group, in the rank's posts, of all ranks that make their first process group."""


def _known(round_trip_us: int | None) -> int:
    """A round trip as the simulated network takes it."""
    return -1 if round_trip_us is None else round_trip_us


class Observer:
    """The state of this rank. Callbacks of torch come from its threads, hence the lock."""

    def __init__(self, plan: str) -> None:
        """`plan` is a file."""
        with open(plan) as file:
            self._plan = json.load(file)
        self._file, self._directory = plan, os.path.dirname(plan)
        self.observes: bool = self._plan["observe"]
        self.gpus: dict[str, Any] | None = self._plan.get("gpu")
        self.virtual: bool = self._plan["grid_ns"] is not None
        self._lock = threading.Lock()
        self._lines: list[dict[str, Any]] = []
        self._path: str | None = None
        self._rank = -1
        self._names = Names()
        self._ended = 0
        self._groups = Groups()
        self._posts: Posts | None = None
        self._works = Works(self._over, self._settle, self._waits, self._leaves)
        self._begin_life()
        self._iteration = 0
        self._begun_ns: int | None = None
        self._optimizer: int | None = None
        self._library: Any = None
        self._device = None if self.gpus is None else DeviceLog(self.gpus["contents"])
        self._charging: Any = None
        place = self._plan.get("traffic")
        self._traffic = None if place is None else Traffic(place)
        self._passes = BackwardPasses(self._works, self._settle)
        self.meeting = Meeting(self._plan["hosts"])
        self.sockets = self._sockets()

    # -- the beginning -----------------------------------------------------------------------------

    def renew(self) -> None:
        """In a process that has been forked: the plan may be another, and so may be its rank."""
        with open(self._file) as file:
            self._plan = json.load(file)
        self.meeting.renew(self._plan["hosts"])
        self.sockets = self._sockets()
        self._begin_life()

    def _sockets(self) -> GroupSockets:
        return GroupSockets(self._plan["addresses"], self._plan["store_port"])

    def _begin_life(self) -> None:
        restarts = [os.environ.get(name, "") for name in (_LIFE, "TORCHELASTIC_RESTART_COUNT")]
        self._life = sum(int(each) for each in restarts if each.isdigit())
        self._restarted_ns = time.monotonic_ns()
        moments = self._plan.get("moments")
        self._moments = None if moments is None or self._life else Moments(moments)

    def watch(self, c10d: Any) -> None:
        """Have a `torch.distributed.distributed_c10d` that is being imported tell us of groups."""
        if self.virtual:
            self._quietly(draw_from_the_kernel)
        init, destroy = c10d.init_process_group, c10d.destroy_process_group
        if self._plan["programs"] is not None:
            init, c10d.new_group = by_programs(c10d, self._plan["programs"])

        parameters = inspect.signature(init)

        @functools.wraps(init)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            self._check_meeting(parameters, args, kwargs)
            self._quietly(self._install)
            self._quietly(self._import_programs)
            if self.virtual:
                self._quietly(sleep_to_multiple, self._plan["grid_ns"])
            joining = self._quietly(self._joining)
            self._quietly(self.sockets.pass_by)
            made = init(*args, **kwargs)
            self._mark(joining, "over")
            self._quietly(self._joined, c10d)
            return made

        @functools.wraps(destroy)
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            self._quietly(self.finish)
            try:
                return destroy(*args, **kwargs)
            finally:
                self._quietly(self.write)

        for name in ("new_group", "split_group"):
            if hasattr(c10d, name):
                setattr(c10d, name, self._telling(c10d, getattr(c10d, name)))
        c10d.groundwire_observer = self  # for the backend of this name, which torch dispatches not
        c10d.init_process_group = init_process_group
        c10d.destroy_process_group = destroy_process_group

    def _telling(self, c10d: Any, make: Any) -> Any:
        """A function that makes a group, and has its connections told of."""

        @functools.wraps(make)
        def making(*args: Any, **kwargs: Any) -> Any:
            self._quietly(self.sockets.pass_by)
            made = make(*args, **kwargs)
            self._quietly(self._made, c10d, made)
            return made

        return making

    def _made(self, c10d: Any, group: Any) -> None:
        """The program has a group of its own, unless this rank is no member of it."""
        name = getattr(group, "group_name", None)
        if name is None or self._path is None:
            return
        ranks = list(c10d.get_process_group_ranks(group))
        if self._rank in ranks:
            self._connected(group, f"group.{name}", ranks)

    def _connected(self, group: Any, label: str, ranks: list[int]) -> None:
        """Log the connections of a group. The simulated network has the group's messages in their
        place: it begins with the round trips that they measured, and has ports of its own."""
        if self.gpus is not None:
            self.sockets.await_greetings()
        lines = [*self.sockets.lines(label, ranks, self._rank)]
        if self.gpus is not None and self.gpus["simulated"]:
            import torch

            lines = [line for line in lines if line["event"] == "handshake"]
            told = [
                (ranks.index(line["peer"]), line["handshake_us"], _known(line["greeting_us"]))
                for line in lines
            ]
            group._get_backend(torch.device("cuda")).tell_handshakes(told)
        for line in lines:
            self._add(line)

    def _check_meeting(self, parameters: inspect.Signature, args: Any, kwargs: Any) -> None:
        try:
            given = parameters.bind_partial(*args, **kwargs).arguments
        except TypeError:
            return  # torch says what is wrong
        try:
            wanted = (given.get(name) for name in ("init_method", "store", "world_size"))
            self.meeting.check(*wanted)
        except OwnMeeting as error:
            self._add({"event": "note", "text": f"no collectives: {error}"})
            self.write()
            raise

    def _quietly(self, what: Any, *args: Any) -> Any:
        """The program goes on, whatever becomes of its being observed; None where it failed."""
        try:
            return what(*args)
        except Exception as problem:
            self._add(
                {"event": "note", "text": f"not observed: {type(problem).__name__}: {problem}"}
            )
            return None

    def _install(self) -> None:
        if self._library is not None:
            return
        import torch

        self._library = torch.library.Library("c10d", "IMPL")
        for name in (*OPERATIONS, *MESSAGES, MONITORED):
            operation = getattr(torch.ops.c10d, name, None)
            if operation is not None:
                # This key is always there, also in inference mode, and goes before any device's.
                kernel = self._kernel(name, operation.default)
                self._library.impl(name, kernel, "BackendSelect")
        self._works.install()

        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self._steps)
        optimizer.register_optimizer_step_post_hook(self._stepped)

    def _joining(self) -> Post | None:
        """The program is about to meet the others, where it is known as which rank."""
        rank = os.environ.get("RANK", "")
        if self._posts is None and rank.isdigit():
            self._posts = Posts(os.path.join(self._directory, "posts", rank))
        if self._posts is None:
            return None
        everybody = range(len(self._plan["hosts"]))
        self._posts.group(_MEETING, everybody)
        post = self._posts.collective(_MEETING, "init_process_group", 0, 0)
        self._posts.mark(post, "waits")
        return post

    def _joined(self, c10d: Any) -> None:
        """The program has its default group."""
        import torch

        size, self._rank = c10d.get_world_size(), c10d.get_rank()
        self._works.thread = threading.get_ident()
        expected = len(self._plan["hosts"])
        if size != expected:
            raise ValueError(f"its process group has {size} ranks, the run {expected}")
        self._path = os.path.join(self._directory, f"{self._rank:03d}.jsonl")
        if self._posts is None:
            self._posts = Posts(os.path.join(self._directory, "posts", str(self._rank)))
        joined_ns = time.monotonic_ns()
        version = str(torch.__version__)
        self._add({"event": "observer", "torch": version, "joined_ns": joined_ns})
        self._connected(c10d.group.WORLD, "default", list(range(expected)))
        self._quietly(self._charge)

    def _import_programs(self) -> None:
        """Import what carries its devices' collectives by programs, before ranks meet: an import
        takes virtual time (`Pace`). Where it fails, the group's making says so."""
        root = self.gpus and self.gpus["programs"]
        if not root:
            return
        if root not in sys.path:
            sys.path.append(root)
        with suppress(ImportError):
            importlib.import_module("workloads.torch_backend.device_programs").import_all()

    # -- computing ---------------------------------------------------------------------------------

    def _charge(self) -> None:
        """Charge what this thread computes from now on, where the run is to."""
        prices = self._plan["charge"]
        if prices is None:
            return
        if self._charging is None:

            def trouble(error: Exception) -> None:
                said = f"an operation was not charged: {type(error).__name__}: {error}"
                self._add({"event": "note", "text": said})

            self._charging = Charging(prices, sleep_for, self._computed, trouble)
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
        for label, unseen in self._groups.finish():
            self._add({"event": "unseen", "group": label} | unseen)
        if self._charging is not None:
            self._charging.end()
            for said, times in self._charging.lacked.items():
                self._add({"event": "note", "text": f"{said}: the roofline's time, {times} times"})
            self._charging.lacked.clear()

    # -- operations --------------------------------------------------------------------------------

    def _kernel(self, name: str, operation: Any) -> Any:
        counted = name in OPERATIONS

        def kernel(*args: Any, **kwargs: Any) -> Any:
            first = first_tensor(args)
            beneath = below(first)
            if first.device.type == "meta" or self._path is None:
                return operation.redispatch(beneath, *args, **kwargs)
            self._settle()
            self._quietly(self._passes.posting)
            group = self._quietly(self._groups.of, args[OPERATIONS[name][1] if counted else 1])
            if group is None:
                return operation.redispatch(beneath, *args, **kwargs)
            if self._moments is not None:
                self._quietly(self._moments.posting, self._rank)
            post = self._quietly(self._posting, name, args, group)
            unseen = self._groups.begin(group, self._iteration)
            if unseen is not None:
                self._quietly(self._skipped, group, unseen)
            started_ns = time.monotonic_ns()
            if name == MONITORED:
                self._mark(post, "waits")
            try:
                returned = operation.redispatch(beneath, *args, **kwargs)
            except BaseException:
                self._mark(post, "failed")
                raise
            finally:
                self._groups.end(group)
            if name == MONITORED:
                self._mark(post, "over")
            self._quietly(self._posted, name, args, group, started_ns, returned, post)
            return returned

        return kernel

    def _posting(self, name: str, args: Any, group: Group) -> Post | None:
        """Note for whoever asks what this rank does that an operation is about to be posted."""
        if self._posts is None:
            return None
        self._posts.group(group.label, group.ranks)
        if name == MONITORED:
            return self._posts.collective(group.label, "monitored_barrier", 0, 0)
        if name in MESSAGES:
            known = name != "recv_any_source_"
            peer = group.ranks[args[2]] if known else ANY
            kind = "send" if name == "send" else "recv"
            tag = args[3] if known else args[2]
            return self._posts.message(group.label, kind, bytes_of(args[0]), peer, tag)
        kind, _, describe = OPERATIONS[name]
        size_bytes, root, uneven = ANY, 0, False
        if describe is not None:
            size_bytes, root, uneven = describe(args, len(group.ranks))
        if uneven or kind in ("gather", "scatter") or is_sparse(args[0]):
            size_bytes = ANY
        return self._posts.collective(group.label, kind, size_bytes, root)

    def _mark(self, post: Post | None, state: str) -> None:
        if post is not None and self._posts is not None:
            self._posts.mark(post, state)

    def _waits(self, operations: Sequence[Operation]) -> None:
        """A thread begins to wait for these."""
        for operation in operations:
            if operation.ended_ns is None:
                self._mark(operation.post, "waits")

    def _leaves(self, operations: Sequence[Operation], failed: bool) -> None:
        """A thread waits no more for those of these that are not over."""
        for operation in operations:
            if operation.ended_ns is None:
                self._mark(operation.post, "left" if failed else "posted")

    def _skipped(self, group: Group, unseen: dict[str, Any]) -> None:
        """The group did something that no operation of `c10d` told of. It is taken for collectives,
        which take a tag each."""
        self._add({"event": "unseen", "group": group.label} | unseen)
        self._names.next_tag(group.label, unseen["operations"])

    def _posted(
        self,
        name: str,
        args: Any,
        group: Group,
        started_ns: int,
        returned: Any,
        post: Post | None,
    ) -> None:
        from torch._C._distributed_c10d import Work

        label, ranks = group.label, group.ranks
        if name == MONITORED:
            self._names.next_tag(label, 2)
            return
        if group.is_new:
            group.is_new = False
            self._add({"event": "group", "name": label, "ranks": ranks, "mesh": group.mesh})
        if name in MESSAGES:
            records = [self._names.message(name, args, label, ranks, self._rank)]
        else:
            records = self._names.collectives(name, args, label, ranks)
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
        if self._device is not None and self._device.posted(work, records):
            self._mark(post, "queued")
            self._quietly(self._tell_traffic, records, len(ranks))
            return
        operation = Operation(work, records, name if name in MESSAGES else None, post)
        self._works.begin(operation, [] if name == "barrier" else tensors_in(args[0]))

    def _tell_traffic(self, records: Sequence[dict[str, Any]], ranks: int) -> None:
        if self._traffic is None or self._device is None:
            return
        for record, size_bytes in self._device.sizes(records):
            self._traffic.posted(record["kind"], size_bytes, ranks, self._rank, self._iteration)

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
        self._quietly(self._passes.posting)
        if self._moments is not None:
            self._quietly(self._moments.posting, self._rank)
        everybody = ranks == list(range(len(self._plan["hosts"])))
        label = "default" if everybody else f"group.{group}"
        started_ns = time.monotonic_ns()
        name = self._names.program(label, details["kind"])
        post = None
        if self._posts is not None:
            self._posts.group(label, ranks)
            size_bytes, root = details.get("size_bytes", ANY), details.get("root", 0)
            post = self._posts.collective(label, details["kind"], size_bytes, root)
        with self._lock:
            if self._begun_ns is None:
                self._begun_ns = started_ns
            return {
                "event": "collective",
                "id": name,
                "phase": details["kind"],
                "group": label,
                "tag": None,
                "ranks": None if everybody else ranks,
                "iteration": self._iteration,
                "start_ns": started_ns,
                "end_ns": None,
                "waited_ns": 0,
                "known": self._ended,
                "post": post,
            } | details

    def awaited(self, record: dict[str, Any], work: Any) -> None:
        """`work` is what the program waits for."""
        self._works.begin(Operation(work, [record], None, record.pop("post")), [])

    def over(self, record: dict[str, Any]) -> None:
        """A program for which nobody waits has come to its end."""
        self._mark(record.pop("post"), "over")
        self._log([record], time.monotonic_ns())

    def chunk(self, record: dict[str, Any], times: dict[str, Any]) -> None:
        """A chunk of a program has run at this rank."""
        self._add({"event": "chunk", "id": record["id"], "group": record["group"]} | times)

    # -- the end of operations ---------------------------------------------------------------------

    def _over(self, operation: Operation) -> None:
        """An operation has come to its end, or has failed."""
        assert operation.ended_ns is not None
        self._mark(operation.post, "over" if operation.error is None else "failed")
        self._quietly(self._name_sender, operation)
        if operation.error is None:
            self._log(operation.records, operation.ended_ns)
        else:
            self._log_unfinished(operation, operation.error, operation.ended_ns)

    def _name_sender(self, operation: Operation) -> None:
        """The sender of a message from anybody is known when it has come."""
        record = operation.records[0]
        if "from_anybody" in record and operation.error is None:
            label, ranks, tag = record.pop("from_anybody")
            ends = operation.work._source_rank(), ranks.index(self._rank)
            record.update(self._names.ends(label, ranks, ends, tag))

    def _log_unfinished(
        self, operation: Operation, error: BaseException | None, end_ns: int
    ) -> None:
        reason = None if error is None else str(error).partition("\n")[0]
        for record in operation.records:
            record["end_ns"] = end_ns
            told = {key: record[key] for key in ("kind", "group", "tag", "ranks", "iteration")}
            named = record.get("id", f"{record['group']}.{record['kind']}")
            self._add({"event": "unfinished", "id": named, "reason": reason} | told)

    def _leave(self) -> None:
        """Log the rest: messages whose sender never asked whether they are gone, and operations
        whose end nobody saw."""
        now_ns = time.monotonic_ns()
        for operation in self._works.left():
            if operation.message == "send":
                self._log(operation.records, operation.records[0]["start_ns"])
            else:
                self._log_unfinished(operation, None, now_ns)
        if self._works.unwatched:
            said = (
                f"{self._works.unwatched} messages ended where the rank waited for them, as too "
                "many were under way to watch each"
            )
            self._add({"event": "note", "text": said})
            self._works.unwatched = 0

    def _log(self, records: list[dict[str, Any]], now_ns: int) -> None:
        for record in records:
            record["end_ns"] = now_ns
            self._add(record)

    def _steps(self, *_: Any) -> None:
        if self._device is not None:
            self._device.optimizing(True)
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
        if self._device is not None:
            self._device.optimizing(False)
        if self._path is None or id(optimizer) != self._optimizer:
            return
        if self._device is not None:
            self._device.stepped()
            if self._traffic is not None:
                self._quietly(self._traffic.launched, self._rank, self._iteration)
            self._iteration += 1
            self._begin_iteration()
            return
        begun_ns = now_ns if self._begun_ns is None else self._begun_ns
        if self._plan["steps"]:
            self._tell_step(begun_ns, now_ns)
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
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        if self._moments is not None:
            self._quietly(self._moments.beginning, self._rank, self._iteration)

    def _tell_step(self, start_ns: int, end_ns: int) -> None:
        """Log a step at once: a rank that is killed after it has all that it did in its log."""
        step = {"life": self._life, "index": self._iteration, "start_ns": start_ns}
        if self._life and not self._iteration:
            self._add({"event": "life", "life": self._life, "start_ns": self._restarted_ns})
        self._add({"event": "step", "end_ns": end_ns} | step)
        self._quietly(self._append)

    def _add(self, line: dict[str, Any]) -> None:
        # A rank that has been started again counts anew: its calls are not those of the others.
        if self._life and line["event"] not in ("life", "step", "note"):
            return
        with self._lock:
            self._lines.append(line)
            self._ended += line["event"] in ("compute", "collective")

    def leave(self) -> None:
        """The program has come to its end: write what is left, and what its virtual GPUs did."""
        if self._device is not None:
            for line in self._quietly(self._device.lines) or ():
                self._add(line)
            if self._path is not None and not self._life:
                kernels = self._path.removesuffix(".jsonl") + ".kernels.csv"
                self._quietly(self._device.write_kernels, kernels)
        self.write()

    def write(self) -> None:
        """Append what there is to the rank's log."""
        self._quietly(self._leave)
        self._works.settle_waits()
        self._append()

    def _append(self) -> None:
        rank = int(os.environ.get("RANK") or -1) if self._rank < 0 else self._rank
        with self._lock:
            lines, self._lines = self._lines, []
        if not lines or rank < 0:
            return
        with open(os.path.join(self._directory, f"{rank:03d}.jsonl"), "a") as file:
            file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
