"""A process group whose every collective is timed, checked and logged.

Gloo's slots carry a tag that counts the collectives of a group (docs/gloo-wire-format.md); the
communicator counts along, so that a capture can be split by collective without guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from workloads.clock import now_ns, round_time_ns, sleep_until_ns
from workloads.events import EventLog
from workloads.pending import Pending

# Virtual time passes at no cost while everybody waits, so a time-out cannot tell slow from stuck
# there; the launcher and the guest's watchdog find stuck runs. One day never fires before them.
_TIMEOUT = timedelta(days=1)
# Far enough ahead for everybody to be asleep by then. Starts lie on a grid, so that a few
# microseconds more or less while connecting do not move everything that follows.
_ALIGN_MARGIN_NS = 1_000_000
_ALIGN_GRID_NS = 10_000_000


class Communicator:
    """One Gloo process group over some ranks of the run."""

    def __init__(
        self,
        log: EventLog,
        name: str,
        ranks: Sequence[int],
        me: int,
        world_size: int,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.name = name
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.rank = self.ranks.index(me)
        self._log = log
        self._everybody = self.size == world_size
        self._group = group
        self._next_tag = 0

    def global_rank(self, rank: int) -> int:
        """Rank of the run of a rank of this group."""
        return self.ranks[rank]

    def post(
        self,
        id: str,
        kind: str,
        phase: str,
        size_bytes: int,
        iteration: int,
        call: Callable[[dist.ProcessGroup | None], Any],
        verify: Callable[[], None] | None = None,
        counted: bool = True,
        has_future: bool = True,
        members: tuple[int, ...] | None = None,
        **details: object,
    ) -> Pending:
        """Start a collective. `call` gets the group and returns torch's Work.

        `counted` is False for point-to-point calls, whose slots carry the caller's tag.
        `has_future` is False for the works that torch gives no future (point to point, and
        reduce-scatter, which Gloo does as an all-reduce of a copy): they end when waited for.
        `members` are the ranks of the run that take part, where these are not the whole group.
        """
        tag = None
        if counted:
            tag = self._next_tag
            self._next_tag += 1
        ranks = members if members is not None else None if self._everybody else self.ranks
        pending = Pending(
            self.name,
            id,
            kind,
            phase,
            size_bytes,
            iteration,
            tag,
            ranks,
            now_ns(),
            self._log.work_logged,
            details,
            verify,
            has_future,
        )
        pending.work = call(self._group)
        if has_future:
            # Taken where the collective completes, not where somebody waits for it.
            def completed(_: object) -> None:
                pending.end_ns = now_ns()

            pending.work.get_future().add_done_callback(completed)
        return pending

    def wait(self, pending: Pending, waited_ns: int | None = None) -> None:
        """Block until done, check the numbers and log. Raises payload.WrongResult, or torch's
        error. `waited_ns` is how long the rank was idle for it, when the caller waited before.
        """
        blocked_ns = now_ns()
        # Gloo's point-to-point works can be waited for once only: a second wait never returns.
        if pending.has_future or pending.end_ns is None:
            pending.work.wait()
        woken_ns = now_ns()
        if pending.verify is not None:
            pending.verify()
            self._log.check(pending.id)
        if pending.end_ns is None:
            pending.end_ns = woken_ns
        self._log.collective(pending, woken_ns - blocked_ns if waited_ns is None else waited_ns)

    def align(self, iteration: int) -> None:
        """Start all ranks at the same nanosecond of the common clock.

        A barrier lets its ranks go at different times; here they agree on a time that lies ahead
        for all of them (a maximum over the group) and sleep until it.
        """
        ahead_ns = round_time_ns(_ALIGN_MARGIN_NS, _ALIGN_GRID_NS)
        proposal = torch.tensor([ahead_ns], dtype=torch.int64)
        self.wait(
            self.post(
                f"i{iteration}.align",
                "all_reduce",
                "align",
                proposal.numel() * proposal.element_size(),
                iteration,
                lambda group: dist.all_reduce(
                    proposal, op=dist.ReduceOp.MAX, group=group, async_op=True
                ),
                element_bytes=8,
            )
        )
        sleep_until_ns(int(proposal.item()))


def join(
    store_address: str, store_port: int, interface: str, rank: int, world_size: int
) -> dist.Store:
    """Join the run's default process group: a TCPStore at rank 0, as torchrun makes it, then Gloo.

    Raises torch's DistStoreError or RuntimeError when the fabric does not connect the ranks.
    """
    import os

    os.environ["GLOO_SOCKET_IFNAME"] = interface
    store = dist.TCPStore(
        store_address,
        store_port,
        world_size,
        is_master=rank == 0,
        timeout=_TIMEOUT,
        wait_for_workers=False,
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT)
    return store


def subgroups(
    log: EventLog, name: str, partition: Sequence[Sequence[int]], me: int, world_size: int
) -> Communicator | None:
    """Split the run into process groups; every rank calls this with the same partition.

    Returns the communicator of the part that `me` is in, named `<name>.<index>`.
    """
    mine = None
    for index, ranks in enumerate(partition):
        group = dist.new_group(list(ranks), timeout=_TIMEOUT)
        if me in ranks:
            mine = Communicator(log, f"{name}.{index}", ranks, me, world_size, group)
    return mine
