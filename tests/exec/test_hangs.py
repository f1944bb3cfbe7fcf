"""Programs that hang: the run ends, and says who waits for whom."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.exec.programs import FABRIC, execute

_MPICC = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
_BEGIN = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, x = dist.get_rank(), torch.ones(1000)
dist.all_reduce(x)
"""
_ABSENT = """
def load():
    time.sleep(5000)
if rank == 2:
    load()
dist.all_reduce(x)
"""
_RING = """
dist.recv(x, (rank + 1) % 3)
dist.send(x, (rank - 1) % 3)
"""


def _hang(directory: Path, script: str, *options: str) -> tuple[str, list[dict[str, object]]]:
    """The message about a script that hangs for a minute, and the result's hang."""
    (directory / "fabric.yaml").write_text(FABRIC)
    (directory / "script.py").write_text(_BEGIN + script)
    done = execute(
        directory, "fabric.yaml", "--kernel", "virtual", "--hang-after", "60s", "--json",
        "--out", "run", *options, "--", "python", "script.py",
    )  # fmt: skip
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["failed"] in done.stderr
    assert told["hangs"] == json.loads((directory / "run" / "hang.json").read_text())
    return done.stderr, told["hangs"]


def test_a_rank_that_does_not_come_is_named_with_its_stack(tmp_path: Path) -> None:
    said, (hang,) = _hang(tmp_path, _ABSENT)
    assert (
        "\nranks 0, 1 wait in all_reduce of 4,000 B (number 1 of group default) for rank 2, for "
    ) in said
    assert "\nrank 2 did not come: it is at " in said
    assert "work/script.py:8 in load, after all_reduce of 4,000 B (number 0 of " in said
    assert "below it: system call clock_nanosleep" in said
    assert "below it: libtorch_cpu.so, c10d::Work::wait" in said
    assert (hang["absent"], hang["cycle"]) == ([2], [])


def test_ranks_that_wait_for_each_other_are_a_cycle(tmp_path: Path) -> None:
    said, (hang,) = _hang(tmp_path, _RING)
    assert "\ncycle: rank 0 -> rank 1 -> rank 2 -> rank 0\n" in said
    assert "rank 0 waits in recv of 4,000 B from rank 1 (number 0 of group default, tag 0)" in said
    assert hang["cycle"] == [0, 1, 2]


@pytest.mark.long
def test_nothing_that_can_happen_any_more_is_told_without_being_asked(tmp_path: Path) -> None:
    """Two ranks have ended, and the third reads from nobody; no bound is given."""
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "script.py").write_text(
        "import os\nif os.environ['RANK'] == '1':\n    r, w = os.pipe()\n    os.read(r, 1)\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "script.py"
    )
    assert done.returncode == 1
    assert "(deadlock): no process ran for 3600 virtual seconds" in done.stderr
    assert "stack of rank 1:\n" in done.stderr
    assert "script.py:4 in <module>\n  below it: system call read" in done.stderr


_GIVEN_UP = """
import datetime
if rank == 0:
    work = dist.all_reduce(x, async_op=True)
    try:
        work.wait(datetime.timedelta(seconds=1))
    except RuntimeError as error:
        print("gave up:", error)
for _ in range(12):
    time.sleep(10)
    if rank < 2:
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
if rank > 0:
    work = dist.all_reduce(x, async_op=True)
work.wait()
print("done")
"""


def test_a_wait_that_was_given_up_is_no_hang(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "script.py").write_text(_BEGIN + _GIVEN_UP)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--hang-after", "60s",
        "--", "python", "script.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "gave up" in done.stdout + done.stderr


_MPI = """
#include <mpi.h>
int main(int argc, char **argv) {
    int rank; double x[100];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) MPI_Send(x, 100, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(x, 100, MPI_DOUBLE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
"""


@pytest.mark.long
@pytest.mark.skipif(_MPICC is None, reason="mpicc is not installed (libopenmpi-dev)")
def test_ranks_of_openmpi_are_named_with_their_calls_and_messages(tmp_path: Path) -> None:
    assert _MPICC is not None
    (tmp_path / "hangs.c").write_text(_MPI)
    subprocess.run([_MPICC, "-o", tmp_path / "hangs", tmp_path / "hangs.c"], check=True)
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--hang-after", "600ms", "--json",
        "--out", "run", "--", "mpirun", "./hangs",
    )  # fmt: skip
    assert done.returncode == 1
    assert "\nranks 0, 2 wait in MPI_Barrier for rank 1\n" in done.stderr
    assert "\nrank 1 waits in MPI_Recv; the wire does not tell for whom\n" in done.stderr
    assert "; last got of no collective 800 B with tag 7 from rank 0\n" in done.stderr
    (hang,) = json.loads(done.stdout)["hangs"]
    assert [rank["mpi"]["call"] for rank in hang["ranks"]] == [
        "MPI_Barrier", "MPI_Recv", "MPI_Barrier",
    ]  # fmt: skip
    assert [rank["waits_for"] for rank in hang["ranks"]] == [[1], [], [1]]
    assert any("hangs, main" in place for place in hang["ranks"][1]["native"])
