"""Several sockets of two ranks: a Gloo mesh for each connection, and messages spread over them.

A mesh is a process group of Gloo's, which has one socket for each two of its ranks. The first is
the group's own. Parts of a message have its slot as their tag, each in a mesh of its own, so that
they look on the wire as messages of Gloo's do (docs/gloo-wire-format.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from topologies.spec.transports.connections import Connections
from workloads.execution.transports.interface import Links, Message


class SpreadLinks:
    """A rank's sockets with the others of a group. It stands in for torch's group where programs
    send and receive; peers are numbers in the group, as the `meshes` count them."""

    def __init__(self, meshes: Sequence[Links], between: Connections) -> None:
        assert len(meshes) == between.count
        self._meshes = meshes
        self._between = between

    def send(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it."""
        return together(
            [
                self._meshes[number].send([part], peer, slot)
                for number, part in self._parts(tensors, slot)
            ]
        )

    def recv(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it."""
        return together(
            [
                self._meshes[number].recv([part], peer, slot)
                for number, part in self._parts(tensors, slot)
            ]
        )

    def _parts(self, tensors: list[torch.Tensor], slot: int) -> list[tuple[int, torch.Tensor]]:
        (tensor,) = tensors
        return parts_of(tensor, self._between, slot)


def parts_of(
    tensor: torch.Tensor, between: Connections, slot: int
) -> list[tuple[int, torch.Tensor]]:
    """The part of a message that goes by each connection, with its number."""
    parts = between.parts(tensor.numel() * tensor.element_size(), slot)
    if len(parts) == 1:
        return [(parts[0][0], tensor)]
    cut = tensor.reshape(-1).view(torch.uint8).split([size for _, size in parts])
    return [(number, data) for (number, _), data in zip(parts, cut, strict=True)]


class _Parts:
    """Parts of a message, which are complete when all of them are."""

    def __init__(self, works: Sequence[Message]) -> None:
        self._works = works

    def wait(self) -> None:
        """Block until they are. Raises what one of them raises."""
        for work in self._works:
            work.wait()


def together(works: Sequence[Message]) -> Message:
    """A message of these parts."""
    return works[0] if len(works) == 1 else _Parts(works)
