"""A run in the virtual kernel may change one thing on the host: its run directory."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.session.command import copy_clone, groundwire

# Ranks' code in a clone of its own. Rank 0 tells in its log what became of each attempt.
_MEDDLING_RANK = """

_run_rank = run_rank


def run_rank(plan, *others):
    import os
    from pathlib import Path

    beside = Path({beside!r})
    (plan.events.parent.parent / "mine").write_text("written")
    for attempt in (
        lambda: (beside / "new").write_text("written"),
        lambda: (beside / "file").write_text("changed"),
        lambda: (beside / "file").unlink(),
        lambda: os.rename(beside / "file", beside / "run" / "file"),
        lambda: os.mkdir(beside / "directory"),
        lambda: Path(__file__).write_text("changed"),
        lambda: (beside / "clone" / "workloads" / "execution" / "rank.py").unlink(),
        lambda: (Path(os.sys.prefix) / "new").write_text("written"),
    ):
        try:
            attempt()
            print("done")
        except OSError as error:
            print(error.errno)
    _run_rank(plan, *others)
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Not in /tmp, of which a guest has its own: there it could write, if only for itself."""
    with tempfile.TemporaryDirectory(prefix="groundwire-test-", dir="/var/tmp") as name:
        yield Path(name)


def test_ranks_can_write_to_the_run_directory_only(directory: Path) -> None:
    (directory / "file").write_text("kept")
    clone = copy_clone(directory / "clone")
    with (clone / "workloads" / "execution" / "rank.py").open("a") as file:
        file.write(_MEDDLING_RANK.format(beside=str(directory)))
    program = (clone / "workloads" / "execution" / "rank.py").read_text()
    spec, out = "topologies/two-hosts.yaml", directory / "run"
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out, clone=clone)
    assert done.returncode == 0, done.stderr
    log = (directory / "run" / "ranks" / "000.log").read_text().splitlines()
    # From one mount to another nothing can be renamed at all.
    refused = [errno.EROFS] * 8
    refused[3] = errno.EXDEV
    assert log[:8] == [str(number) for number in refused]
    assert (directory / "run" / "mine").read_text() == "written"
    assert (directory / "file").read_text() == "kept"
    assert (clone / "workloads" / "execution" / "rank.py").read_text() == program
    assert sorted(path.name for path in directory.iterdir()) == ["clone", "file", "run"]
    assert not (Path(sys.prefix) / "new").exists()
