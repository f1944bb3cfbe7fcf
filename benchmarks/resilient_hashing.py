"""How many flows move when a next hop goes, by thresholds and by tables of buckets:

    python -m benchmarks.resilient_hashing

100,000 hashes, each way as Linux computes it (`topologies.routing`); the mean over five places of
the next hop that goes. In brackets is the share of the flows of other next hops that move.
"""

from __future__ import annotations

from random import Random

from topologies.routing.buckets import filled, replaced
from topologies.routing.ecmp_hash import select

_FLOWS = 100_000
_HOPS = (2, 4, 8, 16, 32)
_BUCKETS = (64, 128, 512)


def _hashes() -> list[int]:
    drawn = Random(1)
    return [drawn.getrandbits(31) for _ in range(_FLOWS)]


def _share(before: list[int], after: list[int], gone: int) -> tuple[float, float]:
    """The shares of all flows that move, and of those of next hops that stay."""
    moved = sum(was != now for was, now in zip(before, after, strict=True))
    needless = sum(was not in (now, gone) for was, now in zip(before, after, strict=True))
    return moved / _FLOWS, needless / (_FLOWS - before.count(gone))


def _by_thresholds(hashes: list[int], hops: int, gone: int) -> tuple[float, float]:
    left = [hop for hop in range(hops) if hop != gone]
    before = [select(each, [1] * hops) for each in hashes]
    after = [left[select(each, [1] * len(left))] for each in hashes]
    return _share(before, after, gone)


def _by_buckets(hashes: list[int], hops: int, gone: int, buckets: int) -> tuple[float, float]:
    shares = tuple((hop, 1) for hop in range(hops))
    table = filled(shares, buckets)
    other = replaced(table, tuple(e for e in shares if e[0] != gone), moves_idle=True)
    before, after = ([of[each % buckets] for each in hashes] for of in (table, other))
    return _share(before, after, gone)


def main() -> None:
    hashes = _hashes()
    names = ["thresholds", *(f"{buckets} buckets" for buckets in _BUCKETS)]
    print("next hops | " + " | ".join(names))
    for hops in _HOPS:
        places = sorted({0, hops // 4, hops // 2, 3 * hops // 4, hops - 1})
        cells = []
        for way in (None, *_BUCKETS):
            found = [
                _by_thresholds(hashes, hops, gone)
                if way is None
                else _by_buckets(hashes, hops, gone, way)
                for gone in places
            ]
            moved, needless = (sum(each) / len(found) for each in zip(*found, strict=True))
            cells.append(f"{moved:.1%} ({needless:.1%})")
        print(f"{hops} | " + " | ".join(cells))


if __name__ == "__main__":
    main()
