"""Logical topologies: the rings and binary trees that collectives run on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.astra.errors import AstraRefused


@dataclass(frozen=True)
class LogicalRing:
    """Ranks in ring order.

    `local` marks a communicator group's own ring: its end-host cost is a fixed 10 ns instead of
    the endpoint delay (system/MemBus.cc, Transmition::Fast).
    """

    members: tuple[int, ...]
    local: bool = False
    positions: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = {rank: position for position, rank in enumerate(self.members)}
        object.__setattr__(self, "positions", positions)

    def __len__(self) -> int:
        return len(self.members)

    def after(self, rank: int, steps: int) -> int:
        """The rank `steps` further along (backwards when negative)."""
        return self.members[(self.positions[rank] + steps) % len(self.members)]


@dataclass(frozen=True)
class TreeNode:
    """One rank's place in a binary tree; None where there is no rank."""

    parent: int | None
    left: int | None
    right: int | None


def dimension_ring(rank: int, size: int, stride: int) -> tuple[int, ...]:
    """The ranks that share all of `rank`'s addresses except in the dimension with this stride."""
    first = rank - rank % (stride * size) // stride * stride
    return tuple(range(first, first + stride * size, stride))


def binary_tree(members: Sequence[int], root_max: bool) -> dict[int, TreeNode]:
    """ASTRA-sim's tree: numbered in order, one child under the root and a full tree below it.

    `root_max` puts that child left of the root, so that the root is the last member; otherwise
    the root is the first. Raises AstraRefused unless the members are a power of two: the
    original builds a smaller tree then and dereferences a null pointer.
    """
    if len(members) & (len(members) - 1) or len(members) < 2:
        raise AstraRefused(
            f"doubleBinaryTree over {len(members)} ranks: ASTRA-sim crashes unless the ranks of "
            "the dimension are a power of two"
        )
    tree: dict[int, TreeNode] = {}

    def grow(low: int, high: int, parent: int | None) -> int | None:
        """The full tree over members[low:high]; returns its root."""
        if low >= high:
            return None
        middle = (low + high) // 2
        rank = members[middle]
        tree[rank] = TreeNode(parent, grow(low, middle, rank), grow(middle + 1, high, rank))
        return rank

    last = len(members) - 1
    if root_max:
        tree[members[last]] = TreeNode(None, grow(0, last, members[last]), None)
    else:
        tree[members[0]] = TreeNode(None, None, grow(1, last + 1, members[0]))
    return tree
