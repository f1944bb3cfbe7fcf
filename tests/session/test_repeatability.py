"""The same spec and seed give the same bytes, whatever the machine is doing, wherever the clone
is, whatever is installed and whatever memory the guest has. Six boots; `test_virtual_runs` has two
more, of a larger spec."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.session.captured_headers import captured_headers
from tests.session.command import ROOT, copy_clone, result_of

_SPEC = """
name: repeat
seed: 3
fabric:
  {kind: leaf-spine, leaves: 2, spines: 4, hosts_per_leaf: 2,
   link: {rate: 100Gbps, delay: 1us, mtu: 9000}, queue: {kind: droptail, buffer: 60KB}}
workload:
  kind: collectives
  ranks: 4
  iterations: 1
  operations: [{kind: all_reduce, size: 3MB}, {kind: all_to_all, size: 3MB}]
transport: {min_rto: 1ms}
compute: {device: none}
capture: {points: [hosts]}
counters: {interval: 3us}
predict: [alpha-beta]
"""

# Ends by itself when this process is killed.
_HOG = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def _run(
    directory: Path,
    clone: Path = ROOT,
    prefix: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    memory: str = "auto",
    python: str = sys.executable,
) -> dict[str, object]:
    """One run; everything of it that must repeat."""
    directory.mkdir(parents=True)
    (directory / "spec.yaml").write_text(_SPEC)
    done = subprocess.run(
        [*prefix, python, "-m", "groundwire.cli", "run", directory / "spec.yaml",
         "--kernel", "virtual", "--set", f"virtual.memory={memory}", "--out", directory / "out"],
        cwd=clone, env={**os.environ, **(environment or {})}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = directory / "out"
    files = ["links.jsonl", "ports.jsonl", *(f"ranks/{rank:03d}.jsonl" for rank in range(4))]
    found: dict[str, object] = {name: (out / name).read_bytes() for name in files}
    # Hosts queue up to a window, switches where flows meet; what was seen of it must repeat too.
    waited = [json.loads(line)["backlog_byte_us"] for line in (out / "links.jsonl").open()]
    assert sum(integral > 0 for integral in waited) > len(waited) / 2
    captures = captured_headers(out)
    assert len(captures) == 4
    assert all(len(fields[0]) > 100 * 8 for fields in captures.values())
    result = result_of(out)
    assert result["summary"]["retransmits"] > 0
    return found | {"result": result} | captures


def _clone(directory: Path, compiled: bool) -> Path:
    """A copy with compiled Python files or without: then imports look at more files that are not
    there, which takes virtual time (naps, docs/virtual-kernel.md). This clone may have them or not.
    """
    clone = copy_clone(directory / "another place")
    if compiled:
        assert compileall.compile_dir(clone, quiet=1)
    return clone


@contextmanager
def _loaded() -> Iterator[None]:
    hogs = [
        subprocess.Popen([sys.executable, "-S", "-c", _HOG]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _assert_same(again: Mapping[str, object], first: Mapping[str, object]) -> None:
    assert [name for name in first if again[name] != first[name]] == []


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return _run(tmp_path_factory.mktemp("first") / "run")


def test_again_from_another_clone(first: dict[str, object], tmp_path: Path) -> None:
    _assert_same(_run(tmp_path / "deeper" / "down", _clone(tmp_path, compiled=True)), first)


def _other_environment(directory: Path) -> str:
    """A Python with what this one has and more: its imports look through other directories first,
    and find other things in them."""
    environment = directory / "environment"
    venv.create(environment, symlinks=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    for number in range(300):
        (packages / f"package{number}").mkdir()
        (packages / f"package{number}" / "__init__.py").touch()
    (packages / "sitecustomize.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "[os.urandom(8) for _ in range(20)]\n"
        "[path.read_bytes() for path in Path(__file__).parent.glob('package*/*.py')]\n"
    )
    return str(environment / "bin" / "python")


def test_again_with_other_packages(first: dict[str, object], tmp_path: Path) -> None:
    python = _other_environment(tmp_path)
    _assert_same(_run(tmp_path / "run", python=python), first)


def test_again_with_another_memory(first: dict[str, object], tmp_path: Path) -> None:
    _assert_same(_run(tmp_path / "run", memory="3GB"), first)


def test_again_in_another_environment(first: dict[str, object], tmp_path: Path) -> None:
    # One core, another layout of addresses (personality(2)), other names for everything.
    wanted = (("taskset", "-c", "0"), ("setarch", "-R"))
    prefix = tuple(word for words in wanted if shutil.which(words[0]) for word in words)
    environment = {
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "USER": "somebody",
        "LC_ALL": "C",
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "17",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "A_LONG_VARIABLE": "x" * 10_000,
    }
    _assert_same(_run(tmp_path / "run", prefix=prefix, environment=environment), first)


def test_again_from_another_clone_on_a_loaded_host(
    first: dict[str, object], tmp_path: Path
) -> None:
    with _loaded():
        _assert_same(_run(tmp_path / "run", _clone(tmp_path, compiled=False)), first)
