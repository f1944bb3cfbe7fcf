"""The times that users of a served model see, of the messages that were measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from analysis.results.rows import Predicted, ResultRow
from analysis.runs.collectives import MeasuredCollective
from topologies.spec.kv_cache_section import KvCacheWorkload
from topologies.spec.spec import Spec
from topologies.units import format_time
from workloads.models.kv_cache import Answer, answers, transfers_of


class KvCacheRow(ResultRow):
    """`kv_cache` of result.json: measured, and by predictor what its messages make of it."""

    key: ClassVar[str] = "kv_cache"

    def row(
        self,
        spec: Spec,
        collectives: Sequence[MeasuredCollective],
        predicted: Sequence[Predicted],
    ) -> dict[str, Any]:
        """Its figures."""
        workload = spec.workload
        assert isinstance(workload, KvCacheWorkload)
        measured = [collective.duration_ns for collective in collectives]
        found = _figures(_answers(workload, collectives, measured))
        found["predicted"] = {}
        for name in spec.predict:
            lasts = [each.get(name, {}).get("duration_ns") for each in predicted]
            known = [each for each in lasts if each is not None]
            found["predicted"][name] = (
                _figures(_answers(workload, collectives, known))
                if known and len(known) == len(collectives)
                else None
            )
        return found

    def in_words(self, row: Mapping[str, Any]) -> str:
        """The means, and the longest."""
        first, wait = row["first_token_ns"], row["wait_ns"]
        said = (
            f"{row['requests']} requests: the first token comes after {_time(first['mean'])} "
            f"(at most {_time(first['largest'])}), keys and values {_time(wait['mean'])} behind it "
            f"(at most {_time(wait['largest'])})"
        )
        token = row["token_ns"]
        if token is None:
            return said
        return (
            f"{said}; each further token takes {_time(token['mean'])} (at most "
            f"{_time(token['largest'])})"
        )

    def responses(self, row: Mapping[str, Any]) -> Mapping[str, float]:
        """The means."""
        names = ("first_token_ns", "wait_ns", "token_ns")
        return {name: row[name]["mean"] for name in names if row[name] is not None}


def _time(ns: float) -> str:
    return format_time(round(ns))


def _answers(
    workload: KvCacheWorkload, collectives: Sequence[MeasuredCollective], lasts_ns: Sequence[int]
) -> list[Answer]:
    """The answers of all iterations, where messages take these times from when both ends had posted
    them."""
    planned = {each.name: each for each in transfers_of(workload)}
    posted: dict[int, list[tuple[MeasuredCollective, int]]] = defaultdict(list)
    for collective, lasted_ns in zip(collectives, lasts_ns, strict=True):
        posted[collective.iteration].append((collective, lasted_ns))
    found: list[Answer] = []
    for iteration, messages in sorted(posted.items()):
        named = [(planned[_name(c.id, iteration)], c.start_ns, lasts) for c, lasts in messages]
        # The first message of all begins when it is to, and nothing before it takes other times.
        begin_ns = min(start_ns - each.at_ns for each, start_ns, _ in named)
        come_ns: dict[int, int] = {}
        for each, start_ns, lasted_ns in named:
            number = each.request.number
            end_ns = max(start_ns + lasted_ns - begin_ns, each.request.end_ns)
            come_ns[number] = max(come_ns.get(number, 0), end_ns)
        found += answers(workload, come_ns)
    return found


def _name(id: str, iteration: int) -> str:
    return id.removeprefix(f"i{iteration}.")


def _figures(found: Sequence[Answer]) -> dict[str, Any]:
    tokens = [each.token_ns for each in found if each.token_ns is not None]
    return {
        "requests": len(found),
        "first_token_ns": _spread([each.first_ns for each in found]),
        "wait_ns": _spread([each.wait_ns for each in found]),
        "token_ns": _spread(tokens) if tokens else None,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), "largest": max(values)}


PART = KvCacheRow()
"""The part of `kv_cache`."""
