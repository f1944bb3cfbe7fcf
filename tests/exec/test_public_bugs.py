"""Faults that others have met on clusters and told of in public, here with programs of our own:
each has its seed and its verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.exec.programs import FABRIC, execute

pytestmark = pytest.mark.long

# pytorch/gloo#520: with lazy connections a rank that has gone before the first collective of a
# group leaves another in its connect, past the group's timeout.
_LAZY = """
import datetime, os, time
os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
import torch, torch.distributed as dist
patience = datetime.timedelta(seconds=2)
dist.init_process_group("gloo", timeout=patience)
part = dist.new_group([0, 1], backend="gloo", timeout=patience)
dist.barrier()
if dist.get_rank() == GONE:
    os._exit(0)
begin = time.monotonic()
try:
    dist.all_reduce(torch.ones(1), group=part)
except RuntimeError as error:
    print("failed after", round(time.monotonic() - begin), "s:", str(error)[:200], flush=True)
"""
# pytorch#172668: of two pipeline ranks, each sends before it receives, and a send is over when it
# has been received.
_BOTH_SEND = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
other = 1 - dist.get_rank()
activations = torch.ones(1_000_000)
dist.barrier()
dist.send(activations, other)
dist.recv(activations, other)
"""


def _run(directory: Path, script: str) -> tuple[int, str, str]:
    (directory / "fabric.yaml").write_text(FABRIC)
    (directory / "script.py").write_text(script)
    done = execute(
        directory, "fabric.yaml", "--kernel", "virtual", "--ranks", "2", "--hang-after", "600s",
        "--set", "seed=1", "--tee", "all", "--out", "run", "--", "python", "script.py",
        timeout_s=3000,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(3600)
def test_two_stages_that_both_send_first_wait_for_each_other(tmp_path: Path) -> None:
    status, _, said = _run(tmp_path, _BOTH_SEND)
    assert status == 1
    (hang,) = json.loads((tmp_path / "run" / "hang.json").read_text())
    assert hang["cycle"] == [0, 1]
    assert "rank 0 waits in send of 4,000,000 B to rank 1" in said
    assert "rank 1 waits in send of 4,000,000 B to rank 0" in said


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("gone", "words"),
    [
        pytest.param(0, "failed after 0 s: Failed to recv", id="who connects fails at once"),
        pytest.param(1, "failed after 10 s: ", id="who is connected to waits 10 s, not 2"),
    ],
)
def test_a_rank_that_has_gone_and_lazy_connections(tmp_path: Path, gone: int, words: str) -> None:
    """The group's timeout is 2 s. The run itself is well: one rank has ended by itself, and the
    other has caught its error."""
    status, printed, said = _run(tmp_path, _LAZY.replace("GONE", str(gone)))
    assert status == 0, said
    assert words in printed
    assert ("Connect timeout" in printed) == (gone == 1)
