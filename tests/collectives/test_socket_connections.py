"""Several sockets of two ranks, in the virtual kernel, and what decides how many there are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from analysis.decode.ledger import Purpose
from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from emulator.guest_memory import guest_memory_bytes
from tests.exec.programs import execute
from tests.session.command import run_spec, valid_rows
from topologies.spec.errors import SpecError
from topologies.spec.spec import parse_spec

SPEC = """
name: sockets
fabric: {kind: leaf-spine, leaves: 2, spines: 4, hosts_per_leaf: 2,
  link: {rate: 100Gbps, delay: 1us, mtu: 4200}}
transport: {kind: tcp, connections: 8, spread: SPREAD}
workload: {kind: collectives, ranks: 4, operations: [
  {kind: all_reduce, size: 8MB}, {kind: all_to_all, size: 3999984}, {kind: all_reduce, size: 8}]}
collectives: {backend: programs, all_reduce: {algorithm: ring, chunks: 2},
  all_to_all: {algorithm: direct}}
capture: {points: [hosts]}
predict: [packet, flow]
"""
PAIRS = 6


@pytest.mark.parametrize("spread", ["split", pytest.param("messages", marks=pytest.mark.long)])
def test_messages_arrive_whole_over_all_sockets(tmp_path: Path, spread: str) -> None:
    directory = run_spec(tmp_path, SPEC.replace("SPREAD", spread))
    assert len(valid_rows(directory, 0)) == 3  # ranks check what arrives
    run = load_run(directory)
    logged = [(log.rank, one) for log in run.ranks for one in log.connections]
    assert len({(rank, one.port, one.peer, one.peer_port) for rank, one in logged}) == PAIRS * 8
    capture = load_capture(run)
    assert capture is not None
    attribution = capture.attribution
    assert attribution.unattributed_bytes == attribution.unlogged_bytes == 0
    carried: Counter[str] = Counter()
    data, ledger = attribution.ledger.column("data_bytes"), attribution.ledger
    for row in (ledger.primary & (ledger.purpose == Purpose.DATA)).nonzero()[0].tolist():
        carried[attribution.connections[int(ledger.connection[row])].member.group] += int(data[row])
    assert set(carried) == {"default", *(f"default#{number}" for number in range(1, 8))}
    if spread == "split":
        # Messages of 1 MB go in eight parts alike.
        assert max(carried.values()) < 1.1 * min(carried.values())
        assert min(link.bytes for link in run.port_counters if link.node.startswith("spine")) > 0
    result = json.loads((directory / "result.json").read_text())
    (iteration,) = result["iterations"]
    # The engine follows each socket, by the way that its own ports take.
    assert abs(iteration["predicted"]["packet"]["error"]) < 0.05
    assert "8 connections of two ranks" in (directory / "report.html").read_text()


@pytest.mark.long
def test_two_runs_are_the_same(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        directory = run_spec(tmp_path / name, SPEC.replace("SPREAD", "split"))
        found.append([path.read_bytes() for path in sorted(directory.glob("ranks/*.jsonl"))])
    assert found[0] == found[1]


def test_a_script_of_torch_has_them_too(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(
        "fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 9000}}\n"
        "transport: {kind: tcp, connections: 3}\n"
        "collectives: {backend: programs, all_reduce: {algorithm: ring}}\n"
        "capture: {points: [hosts]}\npredict: []\n"
    )
    (tmp_path / "script.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "given = torch.arange(300_000, dtype=torch.float32)\n"
        "dist.all_reduce(given)\n"
        "assert torch.equal(given, 2 * torch.arange(300_000, dtype=torch.float32))\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run",
        "--", "python", "script.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    capture = load_capture(load_run(tmp_path / "run"))
    assert capture is not None
    assert {each.member.group for each in capture.attribution.connections} == {
        "default",
        "default#1",
        "default#2",
    }
    assert capture.attribution.unattributed_bytes == capture.attribution.unlogged_bytes == 0


def test_memory_is_that_of_all_sockets(tmp_path: Path) -> None:
    text = SPEC.replace("SPREAD", "split")
    one, two, three = (
        guest_memory_bytes(
            parse_spec(text.replace("connections: 8", f"connections: {n}")), tmp_path
        )
        for n in (1, 2, 3)
    )
    assert one < two
    assert three - two == two - one


def test_sockets_that_nothing_would_use_are_refused() -> None:
    text = SPEC.replace("SPREAD", "split").replace(
        "backend: programs, all_reduce: {algorithm: ring, chunks: 2},\n  "
        "all_to_all: {algorithm: direct}",
        "backend: gloo",
    )
    with pytest.raises(SpecError, match=r"transport\.connections: found 8.*one connection"):
        parse_spec(text)
