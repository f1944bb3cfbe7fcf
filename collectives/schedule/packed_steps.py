"""The steps that members of a collective go through together, as numbers: made once, and moved to
each collective of the same shape.

A training step has the same few collectives in each microbatch and layer, and a comparison compiles
each of them for each predictor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collectives.schedule.operations import (
    RECEIVES,
    RECEIVES_FIRST,
    SENDS,
    WAITS,
    CommonSteps,
    CompiledPrograms,
    Follow,
    Gates,
)
from collectives.schedule.schedule import Post

if TYPE_CHECKING:
    from collectives.kinds import Shape
    from collectives.schedule.gloo_steps import Step

_KEPT_MESSAGES = 1 << 20
"""So many messages at most are kept, which take some 20 MB."""


@dataclass(frozen=True, slots=True)
class PackedSteps:
    """By message: its ends, as members, and its bytes. By step: its kind, and its messages from
    `first` up to `end`, which count from 0 (`CommonSteps`)."""

    source: npt.NDArray[np.int32]
    destination: npt.NDArray[np.int32]
    size_bytes: npt.NDArray[np.int64]
    kind: array[int]
    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    @classmethod
    def of(cls, steps: Iterable[Step]) -> PackedSteps:
        """From the steps, in order."""
        posts: list[Post] = []
        kinds: list[int] = []
        of_post = array("q")
        for step in steps:
            if isinstance(step, Post):
                of_post.append(len(posts))
                kinds.append(SENDS * step.sends_first)
                posts.append(step)
                continue
            # Gloo waits for what it has posted first.
            kind = WAITS | SENDS * step.sends | RECEIVES * step.receives
            kinds.append(kind | RECEIVES_FIRST * (not posts[step.post].sends_first))
            of_post.append(step.post)
        bounds = np.cumsum([0, *(len(post.source) for post in posts)], dtype=np.int64)
        numbers = np.frombuffer(of_post, dtype=np.int64)
        none = [np.zeros(0, dtype=np.int64)]
        return cls(
            np.concatenate([post.source for post in posts] or none).astype(np.int32),
            np.concatenate([post.destination for post in posts] or none).astype(np.int32),
            np.concatenate([post.size_bytes for post in posts] or none).astype(np.int64),
            array("i", kinds),
            bounds[numbers],
            bounds[numbers + 1],
        )

    def add(self, into: CompiledPrograms, ends: Sequence[int], gates: Gates | None = None) -> None:
        """Add the programs of members, one for each end, that follow these steps."""
        program, message = len(into.programs), len(into.source)
        end_of = np.array(ends, dtype=np.int32)
        into.source.frombytes(end_of[self.source].tobytes())
        into.destination.frombytes(end_of[self.destination].tobytes())
        into.sender.frombytes((self.source + np.int32(program)).tobytes())
        into.receiver.frombytes((self.destination + np.int32(program)).tobytes())
        into.size_bytes.frombytes(self.size_bytes.tobytes())
        for member, end in enumerate(ends):
            begins = [gates.begin(0, member)] if gates else []
            into.program(end, [*begins, Follow(len(into.steps))])
        if gates:
            for member in range(len(ends)):
                into.programs[program + member].append(gates.end(0, member, 1))
        first, end_at = array("q"), array("q")
        first.frombytes((self.first + message).tobytes())
        end_at.frombytes((self.end + message).tobytes())
        into.steps.append(CommonSteps(program, len(ends), self.kind, first, end_at))


class KeptSteps:
    """The steps of the shapes that were met last, by shape and seed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Shape, int], PackedSteps] = {}

    def of(
        self, shape: Shape, seed: int, steps: Callable[[Shape, int], Iterable[Step]]
    ) -> PackedSteps:
        """Those of a shape, which `steps` makes where they are not known."""
        key = shape, seed
        found = self._known.pop(key, None) or PackedSteps.of(steps(shape, seed))
        self._known[key] = found  # as the last one that was met
        messages = sum(len(each.source) for each in self._known.values())
        while messages > _KEPT_MESSAGES:
            messages -= len(self._known.pop(next(iter(self._known))).source)
        return found
