"""Collectives of more chunks than can be followed: the first of them, and what each further adds.

Where all chunks run the same program and a bounded number is in flight, each chunk that starts
replaces one that has ended. After as many as are in flight this repeats, so that time grows by the
same amount with each chunk (the steady state of a pipeline).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from analysis.predict.engines.joint_programs import MOST_MESSAGES, JointPrograms
from analysis.predict.interface import PredictorError, Transport
from collectives.call import CollectiveCall
from collectives.schedule.program import ProgramSchedule


def price(
    call: CollectiveCall,
    run: Callable[[JointPrograms], float],
    seed: int = 1,
    transport: Transport | None = None,
) -> float:
    """Nanoseconds that a collective takes which `run` prices. Beyond `MOST_MESSAGES` messages two
    beginnings of it are priced: as many rounds of chunks in flight as can be followed, and half of
    them. Raises PredictorError where chunks differ or are not bounded,
    or are too large."""
    schedule = call.schedule
    count = schedule.count(call.shape, seed, MOST_MESSAGES)
    if count <= MOST_MESSAGES or not isinstance(schedule, ProgramSchedule):
        return run(JointPrograms.of_one(call, seed, transport))
    total = len(schedule.chunks)
    # The messages by which ranks agree on the order are followed, too: at most twice up and down
    # a tree.
    many = (MOST_MESSAGES - 4 * len(call.ranks)) // (count // total)
    at_once = max(1, schedule.in_flight)
    # Chunks that start together end together: whole rounds of them are compared.
    many -= many % at_once
    few = max(at_once, many // 2 // at_once * at_once)
    alike = len({id(chunk.program) for chunk in schedule.chunks}) == 1
    if not alike or schedule.turns or not schedule.in_flight or few >= many:
        raise PredictorError(
            f"found {count:,} messages, allowed {MOST_MESSAGES:,}, or chunks that "
            "run alike, of which twice as many as are in_flight can be followed"
        )
    first, second = (
        run(
            JointPrograms.of_one(
                replace(call, schedule=replace(schedule, chunks=schedule.chunks[:part])),
                transport=transport,
            )
        )
        for part in (few, many)
    )
    return second + (second - first) / (many - few) * (total - many)
