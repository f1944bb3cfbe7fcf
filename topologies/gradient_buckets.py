"""The buckets in which a backward pass sends gradients, as PyTorch's DDP does (Li et al., VLDB
2020), but of whole layers."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.step import Collective, GroupName, Wait


class GradientBuckets:
    """Filled by one backward pass. Without `overlap` a bucket is waited for as soon as it is
    sent; `capacity` is in parameters."""

    def __init__(self, phase: str, group: GroupName, capacity: int, *, overlap: bool) -> None:
        self._phase = phase
        self._group = group
        self._capacity = capacity
        self._overlap = overlap
        self._filled = 0
        self._sent: list[str] = []

    def add(self, parameters: int) -> Iterator[Collective | Wait]:
        """The gradients of a layer are there; the bucket goes out if that fills it."""
        self._filled += parameters
        if self._filled >= self._capacity:
            yield from self.flush()

    def flush(self) -> Iterator[Collective | Wait]:
        """Send what is left, at the end of the pass."""
        if self._filled == 0:
            return
        name = f"{self._phase}.{len(self._sent)}"
        yield Collective(name, self._phase, "all_reduce", self._filled, self._group)
        self._filled = 0
        self._sent.append(name)
        if not self._overlap:
            yield Wait(name)

    def wait(self) -> Iterator[Wait]:
        """Wait for those that have not been waited for."""
        if self._overlap:
            yield from map(Wait, self._sent)
