"""Fabrics in this machine's own kernel. All of these need root and network namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.network.registry import remove_dead, sessions
from tests.own_namespaces import MISSING

ROOT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents or "pure" in item.path.name:
            continue
        if "guest" not in item.path.name:
            item.add_marker(pytest.mark.real_time)
        if MISSING:
            item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever a test does, no session of a dead process and none of ours outlives it. Those of
    others, who may work on this machine as well, are theirs."""
    yield
    if MISSING is None:
        remove_dead()
        left = [s.id for s in sessions() if not s.alive() or s.owner_pid == os.getpid()]
        assert not left, f"sessions left behind: {left}"


@pytest.fixture
def python() -> Callable[[str], subprocess.Popen[str]]:
    """Starts a Python program that imports this tree, its standard output on a pipe."""

    def start(program: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )

    return start
