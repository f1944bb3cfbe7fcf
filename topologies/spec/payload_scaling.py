"""The fabric on which a part of each message stands for all of it (`workload.scale_payload`).

With sizes and rates divided by s alike and times kept, message / BDP, buffer / BDP, K / BDP,
timeout / RTT and computing / communicating stay what they are: a byte on the wire stands for s. It
is the other half of what slowing down keeps (`scaling`). Frames are as large as before, so there
are fewer: each stands for s, takes s times as long on a link, and s times as much of a queue.
Messages that are not scaled, as they are small or have contents, take up to s times as long.
"""

from __future__ import annotations

from typing import Any

from topologies.ethernet import ETHERNET_BYTES
from topologies.spec.scaling import slowed_rate_bps
from topologies.spec.spec import Spec, parse_dict
from topologies.units import (
    format_rate,
    format_size,
    parse_rate_bps,
    parse_size_bytes,
)

LEAST_BYTES = 4096
"""A smaller message is sent whole, and none is made smaller."""
_BUFFER_FRAMES, _THRESHOLD_FRAMES = 8, 2
"""The least that a queue holds, and that a threshold is, where it was more."""
_BUFFERS = ("buffer",)
_THRESHOLDS = ("kmin", "kmax", "k", "xoff", "xon", "headroom")
_RATES = ("rate", "link_rate")


def wire_spec(spec: Spec) -> Spec:
    """The spec of the fabric that carries the messages: itself where none are scaled. Raises
    SpecError when a scaled value leaves what specs allow."""
    workload = spec.only_workload
    program = None if workload is None else workload.program
    if program is None or program.payload_share == 1:
        return spec
    share = program.payload_share
    frame = max(link.mtu_bytes for link in spec.plan.fabric.links) + ETHERNET_BYTES
    raw = spec.to_dict()
    _divide(raw["fabric"], share, frame)
    for fault in raw["faults"]:
        if fault["kind"] == "rate":
            _divide_rate(fault, "value", share)
    return parse_dict(raw, f"{spec.name} with 1/{share} of its payload")


def _divide(section: Any, share: int, frame_bytes: int) -> None:
    """All rates and sizes of queues in a section, and in the sections within it."""
    if isinstance(section, list):
        for each in section:
            _divide(each, share, frame_bytes)
    if not isinstance(section, dict):
        return
    for key, value in section.items():
        if key in _RATES and value is not None:
            _divide_rate(section, key, share)
        elif key in (*_BUFFERS, *_THRESHOLDS) and value is not None:
            frames = _BUFFER_FRAMES if key in _BUFFERS else _THRESHOLD_FRAMES
            whole = parse_size_bytes(value)
            divided = max(whole // share, min(whole, frames * frame_bytes))
            section[key] = format_size(divided)
        else:
            _divide(value, share, frame_bytes)


def _divide_rate(section: dict[str, Any], key: str, share: int) -> None:
    section[key] = format_rate(max(slowed_rate_bps(parse_rate_bps(section[key]), share), 1))
