"""Each of several hundred drawn calls of torch.distributed has its row, with the time that the
ranks' own clocks have. A row that is wrong without a word is a silent error; there is none."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.exec.programs import execute

_CALLS = 300
_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 5us, mtu: 9000}}
predict: [packet]
"""
_LINK_GBPS = 10
_CLOCK_NS = 1_000
"""A rank's clock is read some calls before torch is called, each a nanosecond, and after."""


@dataclass(frozen=True)
class _Call:
    """A call, as all its ranks know it."""

    kind: str
    members: tuple[int, ...]
    size_bytes: int
    way: str
    posted_ns: tuple[int, ...]
    over_ns: tuple[int, ...]


def _calls(work: Path, ranks: int) -> dict[tuple[str, tuple[int, ...]], list[_Call]]:
    """Those of each kind and group, in the order of their ranks. A message's ranks are its sender
    and its receiver."""
    known: dict[tuple[str, tuple[int, ...]], dict[int, list[dict[str, Any]]]] = {}
    for rank in range(ranks):
        for call in json.loads((work / f"calls-{rank}.json").read_text()):
            at = known.setdefault((call["kind"], tuple(call["members"])), {})
            at.setdefault(rank, []).append(call)
    found: dict[tuple[str, tuple[int, ...]], list[_Call]] = {}
    for (kind, members), by_rank in known.items():
        assert set(by_rank) == set(members)
        found[kind, members] = [
            _Call(
                kind,
                members,
                max(call["size_bytes"] for call in calls),
                calls[0]["way"],
                tuple(call.get("posted_ns", 0) for call in calls),
                tuple(call.get("over_ns", 0) for call in calls),
            )
            for calls in zip(*(by_rank[rank] for rank in members), strict=True)
        ]
    return found


def _rows(result: dict[str, Any]) -> dict[tuple[str, tuple[int, ...]], list[dict[str, Any]]]:
    found: dict[tuple[str, tuple[int, ...]], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(result["collectives"], key=lambda row: int(row["start_ns"])):
        found[row["kind"], tuple(row.get("members", range(4)))].append(row)
    return found


def _wrong(call: _Call, row: dict[str, Any]) -> list[str]:
    """The parts of a row that differ from its call as the ranks know it."""
    said: list[str] = []
    if row["busbw_gbps"] is not None and row["busbw_gbps"] > _LINK_GBPS:
        said.append(f"{row['busbw_gbps']} Gb/s")
    if call.way == "objects":  # its bytes are pickle's own
        return said
    if row["size_bytes"] != call.size_bytes:
        said.append(f"{row['size_bytes']} B for {call.size_bytes}")
    start_ns, end_ns = max(call.posted_ns), max(call.over_ns)
    if call.kind == "send_recv":
        start_ns, end_ns = call.posted_ns[0], call.over_ns[1]
    if not 0 <= row["start_ns"] - start_ns <= _CLOCK_NS:
        said.append(f"began at {row['start_ns']}, was posted at {start_ns}")
    if call.way in ("blocking", "async", "skewed") and abs(row["end_ns"] - end_ns) > _CLOCK_NS:
        said.append(f"ended at {row['end_ns']}, was over at {end_ns}")
    if call.way in ("late", "never") and row["end_ns"] - start_ns > 3_000_000:
        said.append("ends when its ranks waited")
    return said


@pytest.mark.long
@pytest.mark.parametrize("seed", [7, 52])
def test_no_call_is_wrong_without_a_word(seed: int, tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    shutil.copy(Path(__file__).with_name("foreign_calls.py"), tmp_path)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run",
        "--", "python", "foreign_calls.py", str(seed), str(_CALLS), timeout_s=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "run/result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    calls, rows = _calls(tmp_path / "run/work", 4), _rows(result)
    assert Counter({key: len(each) for key, each in calls.items()}) == Counter(
        {key: len(each) for key, each in rows.items()}
    )
    assert sum(map(len, calls.values())) >= _CALLS
    silent = [
        f"{row['id']} ({call.way}): {', '.join(wrong)}"
        for key, each in calls.items()
        for call, row in zip(each, rows[key], strict=True)
        if (wrong := _wrong(call, row))
    ]
    assert not silent, f"{len(silent)} silent errors: " + "; ".join(silent[:20])
