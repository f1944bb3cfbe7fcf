"""The words for ranks that have called different collectives, by what each noted of its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from collectives.waiting_ranks import named_ranks
from emulator.ranks.failures.calls import Call, read_calls


def different_collectives(ranks: Path) -> str:
    """A line about the first collective of a group that ranks have called differently, by the files
    below the folder `ranks`; empty where there is none."""
    calls: dict[tuple[int, str], dict[int, Call]] = defaultdict(dict)
    for rank, of_rank in sorted(read_calls(ranks).by_rank.items()):
        for call in of_rank:
            if not call.is_message:
                calls[call.number, call.group][rank] = call
    for (number_in_group, group), by_rank in sorted(calls.items()):
        first = by_rank[min(by_rank)]
        if not all(call.fits(first) for call in by_rank.values()):
            told = _told(group, number_in_group, by_rank)
            return f"\nRanks have called different collectives: {told}"
    return ""


def _told(label: str, number: int, by_rank: Mapping[int, Call]) -> str:
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, call in sorted(by_rank.items()):
        ranks_of[call.what].append(rank)
    said = "; ".join(f"{named_ranks(ranks)} called {what}" for what, ranks in ranks_of.items())
    return f"as number {number} of group {label}, {said}"
