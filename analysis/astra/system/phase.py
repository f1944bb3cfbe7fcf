"""The work of one chunk in one dimension."""

from dataclasses import dataclass
from enum import Enum

from analysis.astra.errors import AstraRefused
from analysis.astra.files.system import Implementation
from analysis.astra.system.logical import LogicalRing, TreeNode


class AstraCollective(Enum):
    """The collectives that ASTRA-sim's system layer runs."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"


@dataclass(frozen=True, slots=True)
class DimensionPhase:
    """One chunk's pass through one dimension.

    `queue` is the queue it waits in, `step` the direction round the ring (+1 or -1).
    `place` is set instead of `ring` for the double binary tree.
    """

    collective: AstraCollective
    implementation: Implementation
    size_bytes: int
    queue: int
    step: int
    ring: LogicalRing | None = None
    place: TreeNode | None = None
    members: int = 0

    def __post_init__(self) -> None:
        if (
            self.implementation.algorithm == "halvingDoubling"
            and self.collective is AstraCollective.ALL_TO_ALL
        ):
            raise AstraRefused(
                "all-to-all by halvingDoubling: ASTRA-sim has no such algorithm and exits"
            )

    def final_size_bytes(self) -> int:
        """The bytes that the next phase starts with."""
        # The tree always reduces to all, whatever it was asked for.
        if self.implementation.algorithm != "doubleBinaryTree":
            if self.collective is AstraCollective.ALL_GATHER:
                return self.size_bytes * self.members
            if self.collective is AstraCollective.REDUCE_SCATTER:
                return self.size_bytes // self.members
        return self.size_bytes
