"""The output of a program's ranks, as a page shows it: the end of what each wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from analysis.runs.run import Run

_MOST_RANKS = 16
_MOST_BYTES = 8_000
_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_HIDDEN = re.compile(r"[^\S\n\t ]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class RankOutput:
    """The end of what a rank wrote to `stream`, which `cut` says is not all of it."""

    rank: int
    stream: str
    text: str
    cut: bool


def rank_outputs(run: Run) -> tuple[RankOutput, ...]:
    """Standard output and error of a program's first ranks, without those that are empty; nothing
    for ranks of our own. Raises OSError."""
    if run.spec.workload.program is None:
        return ()
    found = []
    for rank in range(min(len(run.ranks), _MOST_RANKS)):
        for stream, suffix in (("output", "out"), ("errors", "err")):
            text, cut = _end_of(run.directory / "ranks" / f"{rank:03d}.{suffix}")
            if text:
                found.append(RankOutput(rank, stream, text, cut))
    return tuple(found)


def _end_of(path: Path) -> tuple[str, bool]:
    if not path.is_file():
        return "", False
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _MOST_BYTES))
        text = file.read(_MOST_BYTES).decode(errors="replace")
    if size > _MOST_BYTES:
        text = text.partition("\n")[2] or text
    plain = _STYLES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", plain).strip("\n"), size > _MOST_BYTES
