"""The queue pairs of a rank with the others of its groups.

A message goes when both its ends are posted: the receiver registers the memory and sends a credit,
and the sender writes the message there once that has come. The message's slot is the immediate of
both.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workloads.execution.transports.interface import EndLog, Links, Message, RankEnds
from workloads.execution.transports.socket_links import parts_of, together
from workloads.execution.verbs.library import (
    Credit,
    Device,
    EventKind,
    Peer,
    Region,
    VerbsError,
)
from workloads.execution.verbs.library import Event as VerbsEvent

if TYPE_CHECKING:
    from workloads.execution.verbs.place import RocePlace

_TIMEOUT = timedelta(days=1)  # as process groups have it: virtual time cannot tell slow from stuck

_DEPTH = 127
"""Sends and receives that a queue pair has room for; more wait here. The kernel keeps one slot more
and has powers of two of them."""


@dataclass(frozen=True, slots=True)
class LoggedEnds:
    """The log's entry of two connected queue pairs."""

    local_qpn: int
    remote_qpn: int
    start_psn: int
    remote_start_psn: int
    local_address: str
    remote_address: str


class MessageWork:
    """A message under way at one of its ends; it can be waited for, as torch's works are."""

    def __init__(self, tensor: torch.Tensor, region: Region) -> None:
        self.region = region
        self._tensor: torch.Tensor | None = tensor  # the memory must stay
        self._over = Event()
        self._error: VerbsError | None = None

    def wait(self) -> None:
        """Block until it is received, or acknowledged. Raises VerbsError."""
        self._over.wait()
        if self._error is not None:
            raise self._error

    def end(self, error: VerbsError | None = None) -> None:
        """It is complete, or will never be."""
        self._error = error
        self._tensor = None
        self._over.set()


@dataclass(slots=True)
class _Pair:
    """A queue pair, its posted messages, and those that wait for the other end, by slot."""

    rank: int
    device: Device
    handle: c_void_p
    under_way: int = 0
    waiting: deque[tuple[int, Credit | None]] = field(default_factory=deque)
    receives: dict[int, MessageWork] = field(default_factory=dict)
    sends: dict[int, MessageWork] = field(default_factory=dict)
    credits: dict[int, Credit] = field(default_factory=dict)
    error: VerbsError | None = None


class RankDevices(RankEnds):
    """A rank's devices, one a port of its host; a thread waits for the completions of each that is
    used. To be made once the rank is in its network namespace."""

    def __init__(self, place: RocePlace) -> None:
        self._place = place
        self._opened: dict[int, Device] = {}
        self._pairs: dict[int, _Pair] = {}
        self._lock = Lock()

    @property
    def place(self) -> RocePlace:
        """The place of its devices."""
        return self._place

    def links(
        self, store: dist.Store, name: str, ranks: Sequence[int], me: int, log: EndLog
    ) -> Links:
        """The queue pairs of a group. Raises VerbsError."""
        return QueuePairLinks(self, store, name, ranks, me, log)

    def finish(self, log: EndLog) -> None:
        """Nothing: the kernel counts."""

    def make(self, rank: int) -> tuple[_Pair, int]:
        """A queue pair for messages with this rank, and its number, which no other one of these
        has. Raises VerbsError."""
        if rank >= len(self._place.device_to):
            raise VerbsError(f"rank {rank} is none of the run's {len(self._place.device_to)} ranks")
        device = self._device(self._place.device_to[rank])
        while True:
            handle, number = device.make(_DEPTH)
            with self._lock:
                if number not in self._pairs:  # each device counts on its own
                    self._pairs[number] = _Pair(rank, device, handle)
                    return self._pairs[number], number
            device.destroy(handle)

    def _device(self, number: int) -> Device:
        if number not in self._opened:
            place = self._place
            device = Device(place.library, place.devices[number], place.address)
            self._opened[number] = device
            Thread(target=self._work, args=(device,), daemon=True).start()
        return self._opened[number]

    def send(self, pair: _Pair, tensor: torch.Tensor, slot: int) -> MessageWork:
        """Post a message."""
        work = _register(pair, tensor)
        with self._lock:
            _refuse_failed(pair)
            pair.sends[slot] = work
            credit = pair.credits.pop(slot, None)
            if credit is not None:
                self._post(pair, slot, credit)
        return work

    def receive(self, pair: _Pair, tensor: torch.Tensor, slot: int) -> MessageWork:
        """Post where a message is to go."""
        work = _register(pair, tensor)
        with self._lock:
            _refuse_failed(pair)
            pair.receives[slot] = work
            self._post(pair, slot, None)
        return work

    def _post(self, pair: _Pair, slot: int, credit: Credit | None) -> None:
        """Write a message, or give a credit, in order, as soon as the queue pair has room."""
        pair.waiting.append((slot, credit))
        self._fill(pair)

    def _fill(self, pair: _Pair) -> None:
        while pair.waiting and pair.under_way < _DEPTH:
            slot, credit = pair.waiting.popleft()
            pair.under_way += 1
            if credit is None:
                pair.device.give(pair.handle, pair.receives[slot].region, slot)
            else:
                pair.device.write(pair.handle, pair.sends[slot].region, slot, credit)

    def _work(self, device: Device) -> None:
        while True:
            for event in device.events():
                with self._lock:
                    pair = self._pairs[event.qpn]
                    over = self._handle(pair, event)
                if over is not None:
                    device.release(over.region)
                    over.end()

    def _handle(self, pair: _Pair, event: VerbsEvent) -> MessageWork | None:
        """The work that an event completes."""
        if pair.error is not None:  # what comes after a failure completes nothing
            return None
        if event.kind is EventKind.FAILED:
            self._fail(VerbsError(f"queue pair to rank {pair.rank}: {event.status}"))
            return None
        if event.kind is EventKind.CREDIT_CAME:
            credit = pair.device.take(pair.handle, event.receive)
            if event.slot in pair.sends:
                self._post(pair, event.slot, credit)
            else:
                pair.credits[event.slot] = credit
            return None
        if event.kind is EventKind.MESSAGE_CAME:
            pair.device.take(pair.handle, event.receive)
            return pair.receives.pop(event.slot)
        pair.under_way -= 1
        over = pair.sends.pop(event.slot) if event.kind is EventKind.MESSAGE_SENT else None
        self._fill(pair)
        return over

    def _fail(self, error: VerbsError) -> None:
        """End all messages of the rank: it cannot go on, and would else wait for one of another
        rank, which may itself wait for others, while nobody says what has failed."""
        for pair in self._pairs.values():
            if pair.error is None:
                pair.error = error
            for works in (pair.receives, pair.sends):
                for work in works.values():
                    work.end(error)
                works.clear()


def _register(pair: _Pair, tensor: torch.Tensor) -> MessageWork:
    assert tensor.is_contiguous()
    size_bytes = tensor.numel() * tensor.element_size()
    return MessageWork(tensor, pair.device.register(tensor.data_ptr(), size_bytes))


def _refuse_failed(pair: _Pair) -> None:
    if pair.error is not None:
        raise pair.error


class QueuePairLinks:
    """A rank's queue pairs with the others of a group. It stands in for torch's group where
    programs send and receive; peers are numbers in the group."""

    def __init__(
        self,
        devices: RankDevices,
        store: dist.Store,
        name: str,
        ranks: Sequence[int],
        me: int,
        log: EndLog,
    ) -> None:
        """Waits for the whole group, whose own keys are in the store. Raises VerbsError."""
        place = devices.place
        self._devices = devices
        self._place = place
        self._pairs: dict[int, list[_Pair]] = {}
        numbers: dict[int, list[int]] = {}
        for number, rank in enumerate(ranks):
            if rank != me:
                made = [devices.make(rank) for _ in range(place.connections)]
                self._pairs[number] = [pair for pair, _ in made]
                numbers[rank] = [qpn for _, qpn in made]
        told = {"address": place.address, "numbers": numbers}
        store.set(f"{me}", json.dumps(told))
        for number, rank in enumerate(ranks):
            if rank == me:
                continue
            store.wait([f"{rank}"], _TIMEOUT)
            theirs = json.loads(store.get(f"{rank}"))
            for pair, own, other in zip(
                self._pairs[number], numbers[rank], theirs["numbers"][str(me)], strict=True
            ):
                peer = Peer(theirs["address"], other, _start_psn(rank), _start_psn(me))
                pair.device.connect(
                    pair.handle,
                    peer,
                    place.path_mtu_bytes,
                    place.timeout_exponent,
                    place.retries,
                )
                ends = LoggedEnds(
                    own, peer.qpn, peer.own_psn, peer.psn, place.address, peer.address
                )
                log.end("queue_pair", name, rank, asdict(ends))
        # A rank whose queue pair is not connected yet would not hear of a credit.
        store.set(f"{me} connected", "")
        store.wait([f"{rank} connected" for rank in ranks], _TIMEOUT)

    def send(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it. Raises VerbsError."""
        parts = self._parts(tensors, peer, slot)
        return together([self._devices.send(pair, part, slot) for pair, part in parts])

    def recv(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it. Raises VerbsError."""
        parts = self._parts(tensors, peer, slot)
        return together([self._devices.receive(pair, part, slot) for pair, part in parts])

    def _parts(
        self, tensors: list[torch.Tensor], peer: int, slot: int
    ) -> list[tuple[_Pair, torch.Tensor]]:
        """The part of a message that goes by each queue pair, of whole packets but for the last."""
        (tensor,) = tensors
        pairs, parts = self._pairs[peer], parts_of(tensor, self._place.between_ranks, slot)
        return [(pairs[number], data) for number, data in parts]


def _start_psn(rank: int) -> int:
    """The first packet number of a rank: not the same for all, and the same in every run."""
    return (rank + 1) * 0x1_0001 & 0xFF_FFFF
