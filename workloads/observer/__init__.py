"""The observer of programs that are not ours: the log of a rank that runs any PyTorch program.

It changes no result and no message. `sitecustomize.py` beside this file is loaded by the program's
own Python and imports nothing of Groundwire. Three names to know: `Observer`, `Posts` (the calls of
a rank, for hangs) and `Charging` (the time of its computing).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

OBSERVER: Final = Path(__file__).resolve().parent
"""The directory to put first on a program's PYTHONPATH."""

PLAN_VARIABLE: Final = "GROUNDWIRE_OBSERVE"
"""Names the file that tells the observer of the run's ranks; it writes beside that."""

PLAN_FILE: Final = "observe.json"

POSTS: Final = "posts"
"""The folder, beside the logs of ranks, in which each has a file of what it calls (`posts`)."""

STACKS: Final = "stacks"
"""The folder, beside it, in which each Python has a file for its stacks (`stacks`)."""

LIFE: Final = "GROUNDWIRE_LIFE"
"""How often a program has been killed by a fault and started again, where it has been."""

COLLECTIVES_VARIABLE: Final = "GROUNDWIRE_COLLECTIVES"
"""The settings of torch's backend groundwire (`workloads.torch_backend.configuration`)."""
