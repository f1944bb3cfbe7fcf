"""Servers whose hosts copy memory over their scale-up links: what a spec may say, and the links."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topologies.fabrics.copies import NO_LINK, CopyPaths
from topologies.fabrics.fabric import Fabric
from topologies.spec.errors import SpecError
from topologies.spec.spec import parse_dict


def spec(**sections: Any) -> dict[str, Any]:
    fabric = {"kind": "rails", "server": "dgx-h100", "servers": 2, "hosts_per_server": 2}
    return {
        "name": "copies",
        "fabric": fabric | {"spines": 1, "scale_up": {"kind": "copies"}},
        "workload": {
            "kind": "collectives",
            "ranks": 4,
            "operations": [{"kind": "all_reduce", "size": "1MiB"}],
        },
        "collectives": {"backend": "nccl"},
    } | sections


def fabric_of(raw: dict[str, Any]) -> Fabric:
    return parse_dict(raw, "a test").plan.fabric


def test_a_copy_takes_the_links_of_its_ends_in_one_server_alone() -> None:
    """Hosts h0 and h1 are in server0, h2 and h3 in server1; link i of class scale-up is the first
    of host i, whose NIC follows."""
    paths = CopyPaths.of(fabric_of(spec()))
    assert paths is not None
    assert paths.between("h0", "h1") == (0, 5)
    assert paths.between("h1", "h0") == (4, 1)
    assert paths.between("h0", "server0") == (0, NO_LINK)
    assert paths.between("server0", "h1") == (NO_LINK, 5)
    for ends in (("h0", "h2"), ("h0", "h0"), ("server0", "server0"), ("server0", "h2")):
        assert paths.between(*ends) is None
    assert (paths.rate_bps, paths.delay_ns) == (2_966_400_000_000, 100)
    assert [paths.occupied_ns(size) for size in (0, 1, 1 << 20)] == [0, 1, 2828]


def test_packets_are_the_default() -> None:
    raw = spec()
    del raw["fabric"]["scale_up"]
    assert CopyPaths.of(fabric_of(raw)) is None


COMMAND = {"kind": "command", "argv": ["true"], "ranks": 4}


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"collectives": {}}, "fabric.scale_up.kind", "collectives.backend: nccl or programs"),
        ({"workload": COMMAND}, "fabric.scale_up.kind", "workload.kind: command"),
        ({"host": {"syscall": "1us"}}, "host", "fabric.scale_up.kind: copies"),
        (
            {"faults": [{"kind": "rate", "link": "h0-server0", "value": "1Gbps", "at": "1us"}]},
            "faults.0.kind",
            "a fault of no scale-up link",
        ),
        (
            {"faults": [{"kind": "kill", "switch": "server0", "at": "1us"}]},
            "faults.0.kind",
            "a fault of no scale-up link",
        ),
    ],
)
def test_what_there_is_not_with_copies_is_refused_by_its_key(
    change: dict[str, Any], key: str, expected: str
) -> None:
    with pytest.raises(SpecError) as refused:
        parse_dict(spec(**change), "a test")
    problems = {".".join(map(str, each.key)): each.expected for each in refused.value.problems}
    assert expected in problems[key], problems


def test_a_fault_of_a_nic_is_allowed() -> None:
    fault = {"kind": "rate", "link": "h0-rail0", "value": "1Gbps", "at": "1us"}
    assert parse_dict(spec(faults=[fault]), "a test").faults


def test_neighbours_forward_no_packets_over_links_of_copies() -> None:
    raw = spec()
    raw["fabric"] |= {"pxn": True}
    with pytest.raises(SpecError, match="pxn: false with scale_up"):
        parse_dict(raw, "a test")


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    raw = json.loads(json.dumps(spec()))
    raw["fabric"]["scale_up"] = {"kind": "nvlink"}
    with pytest.raises(SpecError, match=r"packets.*copies"):
        parse_dict(raw, "a test")
