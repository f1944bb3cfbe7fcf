"""The buckets of a resilient group: which next hop each has, computed as Linux's kernel does.

A hash names a bucket (`hash % buckets`), and the bucket a next hop. A group that is replaced keeps
the buckets of next hops that it still has.

Source: Linux 6.12, net/ipv4/nexthop.c (nexthop_select_path_res, nh_res_group_rebalance,
nh_res_table_migrate_buckets, nh_res_table_upkeep).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Shares = tuple[tuple[int, int], ...]
"""The next hops of a group and their weights, in the group's order. A next hop is a number."""

Buckets = tuple[int, ...]
"""The next hop of each bucket."""


class UnknownBuckets(ValueError):
    """Which buckets move hangs on which of them carry packets, and when."""


def filled(shares: Shares, buckets: int) -> Buckets:
    """The buckets of a group that is made. Raises ValueError for a group of nobody."""
    return _filled([None] * buckets, shares, moves_idle=True)


def replaced(before: Buckets, shares: Shares, *, moves_idle: bool) -> Buckets:
    """The buckets of a group that is given other next hops or weights.

    `moves_idle`: buckets are idle at once (an idle timer of 0), so that next hops with too many
    give them away. Raises UnknownBuckets where one has too many, and they are not; ValueError for
    a group of nobody.
    """
    stay = {hop for hop, _ in shares}
    return _filled([hop if hop in stay else None for hop in before], shares, moves_idle=moves_idle)


def wanted(shares: Shares, buckets: int) -> dict[int, int]:
    """How many buckets each next hop is to have (nh_res_group_rebalance)."""
    total = sum(weight for _, weight in shares)
    found: dict[int, int] = {}
    reached = bound = 0
    for hop, weight in shares:
        reached += weight
        before, bound = bound, (buckets * reached + total // 2) // total
        found[hop] = bound - before
    return found


def _filled(held: Sequence[int | None], shares: Shares, *, moves_idle: bool) -> Buckets:
    """One pass over the buckets (nh_res_table_upkeep): those of nobody, and those of a next hop
    that has too many, go to the next hop that has too few and stands last in the group."""
    if not shares:
        raise ValueError("a group of no next hop has no buckets")
    wants = wanted(shares, len(held))
    has = Counter(hop for hop in held if hop is not None)
    if not moves_idle and any(has[hop] > wants[hop] for hop in has):
        raise UnknownBuckets("a next hop has more buckets than its share, and they are in use")
    short = [hop for hop in wants if has[hop] < wants[hop]]
    found: list[int] = []
    for hop in held:
        if hop is None or has[hop] > wants[hop]:
            if hop is not None:
                has[hop] -= 1
            hop = short[-1]
            has[hop] += 1
            if has[hop] == wants[hop]:
                short.pop()
        found.append(hop)
    return tuple(found)
