"""Random valid fabric sections, as the plain data of a spec."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from pydantic import TypeAdapter

from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.spec.fabric_section import FabricSpec

_ADAPTER: TypeAdapter[Any] = TypeAdapter(FabricSpec)


def fabric_of(raw: dict[str, Any]) -> Fabric:
    return build_fabric(_ADAPTER.validate_python(raw))


_ROUTINGS = ["ecmp", "static", {"kind": "weighted", "resilient": {"buckets": 16}}]
fat_trees = st.builds(
    lambda k, routing: {"kind": "fat-tree", "k": k, "routing": routing},
    st.sampled_from([4, 6]),
    st.sampled_from(_ROUTINGS),
)
tori = st.builds(
    lambda dims, routing: {"kind": "torus", "dims": dims, "routing": routing},
    st.one_of(
        st.lists(st.integers(2, 6), min_size=2, max_size=2),
        st.lists(st.integers(2, 4), min_size=3, max_size=3),
    ),
    st.sampled_from(["dimension-order", "ecmp", "static"]),
)
meshes = tori.map(lambda raw: raw | {"kind": "mesh"})
leaf_spines = st.builds(
    lambda leaves, spines, hosts, routing: {
        "kind": "leaf-spine",
        "leaves": leaves,
        "spines": spines,
        "hosts_per_leaf": hosts,
        "routing": routing,
    },
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(2, 5),
    st.sampled_from(_ROUTINGS),
)
hierarchies = st.builds(
    lambda groups, hosts, outer: {
        "kind": "hierarchical",
        "groups": groups,
        "hosts_per_group": hosts,
        "outer_switches": outer,
    },
    st.integers(1, 5),
    st.integers(2, 6),
    st.integers(1, 3),
)
rails_with_pxn = st.builds(
    lambda servers, hosts, spines, routing: {
        "kind": "rails",
        "servers": servers,
        "hosts_per_server": hosts,
        "spines": spines,
        "pxn": True,
        "routing": routing,
    },
    st.integers(1, 5),
    st.integers(2, 6),
    st.integers(0, 3),
    st.sampled_from(["ecmp", "static"]),
)
rails_with_spines = st.builds(
    lambda leaves, per_leaf, hosts, spines, on_leaves, routing: (
        {
            "kind": "rails",
            "servers": leaves * per_leaf,
            "hosts_per_server": hosts,
            "spines": spines,
            "pxn": False,
            "routing": routing,
        }
        | ({"servers_per_leaf": per_leaf} if on_leaves else {})
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(2, 6),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["ecmp", "static"]),
)

rails_in_planes = st.builds(
    lambda raw, planes: raw | {"planes": planes}, rails_with_spines, st.integers(2, 4)
)


@st.composite
def dragonflies(draw: st.DrawFn) -> dict[str, Any]:
    """A Dragonfly or Dragonfly+, with one global link of each pair of groups, or several."""
    plus, switches, links = draw(st.booleans()), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    others = draw(st.sampled_from([n for n in range(1, 9) if switches * links % n == 0]))
    raw = {"global_links": links, "groups": others + 1}
    if plus:
        below = {"leaves_per_group": draw(st.integers(1, 3)), "hosts_per_leaf": 2}
        return raw | below | {"kind": "dragonfly+", "spines_per_group": switches}
    of_routers = {"routers_per_group": switches, "hosts_per_router": draw(st.integers(1, 2))}
    routing = {"routing": draw(st.sampled_from(["ecmp", "static"]))}
    return raw | of_routers | routing | {"kind": "dragonfly"}


flats = st.builds(lambda hosts: {"kind": "flat", "hosts": hosts}, st.integers(2, 70))

SCALE_UP = {"scale-up": {"rate": "3600Gbps", "delay": "100ns", "mtu": 65_535}}
servers = st.builds(
    lambda raw, gpus: raw | {"gpus_per_host": gpus, "links": SCALE_UP},
    st.one_of(leaf_spines, st.builds(lambda n: {"kind": "flat", "hosts": n}, st.integers(2, 9))),
    st.integers(2, 9),
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """A random tree of switches with extra (also parallel) links, and hosts on random switches."""
    switches = draw(st.integers(1, 7))
    hosts = draw(st.integers(2, 9))
    nodes = [{"name": f"s{i}", "kind": "switch"} for i in range(switches)]
    nodes += [{"name": f"h{i}", "kind": "host"} for i in range(hosts)]
    ends = [[f"s{i}", f"s{draw(st.integers(0, i - 1))}"] for i in range(1, switches)]
    pairs = st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1))
    for a, b in draw(st.lists(pairs, max_size=6)):
        if a != b:
            ends.append([f"s{a}", f"s{b}"])
    for i in range(hosts):
        for s in draw(st.sets(st.integers(0, switches - 1), min_size=1, max_size=2)):
            ends.append([f"h{i}", f"s{s}"])
    return {
        "kind": "graph",
        "nodes": draw(st.permutations(nodes)),
        "links": [{"ends": pair} for pair in draw(st.permutations(ends))],
        "routing": draw(st.sampled_from(["ecmp", "static"])),
    }


regular = st.one_of(
    *(fat_trees, tori, meshes, leaf_spines, hierarchies, rails_with_pxn, dragonflies(), flats)
)
any_fabric = st.one_of(regular, graphs())
