"""The settings of a Soft-RoCE device, as the kernel and the packet engine take them.

The names are those of emulator/kernel/rxe/rxe_congestion.c, which refuses what it does not know.
"""

from __future__ import annotations

from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric
from topologies.routing.extent import Extent, longest_path
from topologies.spec.transports.checks import fabric_trims
from topologies.spec.transports.mrc.section import MrcTransport
from topologies.spec.transports.roce.section import (
    REORDERING_NS,
    Dcqcn,
    Dctcp,
    Entropy,
    Hpcc,
    Nscc,
    RoceTransport,
    Timely,
    controller_rates,
)
from topologies.units import q32

_KINDS = {"none": 0, "dcqcn": 1, "timely": 2, "hpcc": 3, "dctcp": 4, "nscc": 5}
_SAMPLES = 200_000
"""The samples of a device's queue pairs together, 24 bytes each."""
_NSCC_PRODUCT_BYTES = 150_000
"""100 Gb/s times 12 us, to which NSCC's increases are scaled."""
_NSCC_MOST_SCALE = 1024
"""RXE_NSCC_MOST_SCALE_Q16."""
_FRAME_HEADERS_BYTES = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, the base header and the invariant CRC."""
_ACK_HEADER_BYTES = 4


def device_settings(transport: RoceTransport, fabric: Fabric, line_bps: int) -> dict[str, int]:
    """The settings of the device of a port of such a rate, by the kernel's names."""
    controller = transport.controller
    extent = longest_path(fabric)
    settings = {
        "kind": _KINDS[transport.congestion_control],
        "line_bps": line_bps,
        "ecn": int(transport.ecn_capable),
        "ack_every": transport.packets_per_ack,
        "window_bytes": transport.window_bytes or 0,
    }
    if isinstance(transport, MrcTransport) and transport.window_bytes is None:
        product = line_bps * base_rtt_ns(transport, extent) // (8 * 10**9)
        settings["window_bytes"] = max(transport.path_mtu_bytes, 3 * product // 2)
    if transport.is_selective:
        settings["selective"] = 1
        settings["reordering_ns"] = (
            REORDERING_NS if transport.reordering_ns is None else transport.reordering_ns
        )
        settings["trim"] = int(fabric_trims(fabric))
    if transport.entropy is not None:
        settings |= _entropy(transport.entropy)
    if controller is None:
        return settings
    if isinstance(controller, Dctcp):
        return settings | _dctcp(controller, transport, extent, line_bps)
    if isinstance(controller, Nscc):
        return settings | _nscc(controller, transport, fabric, line_bps)
    rates = controller_rates(controller, line_bps)
    settings |= {
        "additive_bps": rates.additive_bps,
        "hyper_bps": rates.hyper_bps,
        "min_bps": rates.min_bps,
        "sample_interval_ns": transport.rate_interval_ns,
        "sample_capacity": _SAMPLES,
    }
    match controller:
        case Dcqcn():
            return settings | _dcqcn(controller)
        case Timely():
            return settings | _timely(controller)
        case Hpcc():
            return settings | _hpcc(controller, transport, extent, line_bps)


def _entropy(of: Entropy) -> dict[str, int]:
    return {
        "entropy_values": of.values,
        "entropy_least": of.values // 4 or 1 if of.least is None else of.least,
        "probe_interval_ns": of.probe_interval_ns,
    }


def _dcqcn(of: Dcqcn) -> dict[str, int]:
    return {
        "cnp_interval_ns": of.cnp_interval_ns,
        "alpha_interval_ns": of.alpha_interval_ns,
        "decrease_interval_ns": of.decrease_interval_ns,
        "increase_interval_ns": of.increase_interval_ns,
        "gain_q32": q32(of.gain),
        "fast_stages": of.fast_stages,
        "clamp_target": int(of.clamp_target),
    }


def _timely(of: Timely) -> dict[str, int]:
    return {
        "rtt_min_ns": of.min_rtt_ns,
        "rtt_low_ns": of.low_ns,
        "rtt_high_ns": of.high_ns,
        "ewma_q32": q32(of.ewma),
        "beta_q32": q32(of.beta),
        "hyper_after": of.hyper_after,
    }


def _dctcp(of: Dctcp, transport: RoceTransport, extent: Extent, line_bps: int) -> dict[str, int]:
    product = line_bps * base_rtt_ns(transport, extent) // (8 * 10**9)
    return {
        "gain_q32": q32(of.gain),
        "window_bytes": transport.window_bytes or max(transport.path_mtu_bytes, product),
        "min_bps": 1,
    }


def _nscc(of: Nscc, transport: RoceTransport, fabric: Fabric, line_bps: int) -> dict[str, int]:
    rtt_ns = of.base_rtt_ns or base_rtt_ns(transport, longest_path(fabric))
    product = line_bps * rtt_ns // (8 * 10**9)
    waits_ns = 3 * rtt_ns // 4 if fabric_trims(fabric) else rtt_ns
    return {
        "base_rtt_ns": rtt_ns,
        "target_delay_ns": of.target_ns or min(waits_ns, 10**8),
        "scale_q16": min((product << 16) // _NSCC_PRODUCT_BYTES, _NSCC_MOST_SCALE << 16),
        "window_bytes": transport.window_bytes or max(transport.path_mtu_bytes, 3 * product // 2),
        "min_bps": 1,
    }


def _hpcc(of: Hpcc, transport: RoceTransport, extent: Extent, line_bps: int) -> dict[str, int]:
    rtt_ns = of.base_rtt_ns or base_rtt_ns(transport, extent)
    settings = {
        "base_rtt_ns": rtt_ns,
        "target_q32": q32(of.target),
        "max_stage": of.max_stage,
        "int_hops": extent.links,
    }
    if transport.window_bytes is None:
        settings |= {
            "window_bytes": -(-line_bps * rtt_ns // (8 * 10**9)),
            "window_by_rate": 1,
        }
    return settings


def base_rtt_ns(transport: RoceTransport, extent: Extent) -> int:
    """From the first bit of a packet to the last of its acknowledgement, over the longest path of
    the fabric, without queues."""
    telemetry = 4 + 12 * extent.links if transport.congestion_control == "hpcc" else 0
    headers = _FRAME_HEADERS_BYTES + L1_OVERHEAD_BYTES + telemetry
    return extent.base_rtt_ns(transport.path_mtu_bytes + headers, _ACK_HEADER_BYTES + headers)
