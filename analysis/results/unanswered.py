"""Predictions that a result lacks, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any


def unanswered_in_words(result: Mapping[str, Any]) -> list[str]:
    """A sentence, without its full stop, for each reason why predictors have no answer: which of
    them, and for how many collectives or iterations."""
    found = []
    for key, one in (("collectives", "collective"), ("iterations", "iteration")):
        counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for row in result.get(key, ()):
            for name, answer in row.get("predicted", {}).items():
                if answer.get("reason") is not None:
                    counts[answer["reason"]][name] += 1
        for reason, by_name in counts.items():
            for many in sorted(set(by_name.values())):
                names = [name for name, count in by_name.items() if count == many]
                what = f"{many} {one}s" if many > 1 else f"one {one}"
                have = "have" if len(names) > 1 else "has"
                found.append(f"{_listed(names)} {have} no answer for {what}: {reason}")
    return found


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
