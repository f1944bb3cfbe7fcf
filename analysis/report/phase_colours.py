"""Which colour a phase has: the same in every chart of a page."""

from __future__ import annotations

from collections.abc import Iterable

_COLOURS = 6
_FIXED = {"embedding_forward": 0, "embedding_backward": 1, "mlp_gradient": 2}


class PhaseColours:
    """CSS classes `p0` to `p5` by phase, in order of first appearance; DLRM's are fixed."""

    def __init__(self, phases: Iterable[str]) -> None:
        self._index: dict[str, int] = {}
        for phase in phases:
            if phase not in self._index:
                self._index[phase] = _FIXED.get(phase, len(self._index) % _COLOURS)

    def css(self, phase: str) -> str:
        return f"p{self._index.get(phase, _COLOURS - 1)}"

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """(phase, css class) of every phase."""
        return tuple((phase, self.css(phase)) for phase in self.ordered(self._index))

    def ordered(self, phases: Iterable[str]) -> tuple[str, ...]:
        """Phases in the order of their colours, as every chart and legend has them."""
        return tuple(sorted(phases, key=lambda phase: self._index.get(phase, _COLOURS)))
