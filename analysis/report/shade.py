"""Shades of one hue for amounts, few enough to be told apart and to be explained by a legend."""

from __future__ import annotations

SHADES = 7


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
