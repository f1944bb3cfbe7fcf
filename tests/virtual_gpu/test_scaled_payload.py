"""A part of each large message for all of it: the fabric that carries it, and the spec's keys."""

from __future__ import annotations

from typing import Any

import pytest

from topologies.spec.payload_scaling import wire_spec
from topologies.spec.spec import Spec, SpecError, parse_dict

_SPEC: dict[str, Any] = {
    "name": "scaled",
    "fabric": {
        "kind": "flat",
        "hosts": 2,
        "link": {"rate": "100Gbps", "delay": "500ns", "mtu": 9000},
        "queue": {"kind": "dctcp", "k": "1600KB", "buffer": "16MB"},
    },
    "workload": {
        "kind": "command",
        "argv": ["python", "train.py"],
        "ranks": 2,
        "gpus_per_host": 1,
        "scale_payload": "1/16",
    },
}


def _spec(**changes: Any) -> Spec:
    return parse_dict(_SPEC | {key: _SPEC.get(key, {}) | each for key, each in changes.items()})


def test_rates_and_queues_are_a_share_and_times_stay() -> None:
    spec = _spec()
    wire = wire_spec(spec)
    (link, *_), (slow, *_) = spec.plan.fabric.links, wire.plan.fabric.links
    assert slow.rate_bps * 16 == link.rate_bps
    assert (slow.delay_ns, slow.mtu_bytes) == (link.delay_ns, link.mtu_bytes)
    queue: Any = wire.fabric.queue
    assert (queue.k_bytes, queue.buffer_bytes) == (100_000, 1_000_000)
    assert wire.workload.program is not None and wire.workload.program.payload_share == 16


def test_a_queue_keeps_room_for_frames() -> None:
    queue: Any = wire_spec(_spec(workload={"scale_payload": "1/1000"})).fabric.queue
    assert queue.k_bytes > 2 * 9000 and queue.buffer_bytes > 8 * 9000


def test_a_whole_payload_has_the_fabric_as_it_is() -> None:
    spec = _spec(workload={"scale_payload": 1})
    assert wire_spec(spec) is spec


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": {"scale_payload": "0.5"}}, "expected 1 (whole messages), or 1/2 to 1/"),
        ({"workload": {"scale_payload": "2/3"}}, "expected 1 (whole messages), or 1/2 to 1/"),
        ({"workload": {"gpus_per_host": None}}, "expected 1 without gpus_per_host"),
        ({"compute": {"contents": "full"}}, "expected 1 with compute.contents: full"),
        (
            {
                "compute": {"contents": "full", "routing_skew": 1.0},
                "workload": {"scale_payload": 1},
            },
            "expected 0 with contents: full",
        ),
    ],
)
def test_what_does_not_go_together_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        _spec(**changes)
    assert said in str(raised.value)
