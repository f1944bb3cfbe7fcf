"""The buckets in which a backward pass sends gradients, as PyTorch's DDP does (Li et al., VLDB
2020), but of whole layers."""

from __future__ import annotations

from collections.abc import Iterator

from collectives.kinds import Kind
from topologies.spec.workload_types import GroupName
from workloads.models.step import StartCollective, WaitFor


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

    def add(self, parameters: int) -> Iterator[StartCollective | WaitFor]:
        """The gradients of a layer are there; the bucket goes out if that fills it."""
        self._filled += parameters
        if self._filled >= self._capacity:
            yield from self.flush()

    def flush(self) -> Iterator[StartCollective | WaitFor]:
        """Send what is left, at the end of the pass."""
        if self._filled == 0:
            return
        name = f"{self._phase}.{len(self._sent)}"
        yield StartCollective(name, self._phase, Kind.ALL_REDUCE, self._filled, self._group)
        self._filled = 0
        self._sent.append(name)
        if not self._overlap:
            yield WaitFor(name)

    def wait(self) -> Iterator[WaitFor]:
        """Wait for the buckets that have not been waited for."""
        if self._overlap:
            yield from map(WaitFor, self._sent)
