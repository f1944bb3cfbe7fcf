"""From a queue of the spec to the qdisc's options, and from statistics to counters. No kernel."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from emulator.network.deadlock import deadlocks
from emulator.ports.arrangement import PortContext
from emulator.ports.own_queues import QueueArrangement, port_options
from emulator.ports.port_qdisc import (
    DROP_REASONS,
    NEVER,
    PortOptions,
    QueueKind,
    Waiting,
    parse_statistics,
)
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric, headroom_bytes
from topologies.fabrics.port_seed import port_seed
from topologies.spec.fabric_section import GraphSpec
from topologies.spec.queue_section import QueueSpec
from topologies.spec.spec import load_spec
from topologies.units import q32

_OPTIONS = struct.Struct("=17Q20I")


def _fabric(links: list[tuple[str, str]], queue: dict[str, Any]) -> Fabric:
    names = dict.fromkeys(name for link in links for name in link)
    kinds = {n: "switch" if n.startswith("s") else "host" for n in names}
    return build_fabric(
        GraphSpec.model_validate(
            {
                "kind": "graph",
                "nodes": [{"name": n, "kind": kind} for n, kind in kinds.items()],
                "links": [{"ends": ends} for ends in links],
                "queue": queue,
            }
        )
    )


def _options(ports: int = 4, **queue: Any) -> PortOptions:
    link = _fabric([("a", "s"), ("s", "b")], {"kind": "droptail"}).links[0]
    spec: QueueSpec = TypeAdapter(QueueSpec).validate_python(queue)
    return port_options(spec, link, ingress_ports=ports, seed=7)


@given(st.floats(0, 1))
def test_probabilities_keep_32_bits(p: float) -> None:
    assert abs(q32(p) / 2**32 - p) <= 2**-32
    assert 0 <= q32(p) < 2**32


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        q32(p)


@given(rate=st.integers(1, 2**63), delay=st.integers(0, 2**40), seed=st.integers(0, 2**64 - 1))
def test_options_are_packed_in_the_order_of_the_struct(rate: int, delay: int, seed: int) -> None:
    options = PortOptions(
        kind=QueueKind.VOQ, rate_bps=rate, delay_ns=delay, buffer_bytes=5, seed=seed, queues=9
    )
    length, kind = struct.unpack_from("=HH", options.pack())
    values = _OPTIONS.unpack_from(options.pack(), 4)
    assert (length, kind) == (4 + _OPTIONS.size, 1)
    assert (values[0], values[1], values[2], values[3]) == (rate, delay, 5, NEVER)
    assert (values[13], values[17], values[18], values[22]) == (seed, 4, QueueKind.VOQ, 9)


def test_a_value_that_does_not_fit_its_field_is_refused() -> None:
    with pytest.raises(ValueError, match="rate_bps=-1"):
        PortOptions(kind=QueueKind.DROPTAIL, rate_bps=-1, delay_ns=0, buffer_bytes=0).pack()


def test_every_discipline_has_its_options() -> None:
    red = _options(kind="red", kmin="10B", kmax="20B", pmax=0.5, weight=0.25, buffer="30B")
    assert (red.kind, red.kmin_bytes, red.kmax_bytes, red.buffer_bytes) == (
        QueueKind.RED,
        10,
        20,
        30,
    )
    assert (red.red_pmax_q32, red.red_weight_q32, red.flags) == (2**31, 2**30, 1)
    assert _options(kind="dctcp", k="500B").k_bytes == 500
    codel = _options(kind="codel", target="5us", interval="100us", ecn=False)
    assert (codel.target_ns, codel.interval_ns, codel.ce_threshold_ns) == (5000, 100_000, NEVER)
    assert codel.flags == 0
    assert _options(kind="codel", ce_threshold="7us").ce_threshold_ns == 7000
    fq = _options(kind="fq_codel", flows=16)
    assert (fq.kind, fq.queues, fq.quantum_bytes) == (QueueKind.FQ_CODEL, 16, 9014)
    assert _options(kind="shared", alpha=0.125).alpha_q16 == 2**13
    assert _options(kind="voq").queues == 5
    places = _options(kind="credits", buffer="20KB")
    assert (places.kind, places.buffer_bytes) == (QueueKind.CREDITS, 20_000)
    cells = _options(kind="cells", links=6, link_rate="50Gbps", k="1MB")
    assert (cells.kind, cells.queues, cells.card, cells.k_bytes) == (QueueKind.CELLS, 2, 0, 10**6)
    assert (cells.fabric_links, cells.fabric_bps, cells.fabric_ns) == (6, 50 * 10**9, 200)
    assert (cells.cell_bytes, cells.cell_header_bytes, cells.quantum_bytes) == (256, 8, 4096)
    lossless = _options(kind="lossless", lossy_priorities=[0, 2])
    assert (lossless.lossy_classes, lossless.k_bytes) == (0b101, NEVER)


def test_headroom_is_what_the_link_needs_unless_given() -> None:
    link = _fabric([("a", "s"), ("s", "b")], {"kind": "droptail"}).links[0]
    # 2 * 100 Gb/s * 500 ns are 12.5 KB; three frames of MTU 9000; a pause frame.
    assert headroom_bytes(link) == 12_500 + 3 * 9014 + 84
    assert _options(kind="lossless").headroom_bytes == headroom_bytes(link)
    assert _options(kind="lossless", headroom="77B").headroom_bytes == 77


def test_a_class_that_is_not_named_is_served_as_the_lowest() -> None:
    bulk = {"priority": 2, "weight": 2, "queue": {"kind": "dctcp", "k": 9000}}
    train = {"priority": 5, "weight": 3, "queue": {"kind": "lossless"}}
    options = _options(kind="classes", classes={"bulk": bulk, "train": train})
    assert options.class_map == 0x22522222
    assert {each.kind for each in options.classes} == {QueueKind.DCTCP, QueueKind.LOSSLESS}
    assert [each.k_bytes for each in options.classes[4:6]] == [9000, NEVER]
    # Quanta are of full frames: 9014 bytes and 24 more on the wire, times the weight over 2.
    assert [each.class_quantum_bytes for each in options.classes[4:6]] == [9038, 13557]
    assert len(options.pack()) == 9 * _OPTIONS.size + 2 * 4


def test_seeds_differ_by_port_and_by_seed() -> None:
    seeds = {port_seed(seed, port) for seed in (1, 2) for port in ("a-eth0", "a-eth1", "b-eth0")}
    assert len(seeds) == 6


def test_statistics_are_read_in_the_order_of_the_struct() -> None:
    found = parse_statistics(struct.pack("=85Q2I", *range(85), 100, 200))
    assert (found.tx_bytes, found.delivered_packets, found.drop_bytes) == (0, 4, 13)
    assert dict(found.drops) == dict(zip(DROP_REASONS, range(5, 13), strict=True))
    assert found.paused_ns == 26
    assert found.class_paused_ns == tuple(range(27, 35))
    assert found.class_tx_packets == tuple(range(43, 51))
    assert found.class_max_backlog_bytes == tuple(range(67, 75))
    assert (found.xoffs_sent, found.samples_lost) == (75, 82)
    assert (found.trims, found.trimmed_bytes) == (83, 84)
    assert (found.paused_classes, found.samples) == (100, 200)


def test_statistics_of_another_kernel_are_refused() -> None:
    with pytest.raises(ValueError, match="built from other sources"):
        parse_statistics(bytes(100))


def test_counters_need_the_port_qdisc() -> None:
    fabric = _fabric([("a", "s"), ("s", "b")], {"kind": "droptail"})
    link = fabric.links[0]
    with pytest.raises(LookupError, match="no gwport qdisc"):
        QueueArrangement(fabric).counters(PortContext(link, link.a, 2), [])


def test_every_ready_made_spec_gives_ports() -> None:
    from pathlib import Path

    for path in sorted(Path(__file__).parents[2].glob("topologies/*.yaml")):
        spec = load_spec(path)
        fabric = build_fabric(spec.fabric)
        arrangement = QueueArrangement(fabric, spec.seed)
        for link in fabric.links[:4]:
            for port in (link.a, link.b):
                assert arrangement.options(PortContext(link, port, 2)).pack()


# -- deadlocks -----------------------------------------------------------------------------------

_RING = [("s0", "s1"), ("s1", "s2"), ("s2", "s0"), ("h0", "s0"), ("h1", "s1")]


def _contexts(fabric: Fabric) -> dict[str, tuple[PortContext, ...]]:
    return {
        node.name: tuple(
            PortContext(link, link.port(node.name), 2 + i)
            for i, link in enumerate(fabric.links_of[node.name])
        )
        for node in fabric.nodes
    }


def _waits(
    contexts: dict[str, tuple[PortContext, ...]], node: str, out: str, came: str, size: int
) -> Waiting:
    index = {c.link.other(node).node: c.ifindex for c in contexts[node]}
    return Waiting(index[out], index[came], 3, size, paused=True)


@pytest.mark.parametrize(("size", "dead"), [(200_000, True), (199_999, False)])
def test_a_ring_of_paused_ports_is_a_deadlock(size: int, dead: bool) -> None:
    fabric = _fabric(_RING, {"kind": "lossless", "xon": 200_000})
    contexts = _contexts(fabric)
    ring = ("s0", "s1", "s2")
    waiting = {
        node: [_waits(contexts, node, ring[(i + 1) % 3], ring[i - 1], size)]
        for i, node in enumerate(ring)
    }
    found = deadlocks(contexts, waiting)
    assert [(d.ports, d.priority) for d in found] == (
        [(("s0-eth0", "s1-eth1", "s2-eth1"), 3)] if dead else []
    )


def test_a_chain_of_paused_ports_is_none() -> None:
    fabric = _fabric(_RING, {"kind": "lossless"})
    contexts = _contexts(fabric)
    waiting = {
        "s0": [_waits(contexts, "s0", "s1", "s2", 10**6)],
        "s1": [_waits(contexts, "s1", "h1", "s0", 10**6)],
    }
    assert deadlocks(contexts, waiting) == ()
