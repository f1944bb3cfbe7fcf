"""Slowing a fabric down for a kernel that cannot keep up, so that results carry over exactly.

With every rate divided by s, every time multiplied by s and sizes kept, the dimensionless groups
that govern the result stay the same: message / BDP, buffer / BDP, K / BDP, serialisation /
propagation, timeout / RTT, compute / communication. A time measured on the slow fabric is s times
the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topologies.spec.spec import Spec, parse_dict
from topologies.units import format_rate, format_time, parse_rate_bps, parse_time_ns

_SECTION_TIMES = (
    ("transport", "min_rto"),
    ("transport", "qp_timeout"),
    ("transport", "rate_interval"),
    ("counters", "interval"),
    ("virtual", "receive_coalescing"),
    ("host", "syscall"),
    ("host", "wakeup"),
    ("host", "per_packet"),
    ("host", "interrupt_moderation"),
)
_CONTROLLER_TIMES = (
    *("cnp_interval", "alpha_interval", "decrease_interval", "increase_interval"),
    *("min_rtt", "low", "high", "base_rtt"),
)
_CONTROLLER_RATES = ("additive_increase", "hyper_increase", "min_rate")


def scale_spec(spec: Spec, factor: int) -> Spec:
    """The spec of the slow fabric: rates / factor, times * factor, sizes as they are, scale 1.

    Rates are rounded to whole bits per second. Raises ValueError for a factor below 1 or compute
    that is not modelled but real, and SpecError when a scaled value leaves what specs allow.
    """
    if factor < 1:
        raise ValueError(f"a scale is at least 1, not {factor}")
    if factor > 1 and spec.compute.device == "real":
        raise ValueError("real compute cannot be slowed down: expected a modelled device or none")
    raw = spec.to_dict()
    fabric = raw["fabric"]
    links = fabric.get("links", {})
    for link in (fabric["link"], *(links.values() if isinstance(links, dict) else links)):
        _replace(link, "rate", lambda text: _slower(text, factor))
        _replace(link, "delay", lambda text: _longer(text, factor))
    graph_links = links if isinstance(links, list) else []
    queues = [link["queue"] for link in graph_links if link["queue"] is not None]
    for queue in (fabric["queue"], *fabric["queues"].values(), *queues):
        for key in ("target", "interval", "ce_threshold"):
            _replace(queue, key, lambda text: _longer(text, factor))
    for section, key in _SECTION_TIMES:
        if raw[section].get(key) != "auto":
            _replace(raw[section], key, lambda text: _longer(text, factor))
    for controller in ("dcqcn", "timely", "hpcc"):
        parameters = raw["transport"].get(controller) or {}
        for key in _CONTROLLER_TIMES:
            _replace(parameters, key, lambda text: _longer(text, factor))
        for key in _CONTROLLER_RATES:
            _replace(parameters, key, lambda text: _slower(text, factor))
    for fault in raw["faults"]:
        for key in ("at", "duration", "every", "down", "restart"):
            _replace(fault, key, lambda text: _longer(text, factor))
        if fault["kind"] == "rate":
            fault["value"] = _slower(fault["value"], factor)
        elif fault["kind"] == "delay":
            fault["value"] = _longer(fault["value"], factor)
    _replace(raw, "hang_after", lambda text: _longer(text, factor))
    raw["compute"]["slowdown"] *= factor
    aggregation = raw["aggregation"] or {"nodes": {}}
    for node in (aggregation, *aggregation["nodes"].values()):
        _replace(node, "rate", lambda text: _slower(text, factor))
        _replace(node, "latency", lambda text: _longer(text, factor))
    for job in raw.get("jobs", ()):
        _replace(job, "start", lambda text: _longer(text, factor))
        if job["compute"] is not None:
            job["compute"]["slowdown"] *= factor
    raw["scale"] = 1
    return parse_dict(raw, f"{spec.name} slowed down {factor} times")


def slowed_rate_bps(rate_bps: int, factor: int) -> int:
    """The rate of the slow fabric for one of the target; to the nearest bit per second."""
    return (2 * rate_bps + factor) // (2 * factor)


def _replace(section: dict[str, Any], key: str, change: Callable[[str], str]) -> None:
    if section.get(key) is not None:
        section[key] = change(section[key])


def _slower(rate: str, factor: int) -> str:
    return format_rate(slowed_rate_bps(parse_rate_bps(rate), factor))


def _longer(time: str, factor: int) -> str:
    return format_time(parse_time_ns(time) * factor)
