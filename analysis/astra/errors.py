"""Why an ASTRA-sim run was refused or did not end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.astra.rank_result import RankResult


class AstraInputError(ValueError):
    """An input file that cannot be used: which file, which key, what was found, what is allowed."""

    def __init__(self, path: Path | str, key: str | None, what: str) -> None:
        super().__init__(f"{path}: {what}" if key is None else f"{path}: {key}: {what}")
        self.path = Path(path)
        self.key = key
        self.what = what


class AstraRefused(ValueError):
    """ASTRA-sim itself stops without a result on this input; the message says where and why."""


class AstraStalled(RuntimeError):
    """The simulation ran out of events before every rank had finished; `results` has the others."""

    def __init__(self, results: Sequence[RankResult], what: str) -> None:
        super().__init__(what)
        self.results = tuple(results)
