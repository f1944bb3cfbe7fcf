"""ASTRA-sim 1's workload files: a model as a table of layers, in text.

A first line names the parallelism (`DATA`, or `HYBRID_DLRM 7`, with the number of the last bottom
layer), a second how many layers there are. A layer is a line of 12 words: its name, a reserved
number, a time, a collective and a size for each of forward pass, input gradient and weight
gradient, and the time of the update. Times are in nanoseconds, sizes in bytes. Files without the
first two lines (LIBRA's) are tables alone.

Source of the format: ASTRA-sim 1.0, workload/Workload.cc (initialize_workload); LIBRA's
workload_parser.py reads the lines of layers only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from topologies.spec.foreign_files import ForeignFileError, text_of
from topologies.spec.workload_types import PlainCollective

PARALLELISMS = {
    "DATA": "data",
    "MODEL": "model",
    "HYBRID_DATA_MODEL": "hybrid-data-model",
    "HYBRID_MODEL_DATA": "hybrid-model-data",
    "HYBRID_DLRM": "hybrid-dlrm",
}
COLLECTIVES = {kind.replace("_", "").upper(): kind for kind in get_args(PlainCollective)}
PASSES = ("forward", "input_gradient", "weight_gradient")
_WORDS = 12
_LARGEST = 10**15
"""Eleven days in nanoseconds, and a petabyte."""


class LayerFileError(ForeignFileError):
    """A workload file that cannot be read."""


def read_layer_file(path: Path) -> dict[str, Any]:
    """The file as keys of a `layers` workload: `layers`, and `parallelism` and `last_bottom_layer`
    where it has them. Raises LayerFileError."""
    return parse_layers(text_of(path, "a file of layers", LayerFileError), str(path))


def parse_layers(text: str, name: str) -> dict[str, Any]:
    """See `read_layer_file`; `name` is the file's name in errors."""
    rows = [
        (f"{name}, line {number}", line.split())
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not rows:
        raise LayerFileError(name, "nothing", "a line for each layer")
    found: dict[str, Any] = {}
    if len(rows[0][1]) != _WORDS:
        found = _header(*rows[0])
        if len(rows) == 1:
            raise LayerFileError(name, "no second line", "the number of layers")
        place, words = rows[1]
        if len(words) != 1:
            raise LayerFileError(place, " ".join(words[:4]), "the number of layers alone")
        count = _number(place, words[0], "the number of layers")
        rows = rows[2:]
        if len(rows) != count:
            raise LayerFileError(name, f"{len(rows)} layers", f"{count}, as {place} says")
        if not rows:
            raise LayerFileError(place, "0", "1 layer and more")
    found["layers"] = [_layer(place, words) for place, words in rows]
    return found


def _header(place: str, words: list[str]) -> dict[str, Any]:
    if words[0] not in PARALLELISMS:
        allowed = f"{', '.join(PARALLELISMS)}, or a layer of {_WORDS} words"
        raise LayerFileError(place, words[0], allowed)
    found: dict[str, Any] = {"parallelism": PARALLELISMS[words[0]]}
    takes = 1 if words[0] == "HYBRID_DLRM" else 0
    if len(words) != 1 + takes:
        what = "the number of the last bottom layer" if takes else "nothing else on the line"
        raise LayerFileError(place, " ".join(words[:4]), f"{words[0]} and {what}")
    if takes:
        found["last_bottom_layer"] = _number(place, words[1], "the number of a layer")
    return found


def _layer(place: str, words: list[str]) -> dict[str, Any]:
    if len(words) != _WORDS:
        expected = f"{_WORDS}: name, -1, then time, collective and size three times, update time"
        raise LayerFileError(place, f"{len(words)} words", expected)
    layer: dict[str, Any] = {"name": words[0]}
    for index, name in enumerate(PASSES):
        time, collective, size = words[2 + 3 * index : 5 + 3 * index]
        what = name.replace("_", " ")
        part: dict[str, Any] = {"compute": f"{_number(place, time, f'the time of the {what}')}ns"}
        size_bytes = _number(place, size, f"the size of the {what}")
        if collective in COLLECTIVES:
            if not size_bytes:
                raise LayerFileError(place, f"{collective} 0", "a size above 0, or NONE 0")
            part |= {"collective": COLLECTIVES[collective], "size": size_bytes}
        elif collective != "NONE":
            allowed = f"NONE, {', '.join(COLLECTIVES)}"
            raise LayerFileError(place, collective, f"the collective of the {what}: {allowed}")
        layer[name] = part
    layer["update"] = f"{_number(place, words[11], 'the time of the update')}ns"
    return layer


def _number(place: str, word: str, what: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 16 and int(word) <= _LARGEST):
        raise LayerFileError(place, word, f"{what}: a whole number from 0 to {_LARGEST}")
    return int(word)
