"""Few prefixes that route many addresses: optimal aggregation with don't-cares."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

FABRIC_NETWORK = IPv4Network("10.0.0.0/8")


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the trie: the longest prefix of all addresses below, and its two children
    (indices; -1 for a leaf). `leaf` is the position of its address in the input, -1 inside."""

    network: int
    length: int
    left: int
    right: int
    leaf: int


class AddressTrie:
    """A path-compressed binary trie over distinct addresses, children before parents."""

    def __init__(self, addresses: Sequence[IPv4Address]) -> None:
        values = [int(address) for address in addresses]
        order = sorted(range(len(values)), key=values.__getitem__)
        self.branches: list[Branch] = []
        self._values = values
        if order:
            self._grow(order)

    def _grow(self, order: list[int]) -> int:
        low, high = self._values[order[0]], self._values[order[-1]]
        length = 32 - (low ^ high).bit_length()
        if len(order) == 1:
            self.branches.append(Branch(low, 32, -1, -1, order[0]))
            return len(self.branches) - 1
        half = 1 << (31 - length)
        network = high & ~(2 * half - 1)
        cut = next(i for i, leaf in enumerate(order) if self._values[leaf] >= network + half)
        left, right = self._grow(order[:cut]), self._grow(order[cut:])
        self.branches.append(Branch(network, length, left, right, -1))
        return len(self.branches) - 1

    def merged(self, groups: Sequence[Hashable]) -> AddressTrie:
        """This trie with each largest branch whose addresses i are all of one `groups[i]` made a
        leaf, for which the lowest of its addresses stands."""
        merged = AddressTrie(())
        places: list[tuple[int, Hashable | None]] = []
        for branch in self.branches:
            if branch.leaf >= 0:
                places.append((branch.leaf, groups[branch.leaf]))
                continue
            (left, group), (_, other) = places[branch.left], places[branch.right]
            places.append((left, group if group == other else None))

        def copy(index: int) -> int:
            branch, (leaf, group) = self.branches[index], places[index]
            if group is not None:
                merged.branches.append(Branch(branch.network, branch.length, -1, -1, leaf))
            else:
                left, right = copy(branch.left), copy(branch.right)
                merged.branches.append(Branch(branch.network, branch.length, left, right, -1))
            return len(merged.branches) - 1

        if self.branches:
            copy(len(self.branches) - 1)
        return merged

    def aggregate(self, label_of: Callable[[int], int | None]) -> list[tuple[IPv4Network, int]]:
        """The fewest prefixes whose longest match gives address i its `label_of(i)`.

        Labels are small non-negative integers; None is an address that may go anywhere, as may all
        addresses that are not in the trie. ORTC (Draves, King, Venkatachary, Zill: Constructing
        Optimal IP Routing Tables, INFOCOM 1999), in which a don't-care is the set of all labels.
        Ordered from the shortest prefix, which is all of 10.0.0.0/8.
        """
        branches = self.branches
        sets = [0] * len(branches)
        for i, branch in enumerate(branches):
            if branch.leaf >= 0:
                label = label_of(branch.leaf)
                sets[i] = -1 if label is None else 1 << label
            else:
                left, right = sets[branch.left], sets[branch.right]
                sets[i] = left & right or left | right
        if not branches or sets[-1] == -1:
            return []
        rows: list[tuple[int, int, int]] = []
        top = len(branches) - 1
        pending = [(top, -1)]
        while pending:
            i, inherited = pending.pop()
            branch = branches[i]
            if inherited < 0 or not sets[i] >> inherited & 1:
                inherited = (sets[i] & -sets[i]).bit_length() - 1
                rows.append((branch.length if i != top else -1, branch.network, inherited))
            if branch.leaf < 0:
                pending += ((branch.right, inherited), (branch.left, inherited))
        return [
            (_network(network, length) if length >= 0 else FABRIC_NETWORK, label)
            for length, network, label in sorted(rows)
        ]


@lru_cache(maxsize=1 << 16)
def _network(network: int, length: int) -> IPv4Network:
    return IPv4Network((network, length))
