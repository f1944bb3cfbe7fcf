"""How a session tells what it is doing: typed events, the same from either kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

_MARK = "@groundwire "
PROGRAM_STREAMS = ("stdout", "stderr")
"""Stages whose detail is a line that a program has written there."""
BEGINNINGS = ("started", "iteration")
"""Stages of which the first to have a clock says when the ranks began."""
STANDS = "stands"
"""The stage of a progress that says that the run stands still in a moment."""
FAILED = "failed"
"""The stage of a progress that says why the experiment has failed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Something that happened. `iteration` is the one that begins (of `iterations`); `clock_ns` is
    the time of the kernel that runs the experiment, `sent_bytes` what all ports together have sent
    by then, a frame once for each link that it takes. The stage "clock" says only that it goes on,
    "traffic" that ranks are to send `to_send_bytes` in all in iteration `of_iteration`, and "sent"
    what a simulated network has sent.
    `processes` says whose process a number (of a process, as text) is."""

    stage: str
    detail: str = ""
    iteration: int | None = None
    iterations: int | None = None
    clock_ns: int | None = None
    sent_bytes: int | None = None
    processes: Mapping[str, str] | None = None
    of_iteration: int | None = None
    to_send_bytes: int | None = None

    def encode(self) -> str:
        """One line, for a console that may carry other lines too."""
        return _MARK + json.dumps({k: v for k, v in asdict(self).items() if v not in (None, "")})

    @staticmethod
    def decode(line: str) -> Progress | None:
        """The event that a line carries, None when the line is something else."""
        at = line.find(_MARK)
        if at < 0:
            return None
        try:
            return Progress(**json.loads(line[at + len(_MARK) :]))
        except (ValueError, TypeError):
            return None  # cut off or mangled by other console output: progress is no result


Report = Callable[[Progress], None]
