"""The messages of OpenMPI's ranks, as a run directory has them: `mpi.jsonl`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

_FILE = "mpi.jsonl"
_NUMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class MpiMessage:
    """A message. `source` and `destination` are ranks of the job, `context` is the communicator's
    number, `tag` the program's, or below 0 that of a collective, which `kind` names. `sent_ns` is
    when its first bytes left the sender's host, on the ranks' clock; `come_ns` when the last of its
    data was at the receiver's. None: the host's ports were not captured, or the data came later
    than what announces it, as that of long messages does."""

    context: int
    source: int
    destination: int
    tag: int
    kind: str
    number: int
    size_bytes: int
    sent_ns: int | None
    come_ns: int | None


def write_mpi_messages(directory: Path, messages: Iterable[MpiMessage]) -> None:
    """Into a run directory. Raises OSError."""
    lines = (json.dumps(asdict(one), separators=(",", ":")) + "\n" for one in messages)
    (directory / _FILE).write_text("".join(lines))


def load_mpi_messages(directory: Path) -> list[MpiMessage]:
    """Those of a run directory; none where it has none. Raises OSError, ValueError."""
    path = directory / _FILE
    if not path.exists():
        return []
    return [MpiMessage(**json.loads(line)) for line in path.read_text().splitlines()]


def unseen(messages: Iterable[MpiMessage]) -> int:
    """How many messages are missing between those that were seen, by their numbers."""
    numbers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for each in messages:
        numbers[each.source, each.destination, each.context].append(each.number)
    return sum(
        (after - before) % _NUMBERS - 1
        for many in numbers.values()
        for before, after in pairwise(many)
        if after != before
    )


def described(messages: Sequence[MpiMessage]) -> str:
    """How many there are of each kind, in words."""
    count = Counter(each.kind for each in messages)
    parts = ", ".join(f"{count[kind]:,} of {kind}" for kind in sorted(count))
    missing = unseen(messages)
    return parts + (f"; the headers of {missing:,} more were not captured" if missing else "")
