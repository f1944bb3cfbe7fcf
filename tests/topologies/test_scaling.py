"""Scaling keeps the groups that decide a result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topologies.fabric_strategies import any_fabric
from topologies.fabrics.build import build_fabric
from topologies.spec.scaling import scale_spec
from topologies.spec.spec import SpecError, parse_dict

QUEUES = [
    {"kind": "droptail", "buffer": "1MB"},
    {"kind": "dctcp", "k": "100KB"},
    {"kind": "red"},
    {"kind": "shared", "k": "50KB"},
]


def spec_of(fabric: dict[str, Any], **sections: Any) -> Any:
    return parse_dict(
        {"name": "s", "fabric": fabric, "workload": {"kind": "dlrm", "ranks": 2}} | sections
    )


@settings(max_examples=60, deadline=None)
@given(any_fabric, st.sampled_from(QUEUES), st.sampled_from([1, 2, 8, 100, 1000]))
def test_what_governs_a_link_is_kept_exactly(
    raw: dict[str, Any], queue: dict[str, Any], factor: int
) -> None:
    target = spec_of(raw | {"queue": queue})
    slow = scale_spec(target, factor)
    pairs = zip(build_fabric(target.fabric).links, build_fabric(slow.fabric).links, strict=True)
    for before, after in pairs:
        assert after.rate_bps * factor == before.rate_bps
        assert after.delay_ns == before.delay_ns * factor
        assert after.mtu_bytes == before.mtu_bytes
        for key in ("buffer_bytes", "k_bytes", "kmin_bytes", "kmax_bytes"):
            assert getattr(after.a.queue, key, None) == getattr(before.a.queue, key, None)
    assert slow.workload == target.workload
    flops, moved = 10**12, 10**9
    slow_ns, fast_ns = (s.compute.time_ns(flops, moved, 4) for s in (slow, target))
    assert slow_ns == fast_ns * factor


def test_all_times_grow_and_nothing_else() -> None:
    target = spec_of(
        {
            "kind": "flat",
            "hosts": 2,
            "links": {"host": {"rate": "40Gbps"}},
            "queue": {"kind": "codel", "target": "5us", "interval": "100us", "ce_threshold": "7us"},
            "queues": {"hosts": {"kind": "fq_codel", "target": "6us"}},
        },
        faults=[
            {"kind": "rate", "link": "h0-s0", "at": "1ms", "duration": "2ms", "value": "10Gbps"},
            {"kind": "delay", "link": "h0-s0", "iteration": 1, "value": "3us"},
        ],
        counters={"interval": "10us"},
        transport={"min_rto": "4ms"},
        scale=10,
    )
    slow: Any = scale_spec(target, 10)
    assert slow.scale == 1
    assert slow.fabric.links["host"].rate_bps == 4 * 10**9
    queue = slow.fabric.queue
    assert (queue.target_ns, queue.interval_ns, queue.ce_threshold_ns) == (50_000, 10**6, 70_000)
    assert slow.fabric.queues["hosts"].target_ns == 60_000
    first, second = slow.faults
    assert (first.at_ns, first.duration_ns, first.value) == (10**7, 2 * 10**7, 10**9)
    assert (second.iteration, second.value) == (1, 30_000)
    assert slow.counters.interval_ns == 100_000
    assert slow.tcp.min_rto_ns == 40_000_000
    assert queue.buffer_bytes == target.fabric.queue.buffer_bytes


def test_queue_pairs_are_slowed_down_with_their_controllers() -> None:
    fabric = {"kind": "flat", "hosts": 2, "link": {"mtu": 4200}, "queue": {"kind": "dctcp"}}
    parameters = {"cnp_interval": "4us", "additive_increase": "20Mbps"}
    roce = {"kind": "roce", "congestion_control": "dcqcn", "dcqcn": parameters}
    target = spec_of(
        fabric,
        transport=roce | {"qp_timeout": "1ms", "window": "1MB"},
        workload={"kind": "command", "ranks": 2, "argv": ["train"]},
    )
    slow: Any = scale_spec(target, 10).transport
    assert slow.qp_timeout_ns == 10**7
    assert slow.rate_interval_ns == 100_000
    assert slow.window_bytes == 10**6
    assert (slow.dcqcn.cnp_interval_ns, slow.dcqcn.additive_bps) == (40_000, 2 * 10**6)
    assert slow.dcqcn.increase_interval_ns == 3_000_000


def test_scales_that_cannot_be() -> None:
    target = spec_of({"kind": "flat", "hosts": 2, "link": {"delay": "10ms"}})
    with pytest.raises(ValueError, match="at least 1"):
        scale_spec(target, 0)
    with pytest.raises(SpecError, match=r"fabric\.link\.delay: found 100s; expected .*10s"):
        scale_spec(target, 10_000)
    real = spec_of({"kind": "flat", "hosts": 2}, compute={"device": "real"})
    with pytest.raises(ValueError, match="cannot be slowed down"):
        scale_spec(real, 2)
    assert scale_spec(real, 1).compute.device == "real"
