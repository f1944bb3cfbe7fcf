"""The parts that a transport has to have in a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from emulator.network.network import Network, SetUp
from topologies.spec.spec import Spec
from workloads.execution.transports.interface import Place


class TooLittleMemory(ValueError):
    """A guest whose memory has no room for what a transport is known to take."""


class EmulatedTransport(ABC):
    """A transport: questions before a run, objects that a run needs, and figures that are read
    after it."""

    counted_as: str | None = None
    """The name of its counters in environment.json; None: its kind."""

    starts_alike: bool
    """Whether all that a guest does before it reads a spec is the same as with TCP, so that copies
    of a guest that is prepared for any run serve."""

    @abstractmethod
    def missing_natively(self, spec: Spec) -> list[str]:
        """The things that this machine's own kernel lacks for it, in words."""

    @abstractmethod
    def prepare(self, spec: Spec, polls: bool) -> tuple[Path, ...]:
        """Make what has to be there before a kernel starts. `polls`: programs of users run in
        virtual time, where one that polls has to give way; returns the libraries that they are
        to be started with. Raises VirtualKernelError."""

    @abstractmethod
    def preloaded_natively(self, spec: Spec) -> tuple[Path, ...]:
        """The libraries that ranks and programs are to be started with on this machine's own
        kernel. Raises VirtualKernelError: one cannot be compiled."""

    @abstractmethod
    def set_up(self, spec: Spec) -> SetUp | None:
        """Make what hosts need beside their ports, in a network that comes up."""

    @abstractmethod
    def place(self, spec: Spec, network: Network, host: str, logs: Path) -> Place | None:
        """The place where ranks on a host find their ends; None where they use sockets alone.
        `logs` are those of the ranks. Raises VirtualKernelError."""

    @abstractmethod
    def environment(self, spec: Spec, place: Place | None) -> Mapping[str, str]:
        """More variables of programs on such a host, beside their place."""

    @abstractmethod
    def counters(self, network: Network) -> dict[str, int] | None:
        """The counters of its ends on all hosts, as environment.json has it below the
        transport's kind; None where they count nothing beside the hosts' TCP."""

    @abstractmethod
    def write_samples(self, network: Network, directory: Path) -> None:
        """Write what was sampled over time into a run directory. Raises OSError."""

    @abstractmethod
    def most_ranks_per_process(self, spec: Spec) -> int:
        """How many of a run's ranks a process has room for at most."""

    @abstractmethod
    def rank_bytes(self, spec: Spec, sent_bytes: int | None) -> int:
        """The memory in a guest of all ranks' ends and of packets under way, beyond that of
        sockets. `sent_bytes` is what all ranks send in an iteration at most, None where only the
        run tells."""

    @abstractmethod
    def fabric_bytes(self, spec: Spec) -> int:
        """The memory in a guest of what `set_up` makes."""

    @abstractmethod
    def refuse_memory(self, spec: Spec, memory_bytes: int) -> None:
        """Raises TooLittleMemory where a guest of so much memory has no room for the ends."""
