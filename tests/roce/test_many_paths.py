"""MRC: many paths of a queue pair, those that lose are left, and ports that trim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.runs.run import load_run
from groundwire.pipeline import run
from topologies.spec.spec import SpecError, parse_spec

_HEADERS = 82 + 16
"""Headers of a full packet, a RETH with them (analysis/predict/transports/roce/wire.py)."""

_CLOS = """
name: paths
fabric: {{kind: leaf-spine, leaves: 2, spines: {spines}, hosts_per_leaf: 4,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, queue: {queue}}}
transport: {{kind: mrc{more}}}
workload: {{kind: collectives, ranks: 8, operations: [{{kind: all_to_all, size: {size}}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
predict: [packet]
{faults}
"""


def _measured(out: Path, text: str) -> dict[str, Any]:
    run(parse_spec(text), kernel="virtual", out=out, pages=False)
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    return found


def _clos(
    out: Path, spines: int, queue: str, more: str = "", faults: str = "", size: str = "2MB"
) -> dict[str, Any]:
    told = {"spines": spines, "queue": queue, "more": more, "faults": faults, "size": size}
    return _measured(out, _CLOS.format(**told))


def _expect_exact(found: dict[str, Any]) -> None:
    """The packet engine compiles the same files, and follows what is lost, marked and trimmed."""
    (iteration,) = found["iterations"]
    predicted = iteration["predicted"]["packet"]["duration_ns"]
    assert predicted == pytest.approx(iteration["duration_ns"], rel=2e-3)


def _uplink_packets(run_directory: Path) -> dict[str, int]:
    """The packets that leave leaf0 for each spine, by its links.jsonl."""
    links = load_run(run_directory).port_counters
    return {one.peer: one.packets for one in links if one.node == "leaf0" and "spine" in one.peer}


def test_a_value_that_loses_is_left(tmp_path: Path) -> None:
    """One of four uplinks loses half of its packets, both ways. A queue pair sends 244 packets, by
    16 values: each loss leaves a value until a probe has come back, so that this link has less
    than half of what others have, where hashes alone would have it carry a quarter."""
    faults = "faults: [{kind: loss, link: leaf0-spine0, at: 0ns, value: 50%}]"
    more = ", entropy: {values: 16}"
    found = _clos(tmp_path / "run", 4, "{kind: dctcp, k: 100KB}", more, faults, "8MB")
    summary = found["summary"]
    assert summary["paths_bad"] > 0 and summary["probes"] > 0
    assert summary["resent_alone"] <= summary["drops"]
    packets = _uplink_packets(tmp_path / "run")
    others = [count for spine, count in packets.items() if spine != "spine0"]
    assert packets["spine0"] < min(others) / 2
    _expect_exact(found)


def test_what_has_no_room_goes_on_without_its_payload(tmp_path: Path) -> None:
    """Four ranks of a leaf send over one uplink of the same rate. No packet is lost, each that is
    trimmed is sent again, and the uplink carries 4 MB of payload at its rate, with the headers of
    what was trimmed."""
    queue = "{kind: droptail, buffer: 100KB, trim: true}"
    found = _clos(tmp_path / "run", 1, queue, ", qp_timeout: 1ms")
    summary = found["summary"]
    assert summary["trims"] > 100 and summary["drops"] == 0
    assert summary["resent_trimmed"] == summary["resent_alone"] == summary["trims"]
    assert summary["retries"] == summary["paths_bad"] == 0
    (collective,) = found["collectives"]
    sent = 4_000_000 * (4096 + _HEADERS) / 4096 + summary["trims"] / 2 * (74 + 24)
    assert sent * 8 / 100 <= 1.02 * collective["duration_ns"]
    assert collective["duration_ns"] <= 1.15 * sent * 8 / 100
    _expect_exact(found)


def test_a_hundredth_lost_keeps_nine_tenths_of_goodput(tmp_path: Path) -> None:
    """A message of 32 MiB to one rank."""
    size = 2**25
    spec = f"""
name: lossy
fabric: {{kind: flat, hosts: 2, link: {{rate: 100Gbps, delay: 1us, mtu: 4200}},
  queue: {{kind: droptail, buffer: 64MB}}}}
transport: {{kind: mrc}}
workload: {{kind: collectives, ranks: 2, operations: [{{kind: broadcast, size: {size}}}]}}
collectives: {{backend: programs, broadcast: {{algorithm: tree}}}}
predict: [packet]
faults: [{{kind: loss, link: h0-s0, at: 0ns, value: 1%}}]
"""
    found = _measured(tmp_path / "run", spec)
    wire_ns = size * (4096 + _HEADERS) / 4096 * 8 / 100
    assert wire_ns <= found["collectives"][0]["duration_ns"] <= wire_ns / 0.9
    assert 55 <= found["summary"]["resent_alone"] <= 110  # of 8,192 packets, three sigmas
    _expect_exact(found)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        pytest.param("routing: spray", "expected source, or ecmp", id="sprays"),
        pytest.param("routing: {kind: ecmp, fields: [addresses]}", "by ports", id="addresses"),
        pytest.param("queue: {kind: lossless}", "without priority flow control", id="pauses"),
    ],
)
def test_fabrics_that_would_not_heed_it_are_refused(key: str, said: str) -> None:
    spec = _CLOS.format(spines=2, queue="{kind: droptail}", more="", faults="", size="2MB")
    if key.startswith("queue"):
        spec = spec.replace("queue: {kind: droptail}", key)
    else:
        spec = spec.replace("queue: {kind: droptail}", f"queue: {{kind: droptail}}, {key}")
    with pytest.raises(SpecError, match=said):
        parse_spec(spec)


def test_ports_that_trim_need_ends_that_hear_of_it() -> None:
    spec = _CLOS.format(
        spines=2, queue="{kind: droptail, trim: true}", more="", faults="", size="2MB"
    )
    with pytest.raises(SpecError, match="lose their payload"):
        parse_spec(spec.replace("{kind: mrc}", "{kind: roce}"))


def test_it_rides_out_a_link_that_carries_nothing(tmp_path: Path) -> None:
    """A link to a leaf loses all for a millisecond, and no route is computed anew. A packet that is
    lost is missed 50 us later, or by a time-out of 131 us where it was the last, and is sent again
    by a value that has lost none. Three such rounds are less than a queue pair of one path waits
    for the link, or for its time-out of a millisecond."""
    hole = "faults: [{kind: loss, link: leaf1-spine0, at: 50us, duration: 1ms, value: 100%}]"
    queue, more = "{kind: droptail, buffer: 4MB}", ", entropy: {values: 16}"
    found = _clos(tmp_path / "run", 4, queue, more, hole, "8MB")
    clean = _clos(tmp_path / "clean", 4, queue, more, "", "8MB")
    late_ns = found["iterations"][0]["duration_ns"] - clean["iterations"][0]["duration_ns"]
    assert found["summary"]["drops"] > 0 and late_ns <= 3 * 131_072
    _expect_exact(found)
