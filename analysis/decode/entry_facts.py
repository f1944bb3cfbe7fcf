"""Facts of the entries of all connections' directions: the columns of a ledger that tell."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from analysis.decode.byte_ledger import Entries
from analysis.decode.gloo.connection_groups import UNLOGGED
from analysis.decode.gloo.stream import Gap, MessageStream, StreamMessage
from analysis.decode.gloo.wire_format import Slot
from analysis.decode.ledger import FACTS, Purpose
from collectives.schedule.gloo import PREAMBLE_BYTES

Int64 = npt.NDArray[np.int64]

_NOTHING = -1


class EntryFacts:
    """Collects the directions of connections one by one, in the order of their numbers, so that
    their messages need not be kept."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in FACTS}
        self._bounds = array("q")
        self._preambles = array("q")
        self._sizes = array("q")

    def add(self, stream: MessageStream, owners: Mapping[int, int]) -> None:
        """A direction. `owners` has the collective of its messages, by id(message)."""
        rows = [self._fact(stream, part, owners) for part in stream.parts]
        time_ns = stream.direction.time_ns
        unnamed = (_NOTHING,) * (len(FACTS) - 2)
        rows[:0] = [
            (Purpose.SET_UP, *unnamed, time_ns(0)),
            (Purpose.TEARDOWN, *unnamed, time_ns(stream.direction.length_bytes)),
        ]
        for name, values in zip(FACTS, zip(*rows, strict=True), strict=True):
            self._columns[name].extend(values)
        self._bounds.append(0)
        self._bounds.extend(part.position for part in stream.parts)
        self._preambles.append(0)
        self._preambles.extend(
            PREAMBLE_BYTES if isinstance(part, StreamMessage) else 0 for part in stream.parts
        )
        self._sizes.append(1 + len(stream.parts))

    def entries(self) -> Entries:
        """The directions that were added."""
        return Entries(*map(_column, (self._bounds, self._preambles, self._sizes)))

    def columns(self) -> dict[str, Int64]:
        """Each of `ledger.FACTS`; shape (entries,)."""
        return {name: _column(values) for name, values in self._columns.items()}

    @staticmethod
    def _fact(
        stream: MessageStream, part: StreamMessage | Gap, owners: Mapping[int, int]
    ) -> tuple[int, ...]:
        place = (part.position, part.end, stream.direction.time_ns(part.position))
        if isinstance(part, Gap) or part.slot is None or part.opcode is None:
            return (Purpose.UNATTRIBUTED, *(_NOTHING,) * 5, *place)
        slot = Slot.decode(part.slot)
        return (
            Purpose.of(part.opcode),
            owners.get(id(part), UNLOGGED),
            slot.prefix,
            slot.tag,
            slot.delta,
            part.step,
            *place,
        )


def _column(values: array[int]) -> Int64:
    return np.array(values, dtype=np.int64)
