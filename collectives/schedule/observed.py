"""Messages of a collective as they were seen, where no algorithm of ours says what its ranks do.

The order in which messages left a rank and came to it tells what the rank did: a message that left
after another one had come is taken to have waited for that, unless it left right behind one of the
rank's own, which had the port until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collectives.kinds import Shape
from collectives.schedule.operations import (
    Await,
    CompiledPrograms,
    Gates,
    Mark,
    NumberOfMark,
    Start,
)
from collectives.schedule.schedule import Post, Schedule

_ANNOUNCED_BYTES = 18
"""An announcement's bytes beyond a message's header (`mca_pml_ob1_rendezvous_hdr_t` of OpenMPI's
pml_ob1_hdr.h); an answer has about as many."""


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message between positions in a collective's ranks, and when its first byte left, its last
    one came, and that had left (None: not known), on a clock of all ranks."""

    source: int
    destination: int
    size_bytes: int
    sent_ns: int
    come_ns: int
    left_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedSchedule(Schedule):
    """The (source, destination, bytes) of messages, by positions in a collective's ranks. `acts`
    has what each rank did, in order: m is that message m left it, ~m that it came. Messages of up
    to `eager_bytes` leave at once; longer ones are announced, and leave when the receiver has
    answered. `header_bytes` go before each. With `asks_send_buffers` a sender asks for a send
    buffer of each message's size."""

    messages: tuple[tuple[int, int, int], ...]
    acts: tuple[tuple[int, ...], ...]
    eager_bytes: int
    header_bytes: int
    asks_send_buffers: bool = False

    @classmethod
    def of(
        cls,
        messages: Iterable[SeenMessage],
        ranks: int,
        eager_bytes: int,
        header_bytes: int,
        port_ns: Sequence[int] = (),
    ) -> ObservedSchedule:
        """The schedule of so many ranks, told by when messages left and came. `port_ns` is how long
        after a frame of each rank's the next one leaves at the latest, if it waits for it."""
        ordered = sorted(messages, key=lambda one: (one.sent_ns, one.source, one.destination))
        acts: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
        posted: dict[int, tuple[int, int]] = {}
        for number, each in enumerate(ordered):
            posted_ns, until_ns = posted.get(each.source, (each.sent_ns, -1))
            if each.sent_ns > until_ns:
                posted_ns = each.sent_ns
            acts[each.source].append((posted_ns, number))
            acts[each.destination].append((each.come_ns, ~number))
            # An announced message leaves the port free until it is asked for.
            eager = each.size_bytes <= eager_bytes and each.left_ns is not None and port_ns
            until_ns = (each.left_ns or 0) + port_ns[each.source] if eager else -1
            posted[each.source] = posted_ns, until_ns
        return cls(
            tuple((each.source, each.destination, each.size_bytes) for each in ordered),
            tuple(tuple(act for _, act in sorted(of_rank, key=_when_posted)) for of_rank in acts),
            eager_bytes,
            header_bytes,
        )

    @property
    def observed(self) -> bool:
        """It was read off a wire."""
        return True

    def sends_nothing(self, shape: Shape) -> bool:
        """Messages without data, as a barrier's, have headers."""
        return not self.messages

    def posts(self, shape: Shape, seed: int = 1) -> Iterator[Post]:
        """All messages, in the order in which they left."""
        if self.messages:
            import numpy as np

            source, destination, size_bytes = np.array(self.messages, dtype=np.int64).T
            yield Post(source, destination, size_bytes)

    def compile(
        self,
        shape: Shape,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None = None,
        seed: int = 1,
    ) -> None:
        """A rank's receives are posted from the beginning. A message that is announced has two
        small ones before it, there and back, which the rank's library handles whatever the rank
        itself is doing: libraries are programs of their own, after those of the ranks. A rank is
        done when what it has announced is sent."""
        first = len(into.programs)
        for rank in range(len(self.acts)):
            into.program(ends[rank], [gates.begin(0, rank)] if gates else [])
        posted, awaited = [], []
        left: list[list[int]] = [[] for _ in self.acts]
        for number, (source, destination, size_bytes) in enumerate(self.messages):
            here, there = ends[source], ends[destination]
            sender, receiver = first + source, first + destination
            if size_bytes <= self.eager_bytes:
                posted.append(into.message(here, there, size_bytes, sender, receiver))
                awaited.append(posted[-1])
                continue
            sends, answers = into.program(here), into.program(there)
            asked = into.message(here, there, _ANNOUNCED_BYTES, sender, answers)
            answer = into.message(there, here, _ANNOUNCED_BYTES, answers, sends)
            data = into.message(here, there, size_bytes, sends, receiver)
            into.programs[answers] += [Await([], [asked]), Start([answer], [])]
            sent = mark("sent", first, number)
            into.programs[sends] += [
                Await([], [answer]), Start([data], []), Await([data], []), Mark(sent),
            ]  # fmt: skip
            left[source].append(sent)
            posted.append(asked)
            awaited.append(data)
        for rank, acts in enumerate(self.acts):
            program = into.programs[first + rank]
            coming: list[int] = []
            for act in acts:
                if act < 0:
                    coming.append(awaited[~act])
                    continue
                if coming:
                    program.append(Await([], coming))
                    coming = []
                program.append(Start([posted[act]], []))
            if coming or left[rank]:
                program.append(Await([], coming, left[rank]))
            if gates:
                program.append(gates.end(0, rank, 1))


def _when_posted(act: tuple[int, int]) -> tuple[int, bool, int]:
    """A message that came at an instant came before one that left, unless it was posted earlier."""
    time_ns, number = act
    return time_ns, number >= 0, number
