"""The student of a lab: numbers of the student's own, from the name."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from functools import cached_property

from groundwire.labs.formula import Number, value
from groundwire.labs.lab import Lab


def usual_name(name: str) -> str:
    """A name without what does not count: case, spaces about it, forms of one letter."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


@dataclass(frozen=True)
class Student:
    """A student in a lab."""

    name: str
    lab: Lab

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """The lab's parameters as this student has them, and what is derived from them.

        A parameter is the value at SHA-256 of lab, name and parameter, modulo how many there are:
        the same on every machine and in every version of Python.
        """
        found: dict[str, Number] = {}
        for name, choices in self.lab.parameters.items():
            text = f"{self.lab.name}\0{usual_name(self.name)}\0{name}"
            digest = hashlib.sha256(text.encode()).digest()
            found[name] = choices[int.from_bytes(digest[:8], "big") % len(choices)]
        for name, formula in self.lab.derived.items():
            found[name] = value(formula, found)
        return found
