"""A program of others, and the check that it runs and says what is right."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testing.foreign_programs import programs_folder
from tests.exec.programs import execute

_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 5us}}
predict: [packet]
"""


@dataclass(frozen=True)
class ForeignProgram:
    """`files` are what it has in its folder, `command` what runs, in which FOLDER stands for the
    environments'; `says` are what its ranks print, `kinds` its rows. `needs` is a file below the
    folder, a program of the machine, or a path of it. `before` runs first, on the machine."""

    needs: str
    ranks: int
    command: tuple[str, ...]
    files: dict[str, str]
    says: dict[int, str]
    kinds: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


def _folder(needs: str) -> Path:
    """The folder of environments. Skips where that of this program is missing."""
    if "/" not in needs:
        if shutil.which(needs) is None:
            page = "docs/exec-collectives.md#programs-of-others"
            pytest.skip(f"{needs} is not installed here ({page})")
        return programs_folder()
    if not (programs_folder() / needs).exists():
        pytest.skip(f"{programs_folder() / needs} is missing: make programs")
    return programs_folder()


def check(program: ForeignProgram, tmp_path: Path) -> None:
    """Run it on four hosts, or fewer, and hold what it says. Skips where it is not there."""
    folder = _folder(program.needs)
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    for file, text in program.files.items():
        (tmp_path / file).write_text(text)
    before, options, command = (
        [word.replace("FOLDER", str(folder)) for word in words]
        for words in (program.before, program.options, program.command)
    )
    if before:
        subprocess.run(before, cwd=tmp_path, check=True)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--memory", "3GB",
        "-n", str(program.ranks), *options, "--", *command, timeout_s=1_500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    for rank, text in program.says.items():
        assert text in (tmp_path / f"run/ranks/{rank:03d}.out").read_text()
    found = {row["kind"] for row in result["collectives"]}
    assert set(program.kinds) <= found if program.kinds else not found
