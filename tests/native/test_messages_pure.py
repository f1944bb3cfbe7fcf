"""The kernel's messages are pyroute2's: held against its classes byte for byte; needs no root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emulator.linux.messages import additions, formats
from emulator.linux.messages.__main__ import source
from emulator.linux.messages.groups import GROUPS
from emulator.linux.messages.links import LINKS
from emulator.linux.messages.queues import OPTIONS, QUEUES
from emulator.linux.messages.shape import Value, values_of
from emulator.linux.netlink import Request
from emulator.linux.rdma_netlink import make_rdma_device
from emulator.network.blueprint import Blueprint
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import (
    Impairment,
    NetemArrangement,
    PortArrangement,
    RateOnlyArrangement,
)
from emulator.ports.own_queues import QueueArrangement
from emulator.ports.stock_queues import StockArrangement
from emulator.switches.stock_switch import SwitchArrangement
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import FatTreeSpec

CLASSES = {
    "LINK": ifinfmsg,
    "ADDR": ifaddrmsg,
    "ROUTE": rtmsg,
    "NEIGH": ndmsg,
    "QDISC": tcmsg,
    "TCLASS": tcmsg,
    "TFILTER": tcmsg,
}
QUEUES_OF_SPEC: dict[str, dict[str, object]] = {
    "droptail": {},
    "red": {},
    "dctcp": {},
    "codel": {"ce_threshold": "50us"},
    "fq_codel": {"ce_threshold": "50us", "flows": 64},
    "shared": {},
    "voq": {},
    "lossless": {},
    "classes": {"classes": {"bulk": {"priority": 0}, "urgent": {"priority": 5, "weight": 2}}},
}

_LINUX = TcpSettings()


def fat_tree(rate: str, delay: str | int, kind: str = "droptail") -> Fabric:
    queue = {"kind": kind, **QUEUES_OF_SPEC[kind]}
    link = {"rate": rate, "delay": delay, "mtu": 1500}
    section = {"kind": "fat-tree", "k": 4, "link": link, "queue": queue, "queues": {"hosts": queue}}
    return build_fabric(FatTreeSpec.model_validate(section))


def requests(
    fabric: Fabric, arrangement: PortArrangement, transport: TcpSettings = _LINUX
) -> Iterator[Request]:
    """All that brings the fabric up, and a link that gets worse."""
    blueprint = Blueprint(fabric, arrangement, transport)
    yield from blueprint.link_requests({node.name: 5 + i for i, node in enumerate(fabric.nodes)})
    routes = compute_routes(fabric)
    for node in fabric.nodes:
        yield from blueprint.node_requests(node.name, routes)
    context = blueprint.contexts["h0"][0]
    loss = 0.0 if isinstance(arrangement, RateOnlyArrangement) else 0.25
    slower = replace(context.link, rate_bps=context.link.rate_bps // 2)
    yield from arrangement.impair(context, Impairment(slower, loss=loss))


def of_pyroute2(request: Request) -> Any:
    """The class of pyroute2 that a request is read by."""
    if request.type >= additions.RDMA_NLDEV_CMD_GET:
        return additions.nldevmsg
    import pyroute2.netlink.rtnl as rtnl

    name = rtnl.RTM_VALUES[request.type].removeprefix("RTM_")
    return CLASSES[re.sub("^(NEW|GET|SET|DEL)", "", name)]


def plain(found: Any) -> Any:
    """A message that pyroute2 read, as pyroute2 takes it to write: attributes are triples with
    their flags."""
    if isinstance(found, dict):
        values = {name: each for name, each in found.items() if name not in ("header", "attrs")}
        attributes = [
            (slot.name, plain(slot.get_value()), slot.get_flags() or 0)
            for slot in found.get("attrs", ())
        ]
        return values | {"attrs": attributes}
    return [plain(each) for each in found] if isinstance(found, list) else found


def again(request: Request) -> bytes:
    """The request read by pyroute2's classes and written by them."""
    of = of_pyroute2(request)
    size = formats.MESSAGE_HEADER.size
    header = formats.MESSAGE_HEADER.pack(
        size + len(request.payload), request.type, request.flags, 0, 0
    )
    read = of(header + request.payload)
    read.decode()
    written = of()
    written.setvalue(plain(read))
    written.encode()
    return bytes(written.data[size:])


def assert_pyroute2_writes(found: Iterator[Request]) -> None:
    distinct = {(request.type, request.payload): request for request in found}
    assert len(distinct) > 100
    for request in distinct.values():
        assert again(request) == request.payload, request.what


def test_the_formats_are_what_pyroute2_makes_of_the_shapes() -> None:
    assert Path(formats.__file__).read_text() == source(), "renew it: see its first lines"


@pytest.mark.parametrize("rate", ["10Gbps", "400Gbps"])
@pytest.mark.parametrize("kind", QUEUES_OF_SPEC)
def test_pyroute2_writes_each_request_of_the_virtual_kernel(kind: str, rate: str) -> None:
    fabric = fat_tree(rate, "1us", kind)
    assert_pyroute2_writes(requests(fabric, QueueArrangement(fabric)))


@pytest.mark.parametrize("rate", ["10Gbps", "400Gbps"])
@pytest.mark.parametrize("kind", ["droptail", "red", "dctcp", "codel", "fq_codel"])
def test_pyroute2_writes_each_request_of_stock_queues(kind: str, rate: str) -> None:
    assert_pyroute2_writes(requests(fat_tree(rate, "1us", kind), StockArrangement()))


@pytest.mark.parametrize("transport", [TcpSettings(initial_window=40, min_rto_ns=5_000_000)])
@pytest.mark.parametrize("arrangement", [NetemArrangement(), RateOnlyArrangement()])
def test_pyroute2_writes_each_request_of_plain_ports(
    arrangement: PortArrangement, transport: TcpSettings
) -> None:
    assert_pyroute2_writes(requests(fat_tree("100Gbps", 0), arrangement))
    assert_pyroute2_writes(requests(fat_tree("10Gbps", 0), arrangement, transport))


class _Memory:
    """A switch's memory without a kernel."""

    arrived, queued, classes = 7, 8, tuple(range(8))

    def rule(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("kind", ["shared", "voq", "lossless"])
def test_pyroute2_writes_each_request_of_stock_switches(kind: str) -> None:
    fabric = fat_tree("10Gbps", "1us", kind)
    arrangement = SwitchArrangement(fabric)
    arrangement.__dict__["memory"] = _Memory()
    assert_pyroute2_writes(requests(fabric, arrangement))


def test_pyroute2_writes_the_request_of_an_rdma_device() -> None:
    request = make_rdma_device("roce-h0", "h0-eth0")
    assert again(request) == request.payload


def _given(value: Value) -> st.SearchStrategy[tuple[Any, int | bytes]]:
    """A value as pyroute2 takes it and as a template does."""
    match value.form:
        case "4s":
            return st.ip_addresses(v=4).map(lambda ip: (str(ip), ip.packed))
        case "6s":
            return st.binary(min_size=6, max_size=6).map(lambda mac: (mac.hex(":"), mac))
        case "16s":
            return st.binary(min_size=16, max_size=16).map(lambda each: (list(each), each))
        case "" if value.terminator:
            letters = st.text("abcdefghij", max_size=20)
            return letters.map(lambda text: (text, text.encode()))
        case "":
            return st.binary(min_size=1, max_size=300).map(lambda content: (content, content))
        case "H" if value.first:  # the order of a filter, beside its protocol
            return st.integers(0, 2**16 - 1).map(lambda order: (order << 16 | value.first, order))
    bits = 8 * {"B": 1, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8}[value.form]
    low = -(2 ** (bits - 1)) if value.form in "iq" else 0
    return st.integers(low, low + 2**bits - 1).map(lambda number: (number, number))


@pytest.mark.parametrize("name", LINKS | QUEUES | OPTIONS | GROUPS)
@given(data=st.data())
def test_a_filled_template_is_what_pyroute2_writes(name: str, data: st.DataObject) -> None:
    shape = (LINKS | QUEUES | OPTIONS | GROUPS)[name]
    given = [data.draw(_given(value)) for value in values_of(shape.values)]
    expected = shape.encode(*[theirs for theirs, _ in given])
    assert getattr(formats, name).fill(*[ours for _, ours in given]) == expected


@pytest.mark.parametrize(
    ("struct", "of"),
    [
        ("tc_gwport_qopt", additions.sched_gwport.options.tc_gwport_qopt),
        ("tc_gwport_xstats", additions.sched_gwport.stats),
    ],
)
def test_the_port_qdiscs_structs_are_those_of_its_header(struct: str, of: Any) -> None:
    header = Path("emulator/kernel/gwport.h").read_text()
    body = re.search(rf"struct {struct} \{{(.*?)\n\}};", header, re.S)
    assert body is not None
    found = re.findall(r"__u(32|64)\s+(\w+)(\[\w+\])?;", body[1])
    codes = {"32": "I", "64": "Q"}
    assert list(of.fields) == [
        (name, ("8" if array else "") + codes[bits]) for bits, name, array in found
    ]
