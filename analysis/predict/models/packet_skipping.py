"""`packet` at a second speed: what has gone the same way some times is leapt over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.stages import stage_column
from analysis.predict.engines.packet.swings import leapt_calls, swings_ns
from analysis.predict.models.packet import Packet
from analysis.predict.scenario import Timeline
from simulation.columns import Column

_TOLERANCE_PPM = 30_000
"""Collectives go the same way that differ by less than 3%: where windows and marks are chaotic,
as with DCTCP, two in a row differ by 1 to 2%."""


class PacketSkipping(Packet):
    """Built-in predictor "packet-skipping".

    A collective that had all ports of its way to itself is remembered. Once some of its kind took
    equally long, further ones are not followed; now and then one is, to tell how far off
    the others may be. simulation/engine/leaps.hpp has the rules.
    """

    name = "packet-skipping"
    ignores = (
        f"{Packet.ignores}; how collectives that it leaps over differ from those that it followed"
    )
    charges_hosts = False
    speed: Mapping[str, Column] = MappingProxyType(
        {"leaps.tolerance_ppm": np.array([_TOLERANCE_PPM], dtype=np.int64)}
    )

    def _known(self, joint: JointPrograms) -> Mapping[str, Column]:
        return stage_column(joint)

    def _with_errors(self, joint: JointPrograms, timeline: Timeline) -> Timeline:
        assert self.last is not None
        leaps = self.last.leaps
        errors_ns = [0.0] * len(joint.calls)
        for leap in leaps:
            errors_ns[joint.owners[leap.first_message]] += leap.error_ns
        over = [(leap.first_message, leap.messages) for leap in leaps]
        swings, add_up = swings_ns(timeline, *leapt_calls(joint.owners, over))
        return replace(timeline, errors_ns=errors_ns, swings_ns=swings, add_up=add_up)
