"""The clusters of docs/studies.md: its blocks are run, with batch jobs and ssh as far as this
machine has them, and a study of predictions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest

import groundwire
from groundwire.studies.study import Study
from tests.howto.workplace import blocks_of
from tests.remote.ssh_host import SshHost, missing
from tests.session.command import ROOT
from tests.studies.small_study import SMALL_STUDY

_PREDICTED = SMALL_STUDY + "emulate_up_to_ranks: 0\n"
_MISSING = missing()
_SBATCH = """#!{python}
# As Slurm's: it says a number, and the script runs somewhere else.
import subprocess, sys
process = subprocess.Popen(
    ["bash", sys.argv[-1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    start_new_session=True,
)
open("{directory}/jobs", "a").write(str(process.pid) + "\\n")
open("{directory}/script", "w").write(open(sys.argv[-1]).read())
print("Submitted batch job", process.pid)
"""
_SCANCEL = """#!{python}
import os, signal, sys
os.killpg(int(sys.argv[-1]), signal.SIGTERM)
"""


def _block(naming: str) -> str:
    """The one Python block of the page that has this word."""
    (found,) = (
        block.text
        for block in blocks_of(ROOT / "docs" / "studies.md")
        if block.language == "python" and naming in block.text
    )
    return found


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Study]]:
    """The studies of a block, which is run where there is a study.yaml."""
    (tmp_path / "study.yaml").write_text(_PREDICTED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made: list[Study] = []
    real = groundwire.study

    def study(*arguments: Any, **options: Any) -> Study:
        made.append(real(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(groundwire, "study", study)
    yield made


def _run(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(block, "docs/studies.md", "exec"), names)
    return names


def _programs(directory: Path, **programs: str) -> None:
    directory.mkdir()
    for name, text in programs.items():
        (directory / name).write_text(text.format(python=sys.executable, directory=directory))
        (directory / name).chmod(0o755)


def test_on_slurm_a_batch_job_is_a_worker(
    tmp_path: Path, studies: list[Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for sbatch that runs the script here."""
    pytest.importorskip("dask_jobqueue", reason="needs dask-jobqueue")
    _programs(tmp_path / "bin", sbatch=_SBATCH, scancel=_SCANCEL)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("DASK_DISTRIBUTED__DASHBOARD__LINK", "")
    block = _block("SLURMCluster")
    assert "cluster.scale(64)" in block
    names = _run(block.replace("scale(64)", "scale(1)"))
    names["cluster"].close()
    (done,) = studies
    assert (done.failed, len(done.cases.cases)) == (0, 2)
    assert len((tmp_path / "bin" / "jobs").read_text().split()) == 1
    script = (tmp_path / "bin" / "script").read_text()
    assert "#SBATCH --mem=8G\n" in script
    assert "#SBATCH --cpus-per-task=1\n" in script
    assert "--resources memory=8e9" in script


@pytest.mark.long
@pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))
def test_over_ssh_python_starts_scheduler_and_workers(
    tmp_path: Path, studies: list[Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three names are one host's, which sees nothing of the study."""
    pytest.importorskip("asyncssh", reason="needs asyncssh")
    (tmp_path / "machine").mkdir()
    host = SshHost(tmp_path / "machine" / "host")
    try:
        _ssh_settings(tmp_path, host)
        monkeypatch.setenv("HOME", str(tmp_path))
        # Dask's settings are part of the command, of which dropbear takes 9,000 bytes.
        none = dask.config.serialize({})
        monkeypatch.setattr("dask.config.serialize", lambda settings: none)
        python = f"{host.app}/.venv/bin/python"
        _run(_block("SSHCluster").replace("/opt/groundwire/.venv/bin/python", python))
    finally:
        host.die()
    (done,) = studies
    assert (done.failed, len(done.cases.cases)) == (0, 2)


def _ssh_settings(home: Path, host: SshHost) -> None:
    """A user's ~/.ssh, which knows the host by the names of the page."""
    known = subprocess.run(
        ["dropbearkey", "-y", "-f", host.home / ".server-key"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    key = next(line for line in known.stdout.splitlines() if line.startswith("ssh-ed25519"))
    (home / ".ssh").mkdir()
    (home / ".ssh" / "known_hosts").write_text(f"{host.address} {key}\n")
    (home / ".ssh" / "config").write_text(
        f"Host head a b\n  HostName {host.address}\n  User {host.user.name}\n"
        f"  IdentityFile {host.key}\n"
    )


def test_on_kubernetes_workers_say_what_memory_they_have(
    studies: list[Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no cluster here: what would be asked of it is looked at."""
    operator = pytest.importorskip("dask_kubernetes.operator", reason="needs dask-kubernetes")
    asked: list[dict[str, Any]] = []

    class Recorder:
        scheduler_address = "tcp://head:8786"

        def __init__(self, **options: Any) -> None:
            asked.append(operator.make_cluster_spec(**options))

    monkeypatch.setattr(operator, "KubeCluster", Recorder)
    called: list[tuple[Any, ...]] = []
    monkeypatch.setattr(groundwire, "study", lambda *a, **o: called.append((a, o)))
    _run(_block("KubeCluster"))
    assert called == [(("study.yaml",), {"scheduler": "tcp://head:8786"})]
    worker = asked[0]["spec"]["worker"]
    assert worker["replicas"] == 16
    (container,) = worker["spec"]["containers"]
    assert container["image"] == "registry/groundwire"
    assert " ".join(container["args"]).startswith("dask worker --nthreads 1 --resources memory=8e9")
