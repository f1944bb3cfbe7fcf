"""Dragonfly and Dragonfly+ in the virtual kernel: minimal ways, and the engine beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.runs.run import load_run
from groundwire.pipeline import run
from topologies.spec.spec import parse_spec

_SPEC = """
name: groups
fabric: {{{fabric}, link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, routing: {routing}}}
transport: {{kind: roce, path_mtu: 4096, loss_recovery: selective-repeat}}
workload: {{kind: collectives, ranks: {ranks}, operations: [{{kind: all_to_all, size: 999984}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
predict: [packet]
"""
_DRAGONFLY = "kind: dragonfly, routers_per_group: 2, hosts_per_router: 2, global_links: 1"
_PLUS = (
    "kind: dragonfly+, leaves_per_group: 2, spines_per_group: 2, hosts_per_leaf: 2, global_links: 1"
)


@pytest.mark.parametrize(
    ("fabric", "routing"),
    [
        pytest.param(_DRAGONFLY, "ecmp", id="dragonfly"),
        pytest.param(_PLUS, "{kind: spray, choose: round-robin}", id="dragonfly+"),
    ],
)
def test_all_that_leaves_a_group_crosses_one_global_link(
    tmp_path: Path, fabric: str, routing: str
) -> None:
    """Three groups of four hosts: of the 11 messages of a rank 8 leave its group, each by one
    global link, and none by two; those links are used alike."""
    text = _SPEC.format(fabric=fabric, routing=routing, ranks=12)
    run(parse_spec(text), kernel="virtual", out=tmp_path / "run", pages=False)
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    measured = load_run(tmp_path / "run")
    ports = {port.interface: link for link in measured.fabric.links for port in (link.a, link.b)}
    crossed = [
        one.bytes for one in measured.port_counters if ports[one.port].link_class == "global"
    ]
    message = 999_984 // 12
    least = 12 * 8 * message
    # Headers, credits and acknowledgements are below a tenth of packets of 4096 bytes.
    assert least < sum(crossed) < 1.1 * least
    assert len(crossed) == 6 and max(crossed) < 1.02 * min(crossed)
    (row,) = found["collectives"]
    assert row["predicted"]["packet"]["duration_ns"] == pytest.approx(row["duration_ns"], rel=0.005)
