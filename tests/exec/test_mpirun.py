"""OpenMPI's mpirun starts ranks on the hosts of a fabric, and its messages take the wire's time."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.runs.mpi_messages import load_mpi_messages, unseen
from emulator.linux.namespaces import HostPlace
from emulator.ranks.mpi.launch import mpi_variables, write_mpi_files
from tests.exec.programs import execute
from tests.session.command import ROOT

_LAUNCHER = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
_COMPILER = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
_FABRIC = """
fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}}
predict: [flow]
"""


def test_hosts_have_slots_and_the_agent_knows_where_they_are(tmp_path: Path) -> None:
    places = {
        host: HostPlace(Path("/run/netns") / host, Path("/run/ipc") / host, {})
        for host in ("h3", "h1")
    }
    ports = {"h3": "h3-p0", "h1": "h1-p0"}
    write_mpi_files(tmp_path / "mpi", ("h3", "h3", "h1", "h1"), 2, places, ports, tmp_path)
    variables = mpi_variables(tmp_path / "mpi")
    hostfile = Path(variables["OMPI_MCA_orte_default_hostfile"])
    assert hostfile.read_text() == "h3 slots=2\nh1 slots=2\n"
    agent = variables["OMPI_MCA_plm_rsh_agent"]
    assert agent == variables["PRTE_MCA_plm_ssh_agent"]
    said = subprocess.run([agent, "h7", "true"], capture_output=True, text=True, check=False)
    assert said.returncode == 255
    assert "found h7 true; expected HOST COMMAND..., of h3, h1" in said.stderr


@pytest.mark.skipif(_LAUNCHER is None, reason="OpenMPI's mpirun is not installed (openmpi-bin)")
@pytest.mark.skipif(_COMPILER is None, reason="mpicc is not installed (libopenmpi-dev)")
def test_ranks_run_on_their_hosts_and_polling_costs_no_time(tmp_path: Path) -> None:
    """8 B take 2 serialisations of 66 + 24 and more bytes, and 2 delays: 1.02 us."""
    assert _LAUNCHER is not None and _COMPILER is not None
    source = ROOT / "testing" / "mpi_latency.c"
    subprocess.run([_COMPILER, "-O1", "-o", tmp_path / "latency", source], check=True)
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--",
        Path(_LAUNCHER).name, "./latency",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in (tmp_path / "run/ranks/000.out").read_text().splitlines()]
    figures = {(row[0], int(row[1])): float(row[2]) for row in words if len(row) == 4}
    assert figures["latency", 8] == pytest.approx(1.02, abs=0.01)
    assert figures["latency", 65536] == pytest.approx(9.1, rel=0.05)
    assert figures["bandwidth", 1 << 20] == pytest.approx(12_500 * 0.99, rel=0.02)  # MB/s
    ranks = sorted(" ".join(row) for row in words if row[0] == "rank")
    assert ranks == ["rank 0 of 2 on h0", "rank 1 of 2 on h1"]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"]
    assert any("OpenMPI's messages were captured" in note for note in result["notes"])
    messages = load_mpi_messages(tmp_path / "run")
    turns = [each for each in messages if (each.kind, each.size_bytes) == ("send_recv", 8)]
    assert len(turns) == 2 * 110 and {each.tag for each in turns} == {1}
    for before, each in pairwise(turns):  # the wire has what the program has measured
        assert (each.source, each.destination) == (before.destination, before.source)
        assert before.sent_ns is not None and before.come_ns is not None
        assert each.sent_ns is not None and each.sent_ns >= before.come_ns
        assert before.come_ns - before.sent_ns == pytest.approx(1020, abs=10)
    sums = [each for each in messages if each.kind == "all_reduce"]
    assert {(each.source, each.size_bytes) for each in sums} == {(0, 4), (1, 4)}
    assert unseen(messages) == 0
    rows = {row["id"]: row for row in result["collectives"]}
    (sum_,) = [row for row in rows.values() if row["kind"] == "all_reduce"]
    assert (sum_["size_bytes"], sum_["ranks"]) == (4, 2)
    eights = [row for row in rows.values() if (row["kind"], row["size_bytes"]) == ("send_recv", 8)]
    assert len(eights) == 2 * 110
    assert all(abs(row["predicted"]["flow"]["error"]) < 0.02 for row in eights[1:])
