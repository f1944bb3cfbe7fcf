"""A copy of this clone in which a how-to page of docs/howto is followed, as its reader would in a
clone of his own: files are written, differences applied and commands run in the page's order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = "text"
_FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)
_GIT = ("git", "-c", "user.name=howto", "-c", "user.email=howto@localhost")
_COMMAND = """#!{python}
import sys
from groundwire.cli import main
if __name__ == "__main__":  # as pip writes it: processes that commands start import this
    sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `file` is where its text goes; without one it is run."""

    line: int
    language: str
    file: str | None
    text: str


def blocks_of(page: Path) -> tuple[Block, ...]:
    """The blocks of a page, in order. Raises AssertionError for a fence that is not understood, as
    it would not be run."""
    text = page.read_text()
    found = tuple(
        Block(text.count("\n", 0, match.start()) + 1, match[1], match[2], match[3])
        for match in _FENCE.finditer(text)
    )
    assert 2 * len(found) == len(re.findall(r"^```", text, re.M)), f"{page}: a fence is odd"
    return found


def changed(text: str, difference: str, place: str) -> str:
    """The text with the hunks of a difference applied; `@@` stands between them, without numbers.
    Raises AssertionError unless what a hunk replaces is there once."""
    for hunk in re.split(r"^@@\n", difference, flags=re.M):
        lines = [(line[:1] or " ", line[1:]) for line in hunk.splitlines()]
        before = "".join(f"{line}\n" for mark, line in lines if mark in " -")
        after = "".join(f"{line}\n" for mark, line in lines if mark in " +")
        assert text.count(before) == 1, f"{place}: found {text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    return text


class Workplace:
    """The copy, with a `.venv` that has this one's packages and takes others besides."""

    def __init__(self, root: Path) -> None:
        self._root = root
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():  # not what is deleted but still in git's index
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        self._make_venv()
        self._git("init", "--quiet")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "start")

    def follow(self, page: Path) -> None:
        """Do all that the page says. Raises AssertionError with the block's line and output."""
        for block in blocks_of(page):
            place = f"{page.name}:{block.line}"
            if block.language == NOT_RUN:
                continue
            path = self._root / (block.file or "")
            if block.language == "diff":
                path.write_text(changed(path.read_text(), block.text, place))
            elif block.file is not None:
                assert not path.exists(), f"{place}: {block.file} is there already"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "sh":
                self._run(("bash", "-euo", "pipefail"), block.text, place)
            elif block.language == "python":
                self._run((".venv/bin/python", "-"), block.text, place)
            else:
                raise AssertionError(f"{place}: {block.language} without file= cannot be run")

    def left(self) -> str:
        """What differs from the beginning, in git's words."""
        return self._git("status", "--porcelain")

    def _make_venv(self) -> None:
        venv = self._root / ".venv"
        subprocess.run((sys.executable, "-m", "venv", "--without-pip", venv), check=True)
        packages = next((venv / "lib").glob("python3*/site-packages"))
        paths = (self._root, sysconfig.get_path("purelib"))
        (packages / "howto.pth").write_text("".join(f"{path}\n" for path in paths))
        command = venv / "bin" / "groundwire"
        command.write_text(_COMMAND.format(python=venv / "bin" / "python"))
        command.chmod(0o755)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            (*_GIT, *arguments), cwd=self._root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def _run(self, argv: tuple[str, ...], text: str, place: str) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            argv,
            cwd=self._root,
            env=environment,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{place}: exit code {done.returncode}\n{done.stdout}"
