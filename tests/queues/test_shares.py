"""A fabric's shares in several kernels: what each of them builds, from requests and options."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from emulator.blueprint import Blueprint
from emulator.port_qdisc import NO_FLAGS, Flag
from emulator.queues import QueueArrangement, Sampling
from emulator.sysctls import Transport
from topologies.build import build_fabric
from topologies.division import Share, divide
from topologies.fabric import Fabric
from topologies.fabric_spec import FabricSpec
from topologies.routing import compute_routes

_ADAPTER: TypeAdapter[Any] = TypeAdapter(FabricSpec)
_SPECS = [
    {"kind": "flat", "hosts": 9, "queue": {"kind": "dctcp"}},
    {"kind": "fat-tree", "k": 4, "queue": {"kind": "voq"}},
    {"kind": "torus", "dims": [4, 4], "queue": {"kind": "lossless"}},
]
RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH = 20, 24, 28


@pytest.fixture(params=_SPECS, ids=lambda raw: raw["kind"])
def fabric(request: pytest.FixtureRequest) -> Fabric:
    return build_fabric(_ADAPTER.validate_python(request.param))


def _blueprints(fabric: Fabric, kernels: int) -> tuple[QueueArrangement, list[Blueprint]]:
    ports = frozenset(p.interface for link in fabric.links for p in (link.a, link.b))
    arrangement = QueueArrangement(fabric, sampling=Sampling(1000, ports))
    division = divide(fabric, kernels)
    shares = [Share(fabric, division, kernel) for kernel in range(kernels)]
    return arrangement, [Blueprint(fabric, arrangement, Transport(), 1, s) for s in shares]


@pytest.mark.parametrize("kernels", [2, 3])
def test_each_port_is_in_one_kernel_as_it_is_in_a_whole_fabric(
    fabric: Fabric, kernels: int
) -> None:
    arrangement, blueprints = _blueprints(fabric, kernels)
    whole = Blueprint(fabric, arrangement, Transport(), 1)
    division = divide(fabric, kernels)
    for node, contexts in whole.contexts.items():
        there = blueprints[division.kernel_of[node]].contexts[node]
        assert len(contexts) == len(there)
        for context, other in zip(contexts, there, strict=True):
            assert replace(other, crossing=None) == context
            cut = division.is_cut(context.link)
            options = arrangement.options(context)
            made = arrangement.options(other)
            assert made.flags - options.flags == (Flag.SENDS if cut else NO_FLAGS)
            assert replace(made, flags=options.flags, channel=0) == options
            assert (made.channel != 0) == cut


@pytest.mark.parametrize("kernels", [2, 3])
def test_each_channel_has_a_sender_and_a_landing(fabric: Fabric, kernels: int) -> None:
    arrangement, blueprints = _blueprints(fabric, kernels)
    ends: Counter[tuple[int, int, int, Flag]] = Counter()
    for kernel, blueprint in enumerate(blueprints):
        for contexts in blueprint.contexts.values():
            for context in contexts:
                options = arrangement.options(context)
                far, number = options.channel >> 32, options.channel & 0xFFFFFFFF
                flag = options.flags & (Flag.SENDS | Flag.LANDS)
                if not flag:
                    assert context.crossing is None
                    continue
                assert far != kernel
                assert (options.sample_interval_ns == 0) == (flag == Flag.LANDS)
                assert number == 1 + 2 * context.link.index + (context.port == context.link.b)
                from_, to = (kernel, far) if flag == Flag.SENDS else (far, kernel)
                ends[from_, to, number, flag] += 1
    assert set(ends.values()) == {1}
    senders = {end[:3] for end in ends if end[3] == Flag.SENDS}
    assert senders == {end[:3] for end in ends if end[3] == Flag.LANDS}
    division = divide(fabric, kernels)
    assert len(senders) == 2 * sum(division.is_cut(link) for link in fabric.links)


def test_far_nodes_have_neither_addresses_nor_routes(fabric: Fabric) -> None:
    _, blueprints = _blueprints(fabric, 2)
    kernel_of = divide(fabric, 2).kernel_of
    routes = compute_routes(fabric)
    for kernel, blueprint in enumerate(blueprints):
        for node in blueprint.contexts:
            types = {request.type for request in blueprint.node_requests(node, routes)}
            own = kernel_of[node] == kernel
            assert ({RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH} <= types) == own
            assert own or not {RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH} & types
