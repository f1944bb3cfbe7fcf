"""The colours of charts: one per phase, the same in all charts of a page; shades for amounts."""

from __future__ import annotations

from collections.abc import Iterable

COLOURS = 6
SHADES = 7
"""Few enough to be told apart and to be explained by a legend."""
_FIXED = {"embedding_forward": 0, "embedding_backward": 1, "mlp_gradient": 2}


class PhaseColours:
    """CSS classes `p0` to `p5` by phase, in order of first appearance; DLRM's are fixed."""

    def __init__(self, phases: Iterable[str]) -> None:
        self._index: dict[str, int] = {}
        for phase in phases:
            if phase not in self._index:
                self._index[phase] = _FIXED.get(phase, len(self._index) % COLOURS)

    def css(self, phase: str) -> str:
        return f"p{self._index.get(phase, COLOURS - 1)}"

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """(phase, css class) of every phase."""
        return tuple((phase, self.css(phase)) for phase in self.ordered(self._index))

    def ordered(self, phases: Iterable[str]) -> tuple[str, ...]:
        """Phases in the order of their colours, as every chart and legend has them."""
        return tuple(sorted(phases, key=lambda phase: self._index.get(phase, COLOURS)))


class Shades:
    """CSS classes `s0` (nothing) to `s6` for values up to `largest`, in equal steps.

    With `relative` False, `largest` is a share and the steps are the same for every chart: 1 is
    the darkest.
    """

    def __init__(self, largest: float, relative: bool = False) -> None:
        self.largest = largest if relative else max(largest, 1.0)

    def step(self, value: float | None) -> int:
        if not value or self.largest <= 0:
            return 0
        return min(SHADES - 1, 1 + int((SHADES - 1) * value / self.largest * 0.999999))

    def css(self, value: float | None) -> str:
        return f"s{self.step(value)}"

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bounds of the steps from s1 on."""
        return tuple(self.largest * (i + 1) / (SHADES - 1) for i in range(SHADES - 1))
