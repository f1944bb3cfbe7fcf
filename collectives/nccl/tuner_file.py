"""Tuner tables by file: rows that go before NCCL's model, in the form of NCCL's own example plugin.

The form is that of plugins/tuner/example of NCCL: a CSV file with the columns collective type,
least and greatest bytes, algorithm, protocol, channels, nodes, ranks, and two that say no more here
(pipelined operations, registered buffers); -1 stands for anything.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from collectives.algorithms.base import DoesNotFit
from collectives.nccl.environment import ALGORITHMS, FUNCTIONS, PROTOCOLS


@dataclass(frozen=True, slots=True)
class TunerRow:
    """A row: what is chosen for sizes from `least_bytes` to `most_bytes`. `nodes` and `ranks` of
    None are any; an `algorithm` of None leaves NCCL its own, and `channels` of 0 too."""

    function: str
    least_bytes: int
    most_bytes: int
    algorithm: str | None
    protocol: str
    channels: int
    nodes: int | None
    ranks: int | None


@dataclass(frozen=True)
class TunerFile:
    """The rows of a file; the first that fits holds."""

    rows: tuple[TunerRow, ...]

    def row(self, function: str, size_bytes: int, nodes: int, ranks: int) -> TunerRow | None:
        """The row for a collective; None where NCCL's model decides."""
        for row in self.rows:
            if (
                row.function == function
                and row.least_bytes <= size_bytes <= row.most_bytes
                and row.nodes in (None, nodes)
                and row.ranks in (None, ranks)
            ):
                return row
        return None


@lru_cache(maxsize=8)
def read_tuner_file(path: str) -> TunerFile:
    """The rows of a file. Raises DoesNotFit with the line that is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DoesNotFit("tuner", f"{path}: {error}", "a CSV file of tuner rows") from None
    rows = []
    for number, fields in enumerate(csv.reader(text.splitlines()), 1):
        cells = [field.strip() for field in fields]
        if not cells or cells[0].startswith("#") or not any(cells):
            continue
        rows.append(_row(f"{path}, line {number}", cells))
    return TunerFile(tuple(rows))


def _row(where: str, cells: list[str]) -> TunerRow:
    if len(cells) < 8:
        allowed = "8 to 10 cells: type, least and most bytes, algorithm, protocol, channels, "
        raise DoesNotFit("tuner", f"{where}: {len(cells)} cells", allowed + "nodes, ranks")
    function = _named(where, cells[0], FUNCTIONS)
    algorithm = None if cells[3] in ("-1", "default") else _named(where, cells[3], ALGORITHMS)
    protocol = "Simple" if cells[4] in ("-1", "default") else _named(where, cells[4], PROTOCOLS)
    least, most, channels, nodes, ranks = (_whole(where, cells[index]) for index in (1, 2, 5, 6, 7))
    return TunerRow(
        function,
        least,
        most,
        algorithm,
        protocol,
        max(0, channels),
        None if nodes < 0 else nodes,
        None if ranks < 0 else ranks,
    )


def _named(where: str, text: str, names: tuple[str, ...]) -> str:
    wanted = text.lower().replace("_", "")
    for name in names:
        if name.lower() == wanted:
            return name
    raise DoesNotFit("tuner", f"{where}: {text}", ", ".join(names))


def _whole(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DoesNotFit("tuner", f"{where}: {text}", "a whole number; -1 is anything") from None
