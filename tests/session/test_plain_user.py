"""A whole run as a user without any privilege, from tests that run as root."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.building.source import INSTALLED_SOURCES, require_source
from tests.plain_user import NOBODY, needs_root, run_as_nobody
from tests.session.command import ROOT, groundwire

_RUN = ("run", ROOT / "topologies" / "two-hosts.yaml", "--kernel", "virtual", "--out")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of nobody's with the kernel in its cache folder; root's is closed to others."""
    image = ensure_kernel(print)
    if require_source().archive.parent != INSTALLED_SOURCES:
        pytest.skip("the kernel's source is in root's cache folder, closed to others")
    directory = Path(tempfile.mkdtemp(prefix="groundwire-test-"))
    try:
        shutil.copytree(
            image.path.parent, directory / ".cache" / "groundwire" / "kernel" / image.key
        )
        for path in (directory, *directory.rglob("*")):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        yield directory
    finally:
        shutil.rmtree(directory)


@needs_root
def test_a_plain_users_run_is_roots(home: Path, tmp_path: Path) -> None:
    try:
        can = run_as_nobody(
            sys.executable, "-c", "import torch; open('groundwire/cli.py')", home=home
        )
    except PermissionError as error:
        pytest.skip(f"{sys.executable} or the clone is closed to other users: {error}")
    if can.returncode != 0:
        pytest.skip(f"this Python or the clone is closed to other users: {can.stderr[-300:]}")
    done = run_as_nobody(sys.executable, "-m", "groundwire.cli", *_RUN, home / "run", home=home)
    assert done.returncode == 0, done.stderr
    by_root = groundwire(*_RUN, tmp_path / "run")
    assert by_root.returncode == 0, by_root.stderr
    for path in (home / "run", *(home / "run").rglob("*")):
        assert path.stat().st_uid == NOBODY.pw_uid, path
    for name in ("links.jsonl", "ranks/000.jsonl", "ranks/001.jsonl"):
        assert (home / "run" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name
