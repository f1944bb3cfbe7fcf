"""A claim: a sentence of a source, what tests it, and the rules by which it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.claims.experiment import Experiment
from benchmarks.claims.rules import Draws, Figures, Rule, verdict


@dataclass(frozen=True)
class Claim:
    """`published` is the source's own figure or words, with their place; `derived` is what follows
    from its formulas or code and is published nowhere. `setting` is the fabric and size here,
    `conditions` what was chosen so that the claim could come out: with one it never just holds.
    `shows` is filled with the experiment's figures. A claim has an experiment and rules, or
    `untested`, the reason why not. `earlier` is where figures of another command stand, for an
    experiment that has not been run."""

    name: str
    sentence: str
    source: str
    published: str
    derived: str = ""
    setting: str = ""
    experiment: Experiment | None = None
    shows: str = ""
    rules: tuple[Rule, ...] = ()
    conditions: str = ""
    untested: str = ""
    earlier: str = ""

    def __post_init__(self) -> None:
        if bool(self.untested) == bool(self.experiment and self.rules and self.shows):
            raise ValueError(f"{self.name}: an experiment with rules, or the reason why not")

    def verdict(self, figures: Figures | None) -> str:
        """By the rules. Raises FigureMissing."""
        if self.untested or figures is None:
            return "not tested"
        return verdict(self.rules, figures, self.conditions)

    def here(self, figures: Figures | None) -> str:
        """The outcome in words. Raises FigureMissing, KeyError."""
        if self.untested or figures is None:
            said = f"; earlier figures, of another command, are in {self.earlier}"
            return self.untested or "its experiment has not been run" + said * bool(self.earlier)
        return self._filled(self.shows, figures)

    def condition(self, figures: Figures | None) -> str:
        """Its conditions, filled in as well. Raises KeyError."""
        return self.conditions if figures is None else self._filled(self.conditions, figures)

    @staticmethod
    def _filled(text: str, figures: Figures) -> str:
        return text.format(**{name: _shown(value) for name, value in figures.items()})


def _shown(value: Any) -> Any:
    """Figures for `str.format`: lists are draws."""
    if isinstance(value, list):
        return Draws(value)
    if isinstance(value, Mapping):
        return _Named((name, _shown(each)) for name, each in value.items())
    return value


class _Named(dict[str, Any]):
    """Figures by name, where `str.format` takes a name of digits alone for a number."""

    def __missing__(self, key: object) -> Any:
        if isinstance(key, int) and str(key) in self:
            return self[str(key)]
        raise KeyError(key)
