"""Settings of queue pairs and their devices as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulation.columns import Column
from topologies.fabrics.fabric import Fabric
from topologies.spec.transports.roce.device import device_settings
from topologies.spec.transports.roce.section import RoceTransport

_DEVICE = (
    *("kind", "line_bps", "min_bps", "additive_bps", "hyper_bps"),
    *("cnp_interval_ns", "alpha_interval_ns", "decrease_interval_ns", "increase_interval_ns"),
    *("gain_q32", "fast_stages", "clamp_target"),
    *("rtt_min_ns", "rtt_low_ns", "rtt_high_ns", "ewma_q32", "beta_q32", "hyper_after"),
    *("base_rtt_ns", "target_q32", "max_stage", "target_delay_ns", "scale_q16"),
    *("ecn", "window_bytes", "window_by_rate", "ack_every", "int_hops"),
    *("selective", "reordering_ns"),
    *("entropy_values", "entropy_least", "probe_interval_ns", "trim"),
)
"""The numbers of a device, in the order of `roce.devices` (simulation/engine/verbs.hpp)."""

_TIMEOUT_UNIT_NS = 4096
"""Time-outs are this, times a power of two (InfiniBand volume 1, 9.7.6.1.3)."""


def roce_columns(
    roce: RoceTransport, fabric: Fabric, line_rates_bps: Sequence[int]
) -> dict[str, Column]:
    """The settings of all queue pairs, and those of their devices by these rates."""
    numbers = {
        "roce.path_mtu": roce.path_mtu_bytes,
        "roce.timeout_ns": _TIMEOUT_UNIT_NS << roce.timeout_exponent,
        "roce.retries": roce.retry_count,
    }
    devices: list[int] = []
    for line_bps in line_rates_bps:
        told = device_settings(roce, fabric, line_bps)
        devices += [told.get(name, 0) for name in _DEVICE]
    columns = {name: np.array([number], dtype=np.int64) for name, number in numbers.items()}
    return columns | {"roce.devices": np.array(devices, dtype=np.int64)}
