"""PCIe switches and root complexes between hosts and NICs of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.forecast import predict
from groundwire.pipeline import run
from topologies.spec.errors import SpecError
from topologies.spec.spec import Spec, load_spec, parse_dict

READY = Path(__file__).parents[2] / "topologies" / "io-bus.yaml"


def _spec(bus: dict[str, Any], servers: int = 2, size: str = "8MB") -> Spec:
    hosts = len(bus.get("accelerators", range(8)))
    operations = [{"kind": "permutation", "size": size, "shift": hosts}]
    fabric = {
        "kind": "rails",
        "servers": servers,
        "hosts_per_server": hosts,
        "bus": bus,
        "links": {"scale-up": {"rate": "1920Gbps"}, "nic": {"rate": "200Gbps", "delay": "1us"}},
    }
    workload = {"kind": "collectives", "ranks": servers * hosts, "operations": operations}
    return parse_dict({"name": "s", "fabric": fabric, "workload": workload})


@st.composite
def buses(draw: st.DrawFn) -> dict[str, Any]:
    roots = draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
    roots = [root if set(roots) == {0, 1} else 0 for root in roots]
    places = st.integers(0, len(roots) - 1)
    accelerators = draw(st.lists(places, min_size=2, max_size=4))
    on = st.one_of(places, st.sampled_from([f"root{root}" for root in set(roots)]))
    count = len(accelerators)
    nics = draw(st.lists(on, min_size=count, max_size=count))
    return {"roots": roots, "accelerators": accelerators, "nics": nics}


@given(buses())
def test_packets_leave_by_the_nic_of_their_rail_and_take_the_tree(bus: dict[str, Any]) -> None:
    plan = _spec(bus, servers=3).plan
    local = len(bus["accelerators"])
    for source in range(3 * local):
        for destination in range(3 * local):
            if source == destination:
                continue
            (path,) = plan.routes.paths(f"h{source}", f"h{destination}")
            nodes = [hop.node for hop in path]
            assert len(set(nodes)) == len(nodes)
            server, there, number = source // local, destination // local, destination % local
            if server == there:
                assert nodes == [f"server{server}", f"h{destination}"]
                continue
            outside = nodes.index(f"rail{number}")
            assert nodes[outside - 1 : outside + 2] == [
                f"nic{server}-{number}", f"rail{number}", f"nic{there}-{number}"
            ]  # fmt: skip
            # Packets for another rail begin at the neighbour that is on it.
            inside = nodes[: outside - 1]
            if source % local != number:
                assert inside[:2] == [f"server{server}", f"h{server * local + number}"]
                inside = inside[2:]
            assert inside == _way(bus, server, number)
            assert nodes[outside + 2 : -1] == _way(bus, there, number)[::-1]


def _way(bus: dict[str, Any], server: int, number: int) -> list[str]:
    """The switches and root complexes from an accelerator to its NIC."""
    switch, nic = bus["accelerators"][number], bus["nics"][number]
    if switch == nic:
        return [f"pcie{server}-{switch}"]
    root = bus["roots"][switch]
    other = int(nic[4:]) if isinstance(nic, str) else bus["roots"][nic]
    way = [f"pcie{server}-{switch}", f"root{server}-{root}"]
    way += [f"root{server}-{other}"] * (other != root)
    return way + ([] if isinstance(nic, str) else [f"pcie{server}-{nic}"])


@pytest.mark.parametrize(
    ("nics", "rate_bps"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3], 200e9),
        # A switch's way up has what its two accelerators send, and what its two NICs receive.
        ([1, 1, 0, 0, 3, 3, 2, 2], 230e9 / 4),
        # Between root complexes go what four send and four receive: 460 Gb/s for eight.
        ([2, 2, 3, 3, 0, 0, 1, 1], 460e9 / 8),
        (["root0"] * 4 + ["root1"] * 4, 230e9 / 2),
    ],
)
def test_accelerators_share_what_is_on_their_way(nics: list[int | str], rate_bps: float) -> None:
    """8 MB each, of 14 + 24 + 52 bytes a frame of 9,014; `flow` has no slow start."""
    forecast = predict(_spec({"preset": "zionex", "nics": nics}), predictors=["flow"])
    whole = forecast.iterations["flow"]
    assert not isinstance(whole, str)
    on_the_wire = 8e6 * (9000 + 38) / (9000 - 52)
    assert whole.duration_ns == pytest.approx(on_the_wire * 8e9 / rate_bps, rel=0.03)


@pytest.mark.parametrize(
    ("bus", "more", "told"),
    [
        ({"roots": [0, 2], "accelerators": [0, 1]}, {}, "expected roots to be 0 to 2, each once"),
        ({"roots": [0], "accelerators": [0, 1]}, {}, "expected PCIe switches 0 to 0"),
        ({"roots": [0], "accelerators": [0, 0], "nics": [0]}, {}, "expected as many nics as"),
        ({"roots": [0], "accelerators": [0, 0], "nics": [0, "root1"]}, {}, "found 'root1'"),
        ({"preset": "zionex"}, {"hosts_per_server": 4}, "expected hosts_per_server: 8"),
        ({"preset": "zionex"}, {"spines": 1}, "expected neither spines nor servers_per_leaf"),
        ({"preset": "zionex"}, {"servers": 65}, "expected at most 512 hosts with a bus"),
        ({"accelerators": [0, 0]}, {}, "fabric.bus.roots"),
    ],
)
def test_mistakes_are_told(bus: dict[str, Any], more: dict[str, Any], told: str) -> None:
    hosts = len(bus.get("accelerators", range(8)))
    fabric = {"kind": "rails", "servers": 2, "hosts_per_server": hosts, "bus": bus} | more
    operations = [{"kind": "all_reduce", "size": "1MB"}]
    workload = {"kind": "collectives", "ranks": 4, "operations": operations}
    with pytest.raises(SpecError) as refused:
        parse_dict({"name": "s", "fabric": fabric, "workload": workload})
    assert told in str(refused.value)


def test_links_inside_are_set_like_others() -> None:
    spec = load_spec(READY, overrides={"fabric.links.root-port.rate": "100Gbps"})
    rates = {link.link_class: link.rate_bps for link in spec.plan.fabric.links}
    assert rates["root-port"] == 100e9 and rates["pcie"] == 230e9
    assert Spec.model_validate(spec.to_dict()).plan.fabric.links == spec.plan.fabric.links


def test_a_bus_is_followed_to_the_nanosecond(tmp_path: Path) -> None:
    """Four accelerators whose NICs are across the root complex."""
    bus = {"roots": [0, 0], "accelerators": [0, 0, 1, 1], "nics": [1, 1, 0, 0]}
    spec = _spec(bus, size="1MB").with_overrides(
        {"predict": "[packet]", "counters.interval": "null"}
    )
    result = run(spec, kernel="virtual", out=tmp_path / "run", pages=False).result
    assert result["valid"] and result["summary"]["drops"] == 0
    (row,) = result["collectives"]
    least_ns = 4 * 1e6 * 8 * (9000 + 38) / (9000 - 52) / 230
    assert row["duration_ns"] > least_ns
    assert abs(row["predicted"]["packet"]["error"]) < 0.01
