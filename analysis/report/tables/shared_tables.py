"""A job beside the others: the links that it shares with them."""

from __future__ import annotations

from typing import Any

from analysis.report.tables.table import Column, Table, Unit, table

_COLUMNS = (
    Column("node", "from"),
    Column("peer", "to"),
    Column("rate_bps", "rate", Unit.RATE),
    Column("bytes", "bytes", Unit.SIZE),
    Column("bytes_of_others", "others' bytes", Unit.SIZE),
    Column("waited_ns", "waited, by flow", Unit.DURATION),
    Column("behind", "most behind"),
)


def shared_links_table(result: dict[str, Any], job: str) -> Table:
    """A row per direction of a link that `job` shared: how long its messages waited there behind
    those of others, added up, and behind which job most. `flow` computes these waits, and knows no
    pauses and no losses. `result` is that of all jobs; its links are in the order of what was
    waited, and so are the rows."""
    rows = []
    for link in result["shared_links"]:
        if job not in link["bytes"]:
            continue
        others = sum(size for name, size in link["bytes"].items() if name != job)
        waits = [wait for wait in link["waits"] if wait["job"] == job]
        worst = max(waits, key=lambda wait: wait["waited_ns"], default=None)
        waited_ns = sum(wait["waited_ns"] for wait in waits) if link["waits"] else None
        rows.append(
            (link["node"], link["peer"], link["rate_bps"], link["bytes"][job], others, waited_ns,
             None if worst is None else worst["behind"])
        )  # fmt: skip
    rows.sort(key=lambda row: -(row[5] or 0))
    return table("shared_links", "Links shared with other jobs", _COLUMNS, rows)
