"""Results of other simulators, matched to collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from analysis.predict.interface import PredictorError, Setting
from analysis.predict.models.external_formats import (
    ExternalFormatError,
    Timing,
    read_astra_log,
    read_csv,
    read_flow_completions,
    read_loggopsim,
)
from collectives.call import CollectiveCall
from collectives.kinds import KINDS

_READERS: dict[str, Callable[[Path], list[Timing]]] = {
    "astra-sim": read_astra_log,
    "ns3-fct": read_flow_completions,
    "loggopsim": read_loggopsim,
    "csv": read_csv,
}


_ITERATION = re.compile(r"^i[0-9]+\.")
"""The prefix that a run puts before the name of a collective."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """The only collective that a file without names or kinds is about."""

    kind: str
    size_bytes: int


@runtime_checkable
class IsToldWhatIsAsked(Protocol):
    """Results that may be of one collective alone, so that it matters what else is asked for."""

    def expect(self, kinds_and_sizes: Iterable[tuple[str, int]]) -> None:
        """The call that will be asked about."""
        ...


class External:
    """Built-in predictor "external": `format` is astra-sim, ns3-fct, loggopsim or csv.

    A timing is a collective's when it has the collective's name, as in a run or as `trace export`
    writes it, without the iteration; or its kind and size (and number
    of ranks, where the file has it). A file that times a whole workload is about one collective:
    `kind` and `size_bytes` say which; without them, the first that is asked for, and any other is
    refused, or all are where it was told to `expect` several. Raises PredictorError for files that
    cannot be read or matched.
    """

    name = "external"
    ignores = "whatever the other simulator ignores"

    def __init__(
        self, format: str, path: str | Path, kind: str | None = None, size_bytes: int | None = None
    ) -> None:
        if format not in _READERS:
            raise PredictorError(f"format: found {format!r}, allowed {', '.join(_READERS)}")
        if kind is not None and kind not in KINDS:
            raise PredictorError(f"kind: found {kind!r}, allowed {', '.join(KINDS)}")
        if (kind is None) != (size_bytes is None):
            raise PredictorError("kind and size_bytes: give both or neither")
        self._path = Path(path)
        try:
            self._timings = _READERS[format](self._path)
        except OSError as error:
            raise PredictorError(f"{self._path}: {error.strerror}") from error
        except ExternalFormatError as error:
            raise PredictorError(f"{self._path}: {error}") from None
        self.name = format
        self._about = None if kind is None or size_bytes is None else _Whole(kind, size_bytes)
        self._unclear: str | None = None

    def expect(self, kinds_and_sizes: Iterable[tuple[str, int]]) -> None:
        """The call that will be asked about: of several kinds or sizes, none is the one of a whole
        workload's time, unless the constructor was told which."""
        different = set(kinds_and_sizes)
        if self._about is None and len(different) > 1:
            self._unclear = (
                f"{self._path} times a whole workload, and here are collectives of "
                f"{len(different)} kinds and sizes (a log of ASTRA-sim at debug level has each)"
            )

    def predict(self, setting: Setting, call: CollectiveCall) -> int:
        """The mean of the timings that match. Raises PredictorError when none does."""
        names = (call.name, _ITERATION.sub("", call.name))
        match = (
            [t for t in self._timings if t.name is not None and t.name in names]
            or [t for t in self._timings if t.describes(call)]
            or self._whole(call)
        )
        if match:
            return round(sum(t.duration_ns for t in match) / len(match))
        raise PredictorError(
            f"{self._path} has no timing of {call.kind} of {call.size_bytes} bytes over "
            f"{call.world} ranks"
        )

    def _whole(self, call: CollectiveCall) -> list[Timing]:
        whole = [t for t in self._timings if t.of_whole_workload]
        if not whole:
            return []
        if self._unclear is not None:
            raise PredictorError(self._unclear)
        asked = _Whole(call.kind, call.size_bytes)
        self._about = self._about or asked
        if self._about != asked:
            raise PredictorError(
                f"{self._path} times one workload, taken for {self._about.kind} of "
                f"{self._about.size_bytes} bytes; there is nothing on {call.kind} of "
                f"{call.size_bytes} bytes"
            )
        return whole
