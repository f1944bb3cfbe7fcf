"""A collective or a message that has been posted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Pending:
    """What `Communicator.wait` waits for and what its line in the log says. `ranks` is None for
    all, `tag` for messages. `work` is torch's; `end_ns` is when it completed, as far as known."""

    group: str
    id: str
    kind: str
    phase: str
    size_bytes: int
    iteration: int
    tag: int | None
    ranks: tuple[int, ...] | None
    start_ns: int
    known: int
    details: dict[str, object]
    verify: Callable[[], None] | None
    has_future: bool
    work: Any = None
    end_ns: int | None = None
