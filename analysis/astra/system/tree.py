"""The double binary tree: reduce to the root, broadcast back; chunks alternate between trees."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from analysis.astra.network.memory_bus import Crossing
from analysis.astra.system.phase import DimensionPhase
from analysis.astra.system.stream import ChunkStream


class _State(Enum):
    BEGIN = auto()
    TO_PARENT = auto()
    FROM_PARENT = auto()
    FROM_TWO_CHILDREN = auto()
    FROM_ONE_CHILD = auto()
    TO_CHILDREN = auto()
    END = auto()


class TreeAllReduce:
    """One rank's part, after collective_algorithm/DoubleBinaryTreeAllReduce.cc.

    A message that comes down from the parent is reduced once more in an inner node there, which
    is no mistake of this copy.
    """

    def __init__(self, stream: ChunkStream, phase: DimensionPhase) -> None:
        assert phase.place is not None
        self.stream = stream
        self.system = stream.system
        self.size_bytes = phase.size_bytes
        self.place = phase.place
        self.state = _State.BEGIN
        self.reductions = 0
        self._step: Callable[[bool], None]
        if self.place.parent is None:
            self._step = self._root
        elif self.place.left is None and self.place.right is None:
            self._step = self._leaf
        else:
            self._step = self._inner

    def start(self) -> None:
        """The stream is admitted to its queue."""
        self._step(False)

    def received(self, _: Any) -> None:
        """A message has arrived."""
        self._step(True)

    def crossed_bus(self, _: Any) -> None:
        """A packet has crossed the memory bus."""
        self._step(False)

    def _leaf(self, _received: bool) -> None:
        if self.state is _State.BEGIN:
            self.state = _State.TO_PARENT
            self._cross_bus(to_memory=True, reduce=False)
        elif self.state is _State.TO_PARENT:
            self._send(self.place.parent)
            self._receive(self.place.parent)
            self.state = _State.FROM_PARENT
        elif self.state is _State.FROM_PARENT:
            self.state = _State.END
            self._cross_bus(reduce=False)
        else:
            self.system.phase_done(self.stream)

    def _inner(self, received: bool) -> None:
        if self.state is _State.BEGIN:
            self.state = _State.FROM_TWO_CHILDREN
            self._receive(self.place.left)
            self._receive(self.place.right)
        elif self.state is _State.FROM_TWO_CHILDREN and received:
            self.state = _State.FROM_ONE_CHILD
            self._cross_bus(reduce=True)
        elif self.state is _State.FROM_ONE_CHILD and received:
            self.state = _State.TO_PARENT
            self._cross_bus(reduce=True, send_back=True)
        elif self.reductions < 1 and not received:
            self.reductions += 1
        elif self.state is _State.TO_PARENT:
            self.state = _State.FROM_PARENT
            self._send(self.place.parent)
            self._receive(self.place.parent)
        elif self.state is _State.FROM_PARENT and received:
            self.state = _State.TO_CHILDREN
            self._cross_bus(reduce=True, send_back=True)
        elif self.state is _State.TO_CHILDREN:
            self._send(self.place.left)
            self._send(self.place.right)
            self.system.phase_done(self.stream)

    def _root(self, _received: bool) -> None:
        child = self.place.right if self.place.left is None else self.place.left
        if self.state is _State.BEGIN:
            self.state = _State.FROM_ONE_CHILD
            self._receive(child)
        elif self.state is _State.FROM_ONE_CHILD:
            self.state = _State.TO_CHILDREN
            self._cross_bus(reduce=True, send_back=True)
        elif self.state is _State.TO_CHILDREN:
            self._send(child)
            self.system.phase_done(self.stream)

    def _cross_bus(self, *, to_memory: bool = False, reduce: bool, send_back: bool = False) -> None:
        callback = self._reduce if reduce else self.stream.crossed_bus
        crossing = Crossing(to_memory, False, self.size_bytes, reduce, send_back)
        self.system.bus.cross(crossing, callback, None)

    def _reduce(self, _: Any) -> None:
        self.system.local.after(
            self.system.reduction_ns(self.size_bytes), self.stream.crossed_bus, None
        )

    def _send(self, peer: int | None) -> None:
        assert peer is not None
        self.system.network.send((self.system.rank, peer, self.stream.tag, self.size_bytes))

    def _receive(self, peer: int | None) -> None:
        assert peer is not None
        way = (peer, self.system.rank, self.stream.tag, self.size_bytes)
        self.system.network.receive(way, self.stream.received)
