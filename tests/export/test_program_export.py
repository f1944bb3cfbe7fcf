"""Programs of a spec in every format of `groundwire trace export`: their messages, size by size and
peer by peer."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from analysis.chakra.graph import CollectiveNode, ReceiveNode, SendNode
from analysis.chakra.sources.read import read_workload
from collectives.algorithms import algorithm
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from collectives.msccl.read import read
from collectives.program import Program
from tests.session.command import groundwire

RANKS = 6
SIZE_BYTES = 600_000
SPEC = f"""
name: exported
fabric: {{kind: flat, hosts: {RANKS}}}
workload:
  kind: collectives
  ranks: {RANKS}
  operations: [{{kind: all_reduce, size: {SIZE_BYTES}}}, {{kind: all_to_all, size: {SIZE_BYTES}}}]
collectives:
  backend: programs
  all_reduce: {{algorithm: double-binary-tree, chunks: 3}}
  all_to_all: {{algorithm: bruck}}
"""
CHUNKS = {
    ("double-binary-tree", Kind.ALL_REDUCE): 3,
    ("bruck", Kind.ALL_TO_ALL): 1,
}

Message = tuple[int, int, int]
"""A message: source, destination, bytes."""


def expected() -> Counter[Message]:
    found: Counter[Message] = Counter()
    for (name, kind), chunks in CHUNKS.items():
        planned = cut(Shape(kind, SIZE_BYTES, RANKS, 4), algorithm(name), Chunking(chunks))
        found.update((m.source, m.destination, m.size_bytes) for m in planned.numbered_messages())
    return found


def test_no_two_of_the_programs_messages_could_be_mistaken_for_a_ring() -> None:
    """The messages that the other tests compare with have more pairs than a ring has."""
    assert len({(source, to) for source, to, _ in expected()}) > 2 * RANKS


def exported(folder: Path, format_: str) -> Path:
    spec, out = folder / "spec.yaml", folder / "out"
    spec.write_text(SPEC)
    done = groundwire("trace", "export", "--format", format_, spec, "--out", out)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return out


@pytest.mark.parametrize(("format_", "prefix"), [("chakra", "exported"), ("astra-sim", "workload")])
def test_chakra_traces_carry_the_programs_messages(
    tmp_path: Path, format_: str, prefix: str
) -> None:
    sent, received = Counter[Message](), Counter[Message]()
    for rank, graph in enumerate(read_workload(exported(tmp_path, format_) / prefix).graphs):
        assert not any(isinstance(node, CollectiveNode) for node in graph)
        sent.update((rank, n.peer, n.size_bytes) for n in graph if isinstance(n, SendNode))
        received.update((n.peer, rank, n.size_bytes) for n in graph if isinstance(n, ReceiveNode))
    assert sent == received == expected()


def test_astra_sims_simulator_runs_the_programs_to_their_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "spec.yaml").write_text(SPEC)
    done = groundwire(
        "trace", "export", "--format", "astra-sim", tmp_path / "spec.yaml", "--out", out
    )
    simulated = groundwire(*done.stdout.split()[1:])
    assert simulated.returncode == 0, simulated.stderr
    assert simulated.stdout.count("finished") == RANKS


def test_goal_carries_the_programs_messages(tmp_path: Path) -> None:
    sent, received = Counter[Message](), Counter[Message]()
    rank = -1
    for line in (exported(tmp_path, "goal") / "exported.goal").read_text().splitlines():
        if found := re.fullmatch(r"rank (\d+) \{", line):
            rank = int(found[1])
        elif found := re.match(r"l\d+: send (\d+)b to (\d+)", line):
            sent[rank, int(found[2]), int(found[1])] += 1
        elif found := re.match(r"l\d+: recv (\d+)b from (\d+)", line):
            received[int(found[2]), rank, int(found[1])] += 1
    assert sent == received == expected()


def test_msccls_files_hold_the_programs_of_the_chunks(tmp_path: Path) -> None:
    out = exported(tmp_path, "msccl-xml")
    found = {path.name: read(path.read_text()) for path in out.iterdir()}
    assert found == {f"{kind}-{RANKS}-{name}.xml": _program(name, kind) for name, kind in CHUNKS}


def _program(name: str, kind: Kind) -> Program:
    return algorithm(name).program(kind, RANKS)
