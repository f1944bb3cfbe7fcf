"""Published traces of requests to language models: when each comes, and its tokens.

Azure's traces (Azure/AzurePublicDataset, AzureLLMInferenceTrace): CSV with `TIMESTAMP`,
`ContextTokens`, `GeneratedTokens`. BurstGPT (HPMLL/BurstGPT): CSV with `Timestamp` in seconds,
`Request tokens`, `Response tokens`. Mooncake (kvcache-ai/Mooncake, FAST25-release): an object of
JSON a line, with `timestamp` in milliseconds, `input_length`, `output_length`. Times count from the
first request; requests without tokens of a prompt or an answer (failures, in BurstGPT) are left
out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from topologies.spec.foreign_files import ForeignFileError, text_of
from topologies.units import format_time

_FORMS = (
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ("Timestamp", "Request tokens", "Response tokens"),
    ("timestamp", "input_length", "output_length"),
)
_EXPECTED = "a trace of requests: Azure's or BurstGPT's CSV, or Mooncake's lines of JSON"
_NS = {"Timestamp": 10**9, "timestamp": 10**6}
_MOST_TOKENS = 1 << 24


class RequestFileError(ForeignFileError):
    """A trace of requests that cannot be read."""


class _Row(NamedTuple):
    place: str
    at_ns: int
    prompt: int
    output: int


def read_request_file(path: Path, most: int) -> list[dict[str, Any]]:
    """The first `most` requests, as entries of a spec's `arrivals`. Raises RequestFileError."""
    return parse_requests(text_of(path, _EXPECTED, RequestFileError), str(path), most)


def parse_requests(text: str, name: str, most: int) -> list[dict[str, Any]]:
    """See `read_request_file`; `name` is the file's name in errors."""
    found: list[dict[str, Any]] = []
    first_ns = last_ns = 0
    for row in _rows(text, name):
        if not row.prompt or not row.output:
            continue
        if not found:
            first_ns = last_ns = row.at_ns
        if row.at_ns < last_ns:
            raise RequestFileError(row.place, "an earlier time", "requests in order of time")
        last_ns = row.at_ns
        at = format_time(row.at_ns - first_ns)
        found.append({"at": at, "prompt": row.prompt, "output": row.output})
        if len(found) == most:
            break
    if not found:
        raise RequestFileError(name, "no requests", _EXPECTED)
    return found


def _rows(text: str, name: str) -> Iterator[_Row]:
    lines = text.split("\n")
    if text.lstrip().startswith("{"):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _row(_object(line, f"{name}, line {number}"), f"{name}, line {number}")
        return
    try:
        for number, row in enumerate(csv.DictReader(lines), 2):
            yield _row(row, f"{name}, line {number}")
    except csv.Error as error:
        raise RequestFileError(name, str(error), _EXPECTED) from None


def _object(line: str, place: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise RequestFileError(place, line[:40], "an object of JSON") from None
    if not isinstance(found, dict):
        raise RequestFileError(place, line[:40], "an object of JSON")
    return found


def _row(row: Mapping[str, Any], place: str) -> _Row:
    form = next((each for each in _FORMS if all(key in row for key in each)), None)
    if form is None:
        raise RequestFileError(place, ", ".join(map(str, list(row)[:6])), _EXPECTED)
    when, prompt, output = form
    return _Row(
        place,
        _time_ns(row[when], when, place),
        _tokens(row[prompt], prompt, place),
        _tokens(row[output], output, place),
    )


def _time_ns(value: object, key: str, place: str) -> int:
    try:
        if key != "TIMESTAMP":
            found = round(float(str(value)) * _NS[key])
        else:
            # Azure has seven decimals, or none; Python takes six.
            whole, _, fraction = str(value).strip().partition(".")
            seconds = datetime.fromisoformat(whole.partition("+")[0]).timestamp()
            digits = fraction.partition("+")[0]
            found = round(seconds) * 10**9 + int((digits or "0").ljust(9, "0")[:9])
        if not 0 <= found < 1 << 62:
            raise ValueError
    except (ValueError, OverflowError):
        raise RequestFileError(f"{place}, {key}", str(value)[:40], "a time") from None
    return found


def _tokens(value: object, key: str, place: str) -> int:
    text = str(value).strip()
    number = text.removesuffix(".0")
    if not (number.isascii() and number.isdigit() and len(number) < 9):
        raise RequestFileError(f"{place}, {key}", text[:40], f"a whole number to {_MOST_TOKENS}")
    if int(number) > _MOST_TOKENS:
        raise RequestFileError(f"{place}, {key}", text, f"a whole number to {_MOST_TOKENS}")
    return int(number)
