"""Prices every measurement by NCCL's own model on the graphs that are searched here.

`python -m benchmarks.hardware.predictions` writes the kept result; it takes about a minute, most of
it for the search of servers whose GPUs share PCI switches.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.hardware.measurements import Measurement, measurements
from collectives.nccl.tuner import Tuner

KEPT = Path(__file__).parents[1] / "results" / "2026-11-25-hardware.json"


def predicted(one: Measurement, tuner: Tuner, silent: Tuner) -> dict[str, object]:
    """The model's choice and time for a measurement, and how much of it is what the NICs' plugin
    tells: `silent` is the tuner where it tells nothing."""
    choice = tuner.choose(one.kind, one.size_bytes)
    function = "".join(word.title() for word in str(one.kind).split("_"))
    of_choice = function, choice.algorithm, choice.protocol, one.size_bytes
    times_us = [of.time_us(*of_choice) or 0.0 for of in (tuner, silent)]
    return {
        "algorithm": choice.algorithm,
        "protocol": choice.protocol,
        "channels": choice.channels,
        "time_us": round(choice.time_us, 1),
        "plugin_us": round(times_us[0] - times_us[1], 1),
    }


def all_predicted() -> dict[str, dict[str, object]]:
    """Every measurement's prediction, by id."""
    tuners: dict[tuple[object, ...], Tuner] = {}
    found = {}
    for one in measurements():
        silent = replace(one, net_latency_us=0.0)
        for asked in (one, silent):
            if asked.setting not in tuners:
                tuners[asked.setting] = asked.tuner()
        found[one.id] = predicted(one, tuners[one.setting], tuners[silent.setting])
    return found


if __name__ == "__main__":
    KEPT.write_text(json.dumps(all_predicted(), indent=1) + "\n", encoding="utf-8")
