"""The imports of a program that its ranks may share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.observer.main_imports import imports_of

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
    ("source", "may"),
    [
        ("import os; place = os.environ.get('HOME')", True),
        ("import os; rank = int(os.environ.get('LOCAL_RANK', 0))", False),
        ("import os; rank = os.getenv('RANK')", False),
        ("import threading, time; threading.Timer(9, time.sleep, [0]).start()", False),
        ("import no_such_module", True),
    ],
)
def test_an_import_that_is_of_one_rank_is_not_shared(
    source: str, may: bool, tmp_path: Path
) -> None:
    (tmp_path / "asked.py").write_text(source)
    code = (
        "from workloads.observer.main_imports import import_all; import os;"
        "print(import_all([('asked', ())]), type(os.environ).__name__, flush=True); os._exit(0)"
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
