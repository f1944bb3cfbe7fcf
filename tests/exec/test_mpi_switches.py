"""Switches do collectives of OpenMPI's ranks, as the spec asks, and OpenMPI does the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.ranks.mpi.launch import switches_library
from tests.exec.programs import execute
from tests.session.command import ROOT
from workloads.mpi.rank_end import Question, enter

_LAUNCHER = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
_COMPILER = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
needs_openmpi = pytest.mark.skipif(
    _LAUNCHER is None or _COMPILER is None,
    reason="OpenMPI is not installed (openmpi-bin, libopenmpi-dev)",
)
_SPEC = """
fabric:
  {kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2, link: {rate: 10Gbps, delay: 1us}}
aggregation: {slots: 8}
collectives:
  backend: programs
  all_reduce: {algorithm: aggregation}
  reduce: {algorithm: aggregation}
  broadcast: {algorithm: aggregation}
predict: [packet]
"""

_BESIDE = """
import os, sys
os.write(3, b"ok\\n")
for line in sys.stdin:
    with open(sys.argv[1] + "." + os.environ["RANK"], "a") as file:
        file.write(line)
    size = int(line.split()[1])
    os.pwrite(4, bytes(range(1, size + 1)), 0)
    os.write(3, b"ok\\n")
with open(sys.argv[1] + "." + os.environ["RANK"], "a") as file:
    file.write("over " + os.environ.get("LD_PRELOAD", "") + "\\n")
"""
"""In place of rank_end.py: every collective gives the bytes 1, 2, 3."""

_ASKS = """
#include <mpi.h>
int main(int argc, char **argv)
{
	unsigned char all[8] = {0}, own[4] = {0};
	unsigned word[2] = {9, 9};
	int rank, wrong = 0;
	MPI_Comm turned;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(MPI_IN_PLACE, word, 2, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
	wrong += word[0] != 0x04030201 || word[1] != 0x08070605;
	word[0] = rank;
	MPI_Allreduce(MPI_IN_PLACE, word, 1, MPI_UNSIGNED, MPI_MAX, MPI_COMM_WORLD);
	wrong += word[0] != 1;
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
	MPI_Reduce(word, own, 1, MPI_INT, MPI_MIN, 0, turned);
	wrong += rank == 1 ? own[3] != 4 : own[3] != 0;
	MPI_Bcast(all, 3, MPI_CHAR, 0, MPI_COMM_WORLD);
	wrong += rank == 0 ? all[2] != 0 : all[2] != 3;
	MPI_Barrier(MPI_COMM_SELF);
	MPI_Barrier(turned);
	MPI_Finalize();
	return wrong;
}
"""


def compiled(source: Path, program: Path) -> None:
    assert _COMPILER is not None
    subprocess.run([_COMPILER, "-O1", "-o", program, source], check=True)


@needs_openmpi
def test_calls_become_questions_and_answers_become_results(tmp_path: Path) -> None:
    """Unsigned numbers have a maximum of their own, which is OpenMPI's; so has a group of one."""
    assert _LAUNCHER is not None
    (tmp_path / "asks.c").write_text(_ASKS)
    compiled(tmp_path / "asks.c", tmp_path / "asks")
    (tmp_path / "beside.py").write_text(_BESIDE)
    words = (sys.executable, str(tmp_path / "beside.py"), str(tmp_path / "asked"))
    own = {
        "LD_PRELOAD": str(switches_library()),
        "GROUNDWIRE_MPI": "\n".join(words),
        "GROUNDWIRE_MPI_KINDS": "all_reduce,reduce,broadcast",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    done = subprocess.run(
        [_LAUNCHER, "--oversubscribe", "-n", "2", tmp_path / "asks"],
        env=os.environ | own, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        lines = (tmp_path / f"asked.{rank}").read_text().splitlines()
        assert [Question.read(line) for line in lines[:-1]] == [
            Question("all_reduce", 8, "int32", "sum", 0, (0, 1)),
            Question("reduce", 4, "int32", "min", 1, (1, 0)),
            Question("broadcast", 3, "uint8", "sum", 0, (0, 1)),
            Question("barrier", 0, "int64", "sum", 1, (1, 0)),
        ]
        assert lines[-1] == "over "  # what runs beside a rank is not loaded with the library


def test_ranks_are_where_the_spec_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.uname().nodename
    table = {"hosts": {here: {"interface": "p0"}}, "ranks": ["elsewhere", here]}
    (tmp_path / "hosts.json").write_text(json.dumps(table))
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "p7")
    monkeypatch.setenv("RANK", "1")
    enter(str(tmp_path / "hosts.json"))
    assert os.environ["GLOO_SOCKET_IFNAME"] == "p0"
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match=f"rank 0 is on {here}, and the spec has it on elsewhere"):
        enter(str(tmp_path / "hosts.json"))
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="found 3 ranks, expected 2"):
        enter(str(tmp_path / "hosts.json"))


@pytest.mark.long
@needs_openmpi
def test_switches_do_collectives_of_a_program_of_mpi(tmp_path: Path) -> None:
    assert _LAUNCHER is not None
    compiled(ROOT / "testing" / "mpi_collectives.c", tmp_path / "sums")
    (tmp_path / "spec.yaml").write_text(_SPEC)
    done = execute(
        tmp_path, "spec.yaml", "--kernel", "virtual", "--out", "run", "--",
        Path(_LAUNCHER).name, "./sums", timeout_s=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "run/ranks/000.out").read_text().splitlines()
    assert sorted(said[1:]) == [f"rank {rank} has 0 wrong" for rank in range(4)]
    took_us = float(said[0].split()[1])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"]
    rows = {row["id"]: row for row in result["collectives"]}
    switches = [row for row in rows.values() if not row["id"].startswith("mpi.")]
    found = sorted((row["kind"], row["size_bytes"], row["ranks"]) for row in switches)
    assert found == [
        ("all_reduce", 4, 2), ("all_reduce", 4, 2), ("all_reduce", 8, 4), ("all_reduce", 8, 4),
        ("all_reduce", 16384, 4), ("broadcast", 8, 4), ("reduce", 4, 4),
    ]  # fmt: skip
    assert rows["default.1.all_reduce"]["duration_ns"] == pytest.approx(took_us * 1000, abs=10)
    assert abs(rows["default.1.all_reduce"]["predicted"]["packet"]["error"]) < 0.001
    own = [row for row in rows.values() if row["id"].startswith("mpi.")]
    assert {(row["kind"], row["size_bytes"]) for row in own} >= {
        ("all_reduce", 4), ("send_recv", 1 << 20),
    }  # fmt: skip
    assert any("OpenMPI's messages were captured" in note for note in result["notes"])


@pytest.mark.long
@needs_openmpi
def test_a_group_that_switches_refuse_ends_the_run_by_name(tmp_path: Path) -> None:
    """Each tree takes a slot, and the world's has it."""
    compiled(ROOT / "testing" / "mpi_collectives.c", tmp_path / "sums")
    (tmp_path / "spec.yaml").write_text(_SPEC.replace("slots: 8", "slots: 1"))
    done = execute(
        tmp_path, "spec.yaml", "--kernel", "virtual", "--out", "run", "--", "mpirun", "./sums",
        timeout_s=800,
    )  # fmt: skip
    assert done.returncode != 0
    assert "has 0 of its 1 slots left" in done.stderr
