"""The messages of OpenMPI's ranks, as a run directory has them: `mpi.jsonl`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from collectives.schedule.observed import ObservedSchedule, SeenMessage

MPI_MESSAGES: Final = "mpi.jsonl"
_NUMBERS = 1 << 16
_EAGER_BYTES = (64 << 10) - 16
"""`btl_tcp_eager_limit` of OpenMPI 4.1, less the header that is counted in it."""
_HEADER_BYTES = 22
"""Before the data of a message of OpenMPI: 8 of `mca_btl_tcp_hdr_t` and 14 of
`mca_pml_ob1_match_hdr_t` (btl_tcp_hdr.h, pml_ob1_hdr.h)."""


@dataclass(frozen=True, slots=True)
class MpiMessage:
    """A message. `source` and `destination` are ranks of the job, `context` is the communicator's
    number, `tag` the program's, or below 0 that of a collective, which `kind` names. `sent_ns` is
    when its first bytes left the sender's host, on the ranks' clock, `left_ns` when the last of its
    data had; `come_ns` when that was at the receiver's. None: the host's ports were not captured,
    or what frames data of a long message could not be read. `collective` is the id of the one that
    it is a part of, where that is known."""

    context: int
    source: int
    destination: int
    tag: int
    kind: str
    number: int
    size_bytes: int
    sent_ns: int | None
    left_ns: int | None
    come_ns: int | None
    collective: str | None = None


def write_mpi_messages(directory: Path, messages: Iterable[MpiMessage]) -> None:
    """Into a run directory. Raises OSError."""
    lines = (json.dumps(asdict(one), separators=(",", ":")) + "\n" for one in messages)
    (directory / MPI_MESSAGES).write_text("".join(lines))


def load_mpi_messages(directory: Path) -> list[MpiMessage]:
    """Those of a run directory; none where it has none. Raises OSError, ValueError."""
    path = directory / MPI_MESSAGES
    if not path.exists():
        return []
    return [MpiMessage(**json.loads(line)) for line in path.read_text().splitlines()]


def exchanges_of(directory: Path) -> dict[str, list[MpiMessage]]:
    """The messages of each collective in a run directory, by its id. Raises OSError, ValueError."""
    found: dict[str, list[MpiMessage]] = defaultdict(list)
    for each in load_mpi_messages(directory):
        if each.collective is not None:
            found[each.collective].append(each)
    return found


def of_ranks(
    messages: Sequence[MpiMessage], ranks: Sequence[int], port_ns: Sequence[int] = ()
) -> ObservedSchedule:
    """The schedule of a collective, from its messages. All its messages have times. `port_ns` is
    the time of two full frames at each rank's port."""
    seen = []
    for each in messages:
        assert each.sent_ns is not None and each.come_ns is not None
        ends = ranks.index(each.source), ranks.index(each.destination)
        seen.append(SeenMessage(*ends, each.size_bytes, each.sent_ns, each.come_ns, each.left_ns))
    return ObservedSchedule.of(seen, len(ranks), _EAGER_BYTES, _HEADER_BYTES, port_ns)


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
