"""Queue disciplines in a kernel, a module each, by the names that `topologies.spec.queue_section`
registers: a module's `PART` is its `Discipline`. docs/howto/add-a-queue-discipline.md adds one.
"""

from __future__ import annotations

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from topologies.registration import parts
from topologies.spec.queue_section import DISCIPLINES

__all__ = ["BY_KIND", "EgressPort"]

BY_KIND = parts(DISCIPLINES, "emulator.ports.disciplines.{}", Discipline)
"""By a queue's `kind`."""
