"""Trees: a binomial one, and NCCL's double binary tree (src/graph/trees.cc there)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, Team, rotated
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks

Edges = Sequence[tuple[int, int]]
"""A tree as (child, parent), so that every child comes after its own children."""


class AlongTrees(Algorithm):
    """All-reduce, reduce and broadcast along trees, each of which carries an equal part."""

    parts = frozenset({Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE})

    def trees(self, members: int) -> Sequence[Edges]:
        """Trees over positions; the root of each is the last parent."""
        raise NotImplementedError

    def rooted_trees(self, members: int) -> Sequence[Edges]:
        """Trees with position 0 as root."""
        raise NotImplementedError

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        trees = self.trees(team.size)
        team.builder.phase("reduce", Kind.REDUCE)
        for index, tree in enumerate(trees):
            _up(team, tree, team.members, blocks.part(index, len(trees)), team.channel + index)
        team.builder.phase("broadcast", Kind.BROADCAST)
        for index, tree in enumerate(trees):
            _down(team, tree, team.members, blocks.part(index, len(trees)), team.channel + index)

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("broadcast", Kind.BROADCAST)
        members = rotated(team.members, root)
        trees = self.rooted_trees(team.size)
        for index, tree in enumerate(trees):
            _down(team, tree, members, blocks.part(index, len(trees)), team.channel + index)

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("reduce", Kind.REDUCE)
        members = rotated(team.members, root)
        trees = self.rooted_trees(team.size)
        for index, tree in enumerate(trees):
            _up(team, tree, members, blocks.part(index, len(trees)), team.channel + index)


@dataclass(frozen=True, kw_only=True)
class Tree(AlongTrees):
    """One binomial tree, up and down: 2 log2(ranks) steps of all the data."""

    name = "tree"

    def trees(self, members: int) -> Sequence[Edges]:
        return (binomial_tree(members),)

    def rooted_trees(self, members: int) -> Sequence[Edges]:
        return self.trees(members)


@dataclass(frozen=True, kw_only=True)
class DoubleBinaryTree(AlongTrees):
    """Two binary trees, each with half of the data, in which no rank has two children twice.

    A broadcast and a reduce, whose root is given, use the two trees over the other ranks, both of
    whose roots are children of it.
    """

    name = "double-binary-tree"

    def grain(self, members: int) -> int:
        return 2

    def trees(self, members: int) -> Sequence[Edges]:
        return double_binary_tree(members)

    def rooted_trees(self, members: int) -> Sequence[Edges]:
        found = []
        for tree in double_binary_tree(members - 1):
            top = tree[-1][1] if tree else 0
            found.append([*((a + 1, b + 1) for a, b in tree), (top + 1, 0)])
        return found


def binomial_tree(members: int) -> Edges:
    """Child r's parent is r without its lowest bit."""
    edges = [(r, r & r - 1) for r in range(1, members)]
    return sorted(edges, key=lambda edge: (edge[0] & -edge[0], edge[0]))


def binary_tree(members: int) -> Edges:
    """NCCL's tree (ncclGetBtree): leaves are odd, 0 is the root with one child."""
    edges = []
    for rank in range(1, members):
        bit = rank & -rank
        parent = (rank ^ bit) | bit << 1
        if parent >= members:
            parent = rank ^ bit
        edges.append((rank, parent))
    # The top comes last; parents have a higher lowest bit than their children, or are 0.
    return sorted(edges, key=lambda edge: (edge[0] & -edge[0], edge[0]))


def double_binary_tree(members: int) -> tuple[Edges, Edges]:
    """NCCL's two trees (ncclGetDtree): the second is the mirror of the first for an even number,
    and the first one shifted by one for an odd number."""
    first = binary_tree(members)
    if members % 2 == 0:
        second = [(members - 1 - a, members - 1 - b) for a, b in first]
    else:
        second = [((a + 1) % members, (b + 1) % members) for a, b in first]
    return first, second


def _levels(tree: Edges) -> list[list[tuple[int, int]]]:
    """The edges by how many edges are below the child at most, lowest first."""
    height: dict[int, int] = {}
    levels: list[list[tuple[int, int]]] = []
    for child, parent in tree:
        level = height.get(child, 0)
        height[parent] = max(height.get(parent, 0), level + 1)
        levels.extend([] for _ in range(level + 1 - len(levels)))
        levels[level].append((child, parent))
    return levels


def _up(team: Team, tree: Edges, members: Sequence[int], part: Blocks, channel: int) -> None:
    for level in _levels(tree):
        moves = [Move(members[child], part, members[up], part, True) for child, up in level]
        team.builder.round(moves, channel)


def _down(team: Team, tree: Edges, members: Sequence[int], part: Blocks, channel: int) -> None:
    for level in reversed(_levels(tree)):
        moves = [Move(members[up], part, members[child], part) for child, up in level]
        team.builder.round(moves, channel)
