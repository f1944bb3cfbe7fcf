"""Runs whose hosts write segments, in the virtual kernel that has IPv6. They are `long`: where
it is not there yet, that kernel is built for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import Run, load_run
from groundwire.pipeline import run
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.spec.spec import parse_spec

pytestmark = pytest.mark.long

_SPEC = """
name: segments
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4300}}, {queue}routing: {routing}}}
transport: {transport}
workload: {{kind: collectives, ranks: 4, iterations: 2,
  operations: [{{kind: all_to_all, size: 400KB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
predict: [packet, flow, alpha-beta]
capture: {{points: [hosts]}}
"""
_TRANSPORTS = {
    "tcp": "{kind: tcp}",
    "dctcp": "{kind: tcp, congestion_control: dctcp}",
    "roce": "{kind: roce, path_mtu: 4096}",
    "mrc": "{kind: mrc}",
}


def _measured(out: Path, kind: str, routing: str = "srv6") -> dict[str, Any]:
    queue = "" if kind in ("tcp", "roce") else "queue: {kind: dctcp, k: 100KB, buffer: 4MB}, "
    text = _SPEC.format(transport=_TRANSPORTS[kind], queue=queue, routing=routing)
    run(parse_spec(text), kernel="virtual", out=out, pages=False)
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return found


@pytest.fixture(scope="module", params=sorted(_TRANSPORTS))
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(str(request.param)) / "run"
    _measured(directory, str(request.param))
    return directory


def test_every_byte_is_attributed_and_wrapped(ran: Path) -> None:
    capture = load_capture(load_run(ran))
    assert capture is not None
    assert capture.attribution.unattributed_bytes == capture.attribution.unlogged_bytes == 0
    for packets in capture.files:
        assert packets.is_ipv4.all(), "nothing of IPv6's own is on the wire"
        assert (packets.outer_bytes == 40).all()


def test_packet_prices_the_outer_header(ran: Path) -> None:
    """The first collective within 0.5%: a packet of the wrong length would be 1% off."""
    found = json.loads((ran / "result.json").read_text())
    first = found["collectives"][0]
    assert first["predicted"]["packet"]["duration_ns"] == pytest.approx(
        first["duration_ns"], rel=5e-3
    )


def test_a_second_run_is_the_same(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        _measured(tmp_path / name, "tcp")
        files.append((tmp_path / name / "links.jsonl").read_bytes())
    assert files[0] == files[1]


def _spine_bytes(of: Run) -> dict[tuple[str, str], int]:
    return {
        (each.node, each.peer): each.bytes
        for each in of.port_counters
        if each.node.startswith("leaf") and each.peer.startswith("spine")
    }


def test_connections_go_by_the_paths_of_their_hashes(tmp_path: Path) -> None:
    """Each uplink carries what the flows send that it is computed for."""
    _measured(tmp_path / "run", "tcp")
    of = load_run(tmp_path / "run")
    nodes, hosts = of.fabric.by_name, of.hosts
    expected = dict.fromkeys(_spine_bytes(of), 0)
    for log in of.ranks:
        for each in log.connections:  # told by one of its ends
            ends = (hosts[log.rank], each.port), (hosts[each.peer], each.peer_port)
            for (here, port), (there, to) in (ends, ends[::-1]):
                flow = FiveTuple(nodes[here].address, nodes[there].address, port, to)
                path = flow_path(of.routes, here, there, flow, of.spec.seed)
                if len(path) == 4:
                    expected[path[0].node, path[1].node] += 2 * 100_000
    for link, carried in _spine_bytes(of).items():
        # Headers are 3% of long packets; notifications and acknowledgements come on top.
        assert expected[link] <= carried <= 1.1 * expected[link] + 60_000
