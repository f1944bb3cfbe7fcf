"""Lines: data with flags among it, as protocols send it whose receivers poll for what has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Sizes = TypeVar("Sizes", int, "npt.NDArray[np.int64]")


@dataclass(frozen=True, slots=True)
class Lines:
    """A flag of `flag_bytes` follows each `data_bytes` of data. A message has a multiple of
    `at_once` of these; what is left over in the last ones is sent as well."""

    data_bytes: int = 1
    flag_bytes: int = 0
    at_once: int = 1

    @property
    def flagged(self) -> bool:
        """Whether there are flags."""
        return self.flag_bytes > 0

    @property
    def line_bytes(self) -> int:
        """Data and its flag."""
        return self.data_bytes + self.flag_bytes

    def wire_bytes(self, size_bytes: Sizes) -> Sizes:
        """The bytes that are sent of a message with so many of data."""
        together = self.data_bytes * self.at_once
        return -(-size_bytes // together) * (self.at_once * self.line_bytes)


PLAIN = Lines()
"""Data alone."""
