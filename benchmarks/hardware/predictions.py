"""Prices every measurement by NCCL's own model on the graphs that are searched here.

`python -m benchmarks.hardware.predictions` writes the kept result; it takes about a minute, most of
it for the search of servers whose GPUs share PCI switches.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.hardware.measurements import Measurement, measurements
from collectives.nccl.tuner import Tuner

KEPT = Path(__file__).parents[1] / "results" / "2026-11-25-hardware.json"


def predicted(one: Measurement, tuner: Tuner) -> dict[str, object]:
    """The model's choice and time for a measurement."""
    choice = tuner.choose(one.kind, one.size_bytes)
    return {
        "algorithm": choice.algorithm,
        "protocol": choice.protocol,
        "channels": choice.channels,
        "time_us": round(choice.time_us, 1),
    }


def all_predicted() -> dict[str, dict[str, object]]:
    """Every measurement's prediction, by id."""
    tuners: dict[tuple[object, ...], Tuner] = {}
    found = {}
    for one in measurements():
        if one.setting not in tuners:
            tuners[one.setting] = one.tuner()
        found[one.id] = predicted(one, tuners[one.setting])
    return found


if __name__ == "__main__":
    KEPT.write_text(json.dumps(all_predicted(), indent=1) + "\n", encoding="utf-8")
