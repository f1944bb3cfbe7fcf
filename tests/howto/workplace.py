"""Copies of this clone in which README or a page of docs/howto is followed, as its reader would in
a clone of his own: files are written, differences applied and commands run in the page's order."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from emulator.prepared_guest import VARIABLE
from groundwire.rooms import ROOMS

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = "text"
_FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?(?: (setup|long))?\n(.*?)^```$", re.M | re.S)
_GIT = ("git", "-c", "user.name=howto", "-c", "user.email=howto@localhost")
_COMMAND = """#!{python}
import sys
from {module} import main
if __name__ == "__main__":  # as pip writes it: processes that commands start import this
    sys.exit(main())
"""

_INSTALLS = re.compile(r"^\.venv/bin/(python -m )?pip install", re.M)
_OWN = tuple(f"{room}/" for room in (*ROOMS, "labs"))
_COMMANDS = {"groundwire": "groundwire.cli", "torchrun": "torch.distributed.run"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `file` is where its text goes; without one it is run. `mark` is "setup" for
    what makes the clone ready, "long" for what takes minutes."""

    line: int
    language: str
    file: str | None
    mark: str | None
    text: str


def blocks_of(page: Path) -> tuple[Block, ...]:
    """The blocks of a page, in order. Raises AssertionError for a fence that is not understood, as
    it would not be run."""
    text = page.read_text()
    found = tuple(
        Block(text.count("\n", 0, match.start()) + 1, *match.groups())
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


def changes_groundwire(page: Path) -> bool:
    """Whether files of Groundwire's own are written or changed by the page, or packages are put
    beside them: a guest that stands already has neither."""
    return any(
        (block.file or "").startswith(_OWN)
        or (block.mark != "long" and _INSTALLS.search(block.text))
        for block in blocks_of(page)
    )


class Workplace:
    """The copy, with a `.venv` that has this one's packages and takes others besides. Commands that
    take minutes are left out.

    Its commands are those of the copy with `own_code`, else of this clone: they are the same, and
    runs may be in copies of the guest that stands for tests (tests/conftest.py).
    """

    does_long = False

    def __init__(self, root: Path, *, own_code: bool = True) -> None:
        self._root, self._own_code = root, own_code
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():  # not what is deleted but still in git's index
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
                self._copy_compiled(name)
        self._make_venv()
        self._git("init", "--quiet")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "start")

    def follow(self, page: Path) -> None:
        """Do all that the page says. Raises AssertionError with the block's line and output."""
        for block in blocks_of(page):
            place = f"{page.name}:{block.line}"
            if block.language == NOT_RUN or block.mark == "setup":
                continue
            if block.mark == "long" and not self.does_long:
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

    def write(self, name: str, text: str) -> None:
        """A file of the reader's own."""
        (self._root / name).write_text(text)

    def remove(self, *names: str) -> None:
        """Remove the files that a page leaves for its reader to look at, as far as they are
        there."""
        for name in names:
            path = self._root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def run(self, command: str) -> None:
        """A command of bash's. Raises AssertionError with its output."""
        self._run(("bash", "-euo", "pipefail"), command, command)

    def left(self) -> str:
        """The differences from the beginning, in git's words."""
        return self._git("status", "--porcelain")

    def _copy_compiled(self, name: str) -> None:
        """Copy the code that Python has compiled of a file; a guest cannot write it."""
        if not name.endswith(".py"):
            return
        compiled = Path(importlib.util.cache_from_source(name))
        if (ROOT / compiled).is_file():
            (self._root / compiled).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / compiled, self._root / compiled)

    def _make_venv(self) -> None:
        venv = self._root / ".venv"
        subprocess.run((sys.executable, "-m", "venv", "--without-pip", venv), check=True)
        packages = next((venv / "lib").glob("python3*/site-packages"))
        code = self._root if self._own_code else ROOT
        paths = (code, sysconfig.get_path("purelib"))
        (packages / "howto.pth").write_text("".join(f"{path}\n" for path in paths))
        for name, module in _COMMANDS.items():
            command = venv / "bin" / name
            command.write_text(_COMMAND.format(python=venv / "bin" / "python", module=module))
            command.chmod(0o755)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            (*_GIT, *arguments), cwd=self._root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def _run(self, argv: tuple[str, ...], text: str, place: str) -> None:
        done = subprocess.run(
            argv,
            cwd=self._root,
            env=_of_a_reader(with_guest=not self._own_code),
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{place}: exit code {done.returncode}\n{done.stdout}"


class FreshClone(Workplace):
    """The copy, made ready by `make demo` alone, as README's reader does it."""

    does_long = True

    def _make_venv(self) -> None:
        done = subprocess.run(
            ("make", "demo"),
            cwd=self._root,
            env=_of_a_reader(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"make demo: exit code {done.returncode}\n{done.stdout}"


def _of_a_reader(*, with_guest: bool = False) -> dict[str, str]:
    """The environment of somebody who has activated nothing, this test's own least of all."""
    without = {"PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"} | (set() if with_guest else {VARIABLE})
    environment = {name: value for name, value in os.environ.items() if name not in without}
    path = environment.get("PATH", os.defpath).split(":")
    environment["PATH"] = ":".join(each for each in path if each != sysconfig.get_path("scripts"))
    return environment
