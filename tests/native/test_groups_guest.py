"""Resilient groups in the virtual kernel: flows of other links stay where they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from emulator.network.faults import FaultInjector
from emulator.network.network import Network, NetworkOptions
from emulator.ports.counters import read_interfaces
from emulator.ports.own_queues import QueueArrangement
from tests.native.fault_specs import fault
from tests.native.group_tables import assert_as_computed
from tests.native.native_traffic import UDP, open_socket
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.ecmp_hash import UDP as UDP_NUMBER
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.routing.routes import Routes, compute_routes
from topologies.spec.fabric_section import GraphSpec, LeafSpineSpec

pytestmark = pytest.mark.guest

_PORTS = range(20_000, 20_096)
_TO = 5_000
_SEED = 1


def _live(routing: Mapping[str, object]) -> Network:
    section = {"kind": "leaf-spine", "leaves": 3, "spines": 4, "hosts_per_leaf": 1}
    link = {"rate": "10Gbps", "delay": "1us", "mtu": 1500}
    fabric = LeafSpineSpec.model_validate({**section, "link": link, "routing": routing})
    return _network(build_fabric(fabric))


def _network(fabric: Fabric) -> Network:
    options = NetworkOptions(arrangement=QueueArrangement(fabric, 1), hash_seed=_SEED)
    return Network(fabric, compute_routes(fabric), options)


def _sent(live: Network, node: str) -> dict[int, int]:
    """Link of a node -> packets that it has sent there."""
    with live.netlink(node) as netlink:
        sent = read_interfaces(netlink)
    return {each.link.index: sent[each.ifindex].tx_packets for each in live.contexts(node)}


def _taken(
    live: Network, node: str = "leaf0", source: str = "h0", to: str = "h2"
) -> dict[int, int]:
    """Source port -> the link over which a node sends the flow between two hosts."""
    found = {}
    before = _sent(live, node)
    with open_socket(live, to, UDP, _TO) as receiver:
        for port in _PORTS:
            with open_socket(live, source, UDP, port) as sender:
                sender.sendto(b"x", receiver.getsockname())
            receiver.recv(10)
            after = _sent(live, node)
            (found[port],) = (link for link, packets in after.items() if packets > before[link])
            before = after
    return found


def _computed(fabric: Fabric, routes: Routes) -> dict[int, int]:
    ends = fabric.by_name["h0"].address, fabric.by_name["h2"].address
    flows = {port: FiveTuple(*ends, port, _TO, UDP_NUMBER) for port in _PORTS}
    return {p: flow_path(routes, "h0", "h2", flow, _SEED)[1].link for p, flow in flows.items()}


def _through_a_fault(
    live: Network, at_s: Sequence[float] = (0.11, 0.21)
) -> Sequence[dict[int, int]]:
    """Where flows go before a link of the first leaf goes down, from 0.1 to 0.2 s, and at times."""
    time.sleep(0.001)
    faults = [fault("link-down", "leaf0-spine1", at="100ms", duration="100ms")]
    with FaultInjector(live, faults) as injector:
        injector.on_iteration(0)
        start = time.monotonic()
        found = [_taken(live)]
        for seconds in at_s:
            time.sleep(max(0.0, start + seconds - time.monotonic()))
            found.append(_taken(live))
    return found


def _cut(fabric: Fabric) -> int:
    (link,) = (e.index for e in fabric.links_of["leaf0"] if e.other("leaf0").node == "spine1")
    return link


@pytest.mark.parametrize("kind", ["ecmp", "weighted"])
def test_only_flows_of_the_link_that_is_down_move(kind: str) -> None:
    """Three quarters of the flows stay, and the others are spread over all links that are left.
    When the link is back it gets a quarter again, and nothing moves between the others."""
    with _live({"kind": kind, "resilient": {"buckets": 64}}) as live:
        rest = live.routes
        before, down, back = _through_a_fault(live)
        fabric, cut = live.fabric, _cut(live.fabric)
        without = compute_routes(fabric, [cut], rest)
        again = compute_routes(fabric, [], without)
        live.routes = again
        assert_as_computed(live)
    moved = {port for port in _PORTS if down[port] != before[port]}
    assert moved == {port for port in _PORTS if before[port] == cut}
    assert {down[port] for port in moved} == {*before.values()} - {cut}
    assert all(back[port] == cut for port in _PORTS if back[port] != down[port])
    assert cut in back.values()
    for found, routes in ((before, rest), (down, without), (back, again)):
        assert found == _computed(fabric, routes)


def test_plain_hashing_moves_flows_of_other_links() -> None:
    """The second of four next hops goes, and the thresholds between the others move: a third of the
    third one's flows goes to the fourth."""
    with _live({"kind": "ecmp"}) as live:
        rest, fabric = live.routes, live.fabric
        before, down, back = _through_a_fault(live)
    cut = _cut(fabric)
    assert any(down[port] != before[port] for port in _PORTS if before[port] != cut)
    assert before == back == _computed(fabric, rest)
    assert down == _computed(fabric, compute_routes(fabric, [cut]))


def test_flows_that_go_on_stay_until_the_table_has_been_uneven_for_long() -> None:
    """A link that is back is given nothing of theirs at once. Linux looks after half a second
    whether the table is uneven still."""
    timers = {"idle_timer": "120s", "unbalanced_timer": "50ms"}
    with _live({"kind": "ecmp", "resilient": {"buckets": 64, **timers}}) as live:
        before, down, back, late = _through_a_fault(live, (0.11, 0.21, 0.8))
        cut = _cut(live.fabric)
    assert cut in before.values() and cut not in down.values()
    assert back == down
    assert cut in late.values()
    assert all(late[port] == cut for port in _PORTS if late[port] != back[port])


def test_hosts_with_several_links_have_groups_of_their_own() -> None:
    """They hash what they send themselves, and otherwise than a switch that forwards it."""
    nodes = [{"name": name, "kind": "host"} for name in "ab"]
    nodes += [{"name": name, "kind": "switch"} for name in "st"]
    links = [{"ends": [host, switch]} for host in "ab" for switch in "st"]
    section = {"kind": "graph", "nodes": nodes, "links": links}
    routing = {"routing": {"kind": "ecmp", "resilient": {"buckets": 10}}}
    fabric = build_fabric(GraphSpec.model_validate({**section, **routing}))
    ends = fabric.by_name["a"].address, fabric.by_name["b"].address
    with _network(fabric) as live:
        assert_as_computed(live)
        taken = _taken(live, "a", "a", "b")
    for port in _PORTS:
        flow = FiveTuple(*ends, port, _TO, UDP_NUMBER)
        assert taken[port] == flow_path(live.routes, "a", "b", flow, _SEED)[0].link
    assert len({*taken.values()}) == 2
