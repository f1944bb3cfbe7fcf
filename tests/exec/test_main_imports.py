"""The imports of a program that its ranks may share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.linux.namespaces import HostPlace
from emulator.ranks.program import Importing, ProgramJob
from workloads.observer.main_imports import OF_A_RANK, arguments_of, imports_of

_HEAD = """
import os, numpy
from networkx.classes import digraph, graph
from local_module import something
if True:
    import yaml
def later():
    import pydantic
"""


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--epochs", "2"],
        ["-u", "train.py"],
        ["/usr/bin/torchrun", "--nproc-per-node", "2", "train.py", "other.py"],
        ["-m", "torch.distributed.run", "train.py"],
    ],
)
def test_a_script_shares_the_packages_at_its_head(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_HEAD)
    found = imports_of(words, tmp_path)
    assert found == [("numpy", ()), ("networkx.classes", ("digraph", "graph"))]


@pytest.mark.parametrize(
    "words", [["-m", "pydantic.main"], ["torchrun", "-m", "pydantic.main", "x"]]
)
def test_an_installed_module_shares_what_its_file_names(words: list[str], tmp_path: Path) -> None:
    assert ("pydantic_core", ()) in imports_of(words, tmp_path)


@pytest.mark.parametrize("words", [["absent.py"], ["-m", "no.such.module"], ["torchrun"], ["-m"]])
def test_nothing_is_shared_where_there_is_no_main_file(words: list[str], tmp_path: Path) -> None:
    assert imports_of(words, tmp_path) == []


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["-u", "train.py", "--epochs", "2"], ["--epochs", "2"]),
        (["torchrun", "--nnodes", "2", "train.py", "other.py"], ["other.py"]),
        (["/usr/bin/torchrun", "-m", "pydantic.main", "-x", "3"], ["-x", "3"]),
        (["-m", "pydantic.main", "-x"], ["-x"]),
        (["torchrun", "-m"], []),
    ],
)
def test_modules_see_the_arguments_of_the_program(
    words: list[str], arguments: list[str], tmp_path: Path
) -> None:
    assert arguments_of(words, tmp_path)[1:] == arguments


@pytest.mark.parametrize(
    ("source", "may"),
    [
        ("import os; place = os.environ.get('HOME')", True),
        ("import os; rank = int(os.environ.get('LOCAL_RANK', 0))", False),
        ("import os; rank = os.getenv('RANK')", False),
        ("import threading, time; threading.Timer(9, time.sleep, [0]).start()", False),
        ("import no_such_module", True),
        ("import sys; assert sys.argv == ['train.py', '-x'], sys.exit(1)", True),
    ],
)
def test_an_import_that_is_of_one_rank_is_not_shared(
    source: str, may: bool, tmp_path: Path
) -> None:
    (tmp_path / "asked.py").write_text(source)
    code = (
        "from workloads.observer.main_imports import import_all; import os;"
        "print(import_all([('asked', ())], ['train.py', '-x']), type(os.environ).__name__,"
        "flush=True); os._exit(0)"
    )
    path = f"{tmp_path}:{os.getcwd()}"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [str(may), "_Environ"]


def test_who_imports_for_all_has_no_variables_of_a_rank() -> None:
    """networkx and botocore read all variables, which is no question for the rank."""
    job = ProgramJob(
        rank=0,
        who="rank 0",
        argv=("python", "train.py"),
        environment=dict.fromkeys(OF_A_RANK, "1") | {"HOME": "/root"},
        directory=Path("/"),
        host="h0",
        place=HostPlace(Path("net"), Path("ipc"), {}),
        stdout=Path("000.out"),
        stderr=Path("000.err"),
        live=False,
        python=("python", "train.py"),
    )
    assert Importing.of(job).environment == {"HOME": "/root"}
