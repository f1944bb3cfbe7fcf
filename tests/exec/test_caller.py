"""The place that a program comes from, and the message before a run of one that cannot work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emulator.ranks.caller import Caller, ProgramNotFound, python_line
from topologies.spec.workload_section import CommandWorkload

OWN = Path(sys.executable).parent


def _workload(directory: Path, *argv: str) -> CommandWorkload:
    return CommandWorkload(kind="command", argv=argv, ranks=2, directory=str(directory))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A directory of programs with a Python that has no torch, beside a script that imports it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = programs / "python"
    python.write_text("#!/bin/sh\nexit 1\n")  # as find_spec() answers there
    python.chmod(0o755)
    (tmp_path / "train.py").write_text("import torch.distributed as dist\n")
    (tmp_path / "plain.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\n")
    return programs


@pytest.mark.parametrize(
    "line",
    [
        ("torchrun", "nosuch.py"),
        ("torchrun", "--nproc_per_node", "2", "--nnodes=1", "nosuch.py", "--epochs", "3"),
        ("python", "-u", "-X", "dev", "nosuch.py"),
    ],
)
def test_a_script_that_is_not_there_is_told_before_anything_boots(
    line: tuple[str, ...], tmp_path: Path
) -> None:
    said = f"nosuch.py: no such file \\(looked for {tmp_path}/nosuch.py"
    with pytest.raises(ProgramNotFound, match=said):
        Caller.here(_workload(tmp_path, *line))
    (tmp_path / "nosuch.py").touch()
    assert Caller.here(_workload(tmp_path, *line)).program


@pytest.mark.parametrize(
    "line",
    [
        ("torchrun", "-m", "a.module", "x.py"),
        ("torchrun", "--no-python", "sh", "x.py"),
        ("python", "-c", "pass", "x.py"),
        ("python", "-m", "json.tool", "x.py"),
        ("sh", "x.py"),
    ],
)
def test_words_that_are_no_script_are_not_looked_for(line: tuple[str, ...], tmp_path: Path) -> None:
    assert Caller.here(_workload(tmp_path, *line)).program


def test_own_programs_come_first_where_no_environment_is_active(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{foreign}:/usr/bin:/bin")
    for name in ("python", "torchrun"):
        caller = Caller.here(_workload(foreign.parent, name, "train.py"))
        assert caller.program == str(OWN / name)
        assert caller.chosen == (
            f"{name} is {OWN / name}, of Groundwire's own environment, as no other is active"
        )
        assert caller.environment["PATH"].startswith(f"{OWN}:{foreign}:")
    other = Caller.here(_workload(foreign.parent, "sh"))
    assert (Path(other.program).name, other.chosen) == ("sh", "")


def test_an_active_environment_is_taken_as_it_is(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(foreign.parent))
    monkeypatch.setenv("PATH", f"{foreign}:/usr/bin:/bin")
    caller = Caller.here(_workload(foreign.parent, "python", "plain.py"))
    assert (caller.program, caller.chosen) == (str(foreign / "python"), "")
    assert caller.environment["PATH"] == f"{foreign}:/usr/bin:/bin"
    with pytest.raises(ProgramNotFound, match=f"environment has it: write {OWN}/torchrun"):
        Caller.here(_workload(foreign.parent, "torchrun", "train.py"))


def test_a_program_of_the_working_directory_is_one_of_a_python_wherever_it_is_read(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that does not find the Python has each rank import torch by itself."""
    launcher = foreign / "torchrun"
    launcher.write_text(f"#!{foreign}/python3\n")
    launcher.chmod(0o755)
    workload = CommandWorkload(
        kind="command",
        argv=("bin/torchrun", "train.py"),
        ranks=2,
        per="host",
        directory=str(foreign.parent),
    )
    monkeypatch.chdir("/")
    line = (f"{foreign}/python3", f"{foreign}/torchrun", "train.py")
    assert python_line("bin/torchrun", workload) == line
    as_python = _workload(foreign.parent, "bin/python", "train.py")
    assert python_line("bin/python", as_python) == (f"{foreign}/python", "train.py")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("train.py", "--epochs", "2"), "train.py"),
        (("-u", "-W", "ignore", "train.py"), "train.py"),
        (("-m", "torch.distributed.run", "plain.py"), "torch.distributed.run"),
        (("-c", "from torch import nn"), "-c"),
        (("plain.py",), None),
        (("-m", "http.server"), None),
        (("-c", "import sys, os"), None),
        ((), None),
    ],
)
def test_a_python_without_torch_is_refused_only_where_the_program_needs_it(
    foreign: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    named: str | None,
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(foreign.parent))
    monkeypatch.setenv("PATH", f"{foreign}:/usr/bin:/bin")
    workload = _workload(foreign.parent, "python", *arguments)
    if named is None:
        assert Caller.here(workload).program == str(foreign / "python")
    else:
        with pytest.raises(ProgramNotFound, match=f"has no torch, which {named} imports"):
            Caller.here(workload)
