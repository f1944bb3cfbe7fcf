"""The log beside a recorded test capture, as attribution takes it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from analysis.decode.gloo.connection_groups import LoggedCollective


@dataclass(frozen=True)
class Log:
    collectives: list[LoggedCollective]
    addresses: dict[int, str]
    clock_offset_ns: int


def read_log(directory: Path) -> Log:
    records: dict[tuple[str, str, int], list[dict[str, object]]] = defaultdict(list)
    for line in (directory / "collectives.jsonl").read_text().splitlines():
        record = json.loads(line)
        records[(record["group"], record["id"], record["size_bytes"])].append(record)
    collectives = [
        LoggedCollective(
            id=identity,
            kind=str(mine[0]["kind"]),
            group=group,
            tag=mine[0]["tag"],  # type: ignore[arg-type]
            size_bytes=size,
            iteration=0,
            phase="",
            ranks=tuple(mine[0]["ranks"]),  # type: ignore[arg-type]
            intervals_ns={r["rank"]: (r["start_ns"], r["end_ns"]) for r in mine},  # type: ignore[misc]
        )
        for (group, identity, size), mine in records.items()
    ]
    ranks = sorted({rank for collective in collectives for rank in collective.ranks})
    index = json.loads((directory / "index.json").read_text())
    return Log(collectives, {r: f"10.0.0.{r + 1}" for r in ranks}, index["clock_offset_ns"])
