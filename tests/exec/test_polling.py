"""Programs that ask whether a collective is over, again and again."""

from __future__ import annotations

import json
from pathlib import Path

from tests.exec.programs import execute

_FABRIC = """
name: two
fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
predict: [alpha-beta]
"""
_PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
work = dist.all_reduce(torch.ones(8192), async_op=True)
while not work.is_completed(): pass
print("completed", flush=True)
dist.destroy_process_group()
"""


def test_a_loop_on_is_completed_ends_at_the_collectives_end(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(_FABRIC)
    (tmp_path / "poll.py").write_text(_PROGRAM)
    done = execute(
        tmp_path, "two.yaml", "--ranks", "2", "--kernel", "virtual", "--out", "out",
        "--", "python", "poll.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "completed" in done.stdout
    # Torch's store tries an address of IPv6 first, which the fabric does not have.
    assert "errno: 97" not in done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["valid"]
    (row,) = result["collectives"]
    # Two halves of 16 KiB in frames of 9,000 bytes, each over two hops of 1 us, there and back.
    assert 10_000 < row["duration_ns"] < 15_000
