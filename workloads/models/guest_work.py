"""The needs of a workload's ranks in a kernel: the part `guest` of `topologies.spec.workloads`.

`emulator/guest_work.py` has those of lists, actions, replays and programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from topologies.spec.spec import Spec


class GuestWork(ABC):
    """The part of a workload in what a guest has to have. A spec has one workload. The run
    directory's files are there, where a workload has any."""

    @abstractmethod
    def tensors_bytes(self, spec: Spec, run_directory: Path) -> int:
        """The memory of tensors and calls of all ranks, at most. Raises OSError, ValueError."""

    @abstractmethod
    def sent_bytes(self, spec: Spec) -> int | None:
        """Payload that all ranks send in a run, at most; None where only the run tells."""

    @abstractmethod
    def computations_ns(self, spec: Spec, run_directory: Path) -> Iterator[int]:
        """The times for which a rank computes, where a model says them. Raises OSError,
        ValueError."""

    def connected(self, spec: Spec) -> int:
        """With how many others a rank is connected at the end, at most, on average, where ranks
        connect when they communicate."""
        return spec.workload.ranks - 1
