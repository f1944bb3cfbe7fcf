"""Aggregation: exact, and never larger than the table it replaces."""

from __future__ import annotations

from ipaddress import IPv4Address
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.routing.prefix_table import AddressTrie

BASE = int(IPv4Address("10.3.0.0"))

tables = st.dictionaries(
    st.integers(0, 300), st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=60
)


def matched(rows: list[tuple[object, int]], address: IPv4Address) -> int | None:
    best = max(
        (row for row in rows if address in row[0]),  # type: ignore[operator]
        key=lambda row: row[0].prefixlen,  # type: ignore[attr-defined]
        default=None,
    )
    return best[1] if best is not None else None


@settings(max_examples=200, deadline=None)
@given(tables)
def test_longest_match_gives_every_address_its_label(table: dict[int, int | None]) -> None:
    addresses = [IPv4Address(BASE + offset) for offset in table]
    labels = list(table.values())
    rows = AddressTrie(addresses).aggregate(labels.__getitem__)
    assert len({prefix for prefix, _ in rows}) == len(rows)
    wanted = [label for label in labels if label is not None]
    assert len(rows) <= len(wanted)
    for address, label in zip(addresses, labels, strict=True):
        if label is not None:
            assert matched(list(rows), address) == label


@settings(max_examples=100, deadline=None)
@given(tables, st.integers(1, 4))
def test_merging_groups_changes_no_answer(table: dict[int, int | None], span: int) -> None:
    offsets = list(table)
    addresses = [IPv4Address(BASE + offset) for offset in offsets]
    groups = [offset >> span for offset in offsets]
    trie = AddressTrie(addresses)
    by_group = {group: group % 3 for group in groups}
    rows = trie.merged(groups).aggregate(lambda i: by_group[groups[i]])
    for address, group in zip(addresses, groups, strict=True):
        assert matched(list(rows), address) == by_group[group]
    assert len(rows) == len(trie.aggregate(lambda i: by_group[groups[i]]))


def test_no_smaller_table_exists() -> None:
    """All labellings of 8 neighbouring addresses by two labels, against exhaustive search."""
    addresses = [IPv4Address(BASE + i) for i in range(8)]
    trie = AddressTrie(addresses)

    def fewest(labels: tuple[int, ...], inherited: int) -> int:
        """Prefixes needed for this aligned block, given what it inherits (-1: nothing)."""
        if set(labels) == {inherited}:
            return 0
        here = []
        for emitted in {inherited, *labels} - {-1}:
            cost = 0 if emitted == inherited else 1
            if len(labels) == 1:
                here.append(cost if emitted == labels[0] else 99)
            else:
                half = len(labels) // 2
                here.append(cost + fewest(labels[:half], emitted) + fewest(labels[half:], emitted))
        return min(here)

    for labels in product((0, 1), repeat=8):
        assert len(trie.aggregate(labels.__getitem__)) == fewest(labels, -1)


def test_nothing_to_route_is_an_empty_table() -> None:
    assert AddressTrie([]).aggregate(lambda i: 0) == []
    assert AddressTrie([IPv4Address("10.0.0.1")]).aggregate(lambda i: None) == []
