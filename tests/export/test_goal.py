"""GOAL text: read back by a reader of our own, every schedule runs to its end."""

from __future__ import annotations

import re
from collections import defaultdict, deque

from hypothesis import given, settings

from analysis.chakra.graph import ComputeNode, Graph, ReceiveNode, SendNode
from analysis.exporters.goal import goal_lines
from tests.export.export_graphs import workloads

_OPERATION = re.compile(
    r"l(?P<id>\d+): (?:calc (?P<calc>\d+)|"
    r"(?P<kind>send|recv) (?P<size>\d+)b (?:to|from) (?P<peer>\d+) tag (?P<tag>\d+))"
)


def _run(lines: list[str]) -> list[int]:
    """Finish times with instant messages: only dependencies and calculations take part."""
    match = re.fullmatch(r"num_ranks (\d+)", lines[0])
    assert match is not None
    ranks = int(match[1])
    operations: list[dict[int, re.Match[str]]] = [{} for _ in range(ranks)]
    parents: list[dict[int, set[int]]] = [defaultdict(set) for _ in range(ranks)]
    rank = -1
    for line in lines[1:]:
        if line.startswith("rank "):
            rank = int(line.split()[1])
        elif "requires" in line:
            child, parent = re.findall(r"l(\d+)", line)
            assert int(parent) in operations[rank]
            parents[rank][int(child)].add(int(parent))
        elif line != "}":
            operation = _OPERATION.fullmatch(line)
            assert operation is not None, line
            operations[rank][int(operation["id"])] = operation
    done: list[dict[int, int]] = [{} for _ in range(ranks)]
    mail: defaultdict[tuple[int, int, str, str], deque[int]] = defaultdict(deque)
    progress = True
    while progress:
        progress = False
        for rank in range(ranks):
            for label, operation in operations[rank].items():
                if label in done[rank] or not parents[rank][label] <= set(done[rank]):
                    continue
                ready = max((done[rank][p] for p in parents[rank][label]), default=0)
                if operation["calc"] is not None:
                    done[rank][label] = ready + int(operation["calc"])
                elif operation["kind"] == "send":
                    done[rank][label] = ready
                    key = (rank, int(operation["peer"]), operation["tag"], operation["size"])
                    mail[key].append(ready)
                else:
                    key = (int(operation["peer"]), rank, operation["tag"], operation["size"])
                    if not mail[key]:
                        continue
                    done[rank][label] = max(ready, mail[key].popleft())
                progress = True
    assert [len(found) for found in done] == [len(found) for found in operations]
    assert not any(mail.values())
    return [max(found.values(), default=0) for found in done]


@settings(deadline=None, max_examples=30)
@given(workloads())
def test_every_schedule_runs_to_its_end(graphs: list[Graph]) -> None:
    ends = _run(list(goal_lines(graphs)))
    for end, graph in zip(ends, graphs, strict=True):
        assert end >= sum(n.duration_ns for n in graph if isinstance(n, ComputeNode))


def test_the_text_of_a_small_schedule() -> None:
    graphs: list[Graph] = [
        (
            ComputeNode(id=1, name="c", duration_ns=250),
            SendNode(id=2, name="s", after=(1,), peer=1, size_bytes=64, tag=5),
        ),
        (ReceiveNode(id=7, name="r", peer=0, size_bytes=64, tag=5),),
    ]
    assert list(goal_lines(graphs)) == [
        "num_ranks 2",
        "rank 0 {",
        "l1: calc 250",
        "l2: send 64b to 1 tag 5",
        "l2 requires l1",
        "}",
        "rank 1 {",
        "l7: recv 64b from 0 tag 5",
        "}",
    ]
