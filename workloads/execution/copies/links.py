"""The ends of a participant's copies, and the links of its groups."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from workloads.execution.clock import now_ns
from workloads.execution.copies.place import MOST_OVER, OVER, POST, CopiesPlace
from workloads.execution.transports.interface import Links, Message

if TYPE_CHECKING:
    import torch


class CopyError(RuntimeError):
    """Nobody has copies take their time any more."""


class CopyWork:
    """A copy under way at one of its ends; it can be waited for, as torch's works are. Both ends
    are complete when the copy is."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor: torch.Tensor | None = tensor  # the memory must stay
        self._over = Event()
        self._error: CopyError | None = None

    def wait(self) -> None:
        """Block until it is complete. Raises CopyError."""
        self._over.wait()
        if self._error is not None:
            raise self._error

    def end(self, error: CopyError | None = None) -> None:
        """It is complete, or will never be."""
        self._error = error
        self._tensor = None
        self._over.set()


class CopyEnds:
    """A participant's ends, and the thread that hears which copies are complete."""

    def __init__(self, place: CopiesPlace) -> None:
        """Raises OSError."""
        self.place = place
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(str(place.socket))
        self._works: dict[int, CopyWork] = {}
        self._numbers = count()
        self._lock = Lock()
        Thread(target=self._work, daemon=True).start()

    def post(
        self, sends: bool, tensor: torch.Tensor, links: tuple[int, int], name: bytes, slot: int
    ) -> CopyWork:
        """Post an end of a message. Raises OSError."""
        assert tensor.is_contiguous()
        size_bytes = tensor.numel() * tensor.element_size()
        work = CopyWork(tensor)
        with self._lock:
            number = next(self._numbers) & 0xFFFF_FFFF
            self._works[number] = work
        fields = sends, *links, size_bytes, tensor.data_ptr(), now_ns(), number, slot
        self._socket.send(POST.pack(*fields) + name)
        return work

    def _work(self) -> None:
        while found := self._socket.recv(MOST_OVER * OVER.size):
            with self._lock:
                over = [self._works.pop(number) for (number,) in OVER.iter_unpack(found)]
            for work in over:
                work.end()
        with self._lock:
            left, self._works = list(self._works.values()), {}
        for work in left:
            work.end(CopyError("the copies of the run have ended"))


@dataclass(frozen=True, slots=True)
class RankCopies:
    """The copies of a rank; `hosts` are by rank of the run."""

    ends: CopyEnds
    hosts: Sequence[str]

    def links(self, group: str, ranks: Sequence[int], me: int, otherwise: Links | Any) -> Links:
        """Those of a group, whose member `me` it is; `otherwise` where no other member is in its
        server."""
        nodes = [self.hosts[rank] for rank in ranks]
        if not self.ends.place.copies_to(nodes):
            return otherwise
        return CopyLinks(self.ends, group, nodes, me, otherwise)


class CopyLinks:
    """A participant's links with the others of a group. It stands in for torch's group where
    programs send and receive; peers are numbers in the group. Messages that are no copies go by
    `otherwise`."""

    def __init__(
        self, ends: CopyEnds, group: str, nodes: Sequence[str], me: int, otherwise: Links | Any
    ) -> None:
        """`nodes` are those of the group's members, of which this is number `me`. No other group of
        the run has its name."""
        self._ends = ends
        self._group = ends.place.prefix + group
        self._me = me
        self._otherwise = otherwise
        between = ends.place.paths.between
        self._out = [between(nodes[me], node) for node in nodes]
        self._into = [between(node, nodes[me]) for node in nodes]

    def reaches(self, peer: int) -> bool:
        """Whether messages to a member are copies."""
        return self._out[peer] is not None

    def send(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it. Raises OSError."""
        links = self._out[peer]
        if links is None:
            return self._otherwise.send(tensors, peer, slot)
        return self._post(True, tensors, links, self._me, peer, slot)

    def recv(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it. Raises OSError."""
        links = self._into[peer]
        if links is None:
            return self._otherwise.recv(tensors, peer, slot)
        return self._post(False, tensors, links, peer, self._me, slot)

    def _post(
        self,
        sends: bool,
        tensors: list[torch.Tensor],
        links: tuple[int, int],
        source: int,
        destination: int,
        slot: int,
    ) -> CopyWork:
        (tensor,) = tensors
        name = f"{self._group} {source} {destination}".encode()
        return self._ends.post(sends, tensor, links, name, slot)
