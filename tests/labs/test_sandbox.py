"""Foreign code in the sandbox: it reads nothing of ours, writes nothing, and ends."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from emulator.virtual.building.build import find_kernel
from groundwire.labs import sandbox
from groundwire.labs.errors import NoSandbox
from groundwire.labs.folder import start, write_answers
from groundwire.labs.grading import right_answers
from groundwire.labs.lab import LABS, load_lab
from groundwire.labs.sandbox import Ended, Limits, require_sandbox, run_inside
from groundwire.labs.student import Student
from tests.session.command import ROOT, groundwire


def _lacking() -> str | None:
    try:
        require_sandbox()
    except NoSandbox as error:
        return str(error)
    return None


_LACKING = _lacking()
needs_sandbox = pytest.mark.skipif(_LACKING is not None, reason=str(_LACKING))


def _inside(program: str, shown: Path, **limits: float) -> Ended:
    kernel = shown / "kernel"
    kernel.mkdir(exist_ok=True)
    settings = Limits(**({"time_s": 30, "memory_bytes": 2_000_000_000} | limits))  # type: ignore[arg-type]
    return run_inside([sys.executable, "-c", program], shown, kernel, settings)


@needs_sandbox
def test_it_reads_nothing_of_ours(tmp_path: Path) -> None:
    """Not the solutions, nor other submissions, nor a home, nor our environment."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "answers.yaml").write_text("secret")
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "seen").write_text("yes")
    secrets = [LABS / "packet-time" / "lab.yaml", other / "answers.yaml", Path("/etc/shadow")]
    secrets += [Path.home() / ".bashrc", ROOT / "tests" / "conftest.py", ROOT / ".git" / "HEAD"]
    program = f"""
import json, os
def reads(path):
    try:
        return bool(open(path).read())
    except OSError:
        return False
read = [path for path in {[str(path) for path in secrets]!r} if reads(path)]
print(json.dumps([read, reads("/given/seen"), sorted(os.environ), len(os.listdir("/proc"))]))
"""
    ended = _inside(program, shown)
    read, seen, names, _ = json.loads(ended.output)
    assert read == []
    assert seen is True
    assert set(names) <= {
        "HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE",
        "GROUNDWIRE_KERNEL_IMAGE",
    }  # fmt: skip
    assert any(path.exists() for path in secrets)


@needs_sandbox
def test_it_writes_nothing_of_ours(tmp_path: Path) -> None:
    places = [ROOT / "topologies" / "written", tmp_path / "written", Path("/usr/bin/written")]
    places += [Path("/given/written"), Path("/tmp/groundwire-written"), Path("/submission/written")]
    program = f"""
import json
written = []
for path in {[str(path) for path in places]!r}:
    try:
        open(path, "w").write("x")
        written.append(path)
    except OSError:
        pass
print(json.dumps(written))
"""
    ended = _inside(program, tmp_path)
    assert json.loads(ended.output) == ["/tmp/groundwire-written", "/submission/written"]
    assert not any(path.exists() for path in places)


@needs_sandbox
def test_it_has_no_network_and_no_rights(tmp_path: Path) -> None:
    program = """
import os, socket
print([name for _, name in socket.if_nameindex()])
print(os.getuid() != 0 or open("/proc/self/uid_map").read().split()[2] == "1")
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
try:
    socket.create_connection(("1.1.1.1", 80), 2)
except OSError as error:
    print("none")
"""
    said = _inside(program, tmp_path).output.splitlines()
    assert said == ["['lo']", "True", "['0000000000000000']", "none"]


@needs_sandbox
def test_forks_without_end_are_held(tmp_path: Path) -> None:
    program = """
import os, time
count = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
    except OSError:
        print(count, flush=True)
        break
"""
    ended = _inside(program, tmp_path, processes=100)
    assert 0 < int(ended.output) < 100
    assert ended.status == 0


@needs_sandbox
def test_what_never_ends_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = f"mark{os.getpid()}"
    program = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "while True: pass", {mark!r}], start_new_session=True)
while True:
    pass
"""
    before = time.monotonic()
    ended = _inside(program, tmp_path, time_s=2)
    assert ended.stopped == "more than 2 s"
    assert 2 <= time.monotonic() - before < 30
    deadline = time.monotonic() + 10
    while _running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _running(mark)


@needs_sandbox
@pytest.mark.parametrize(
    ("program", "limits", "said"),
    [
        ("print('x' * 5_000_000)", {"output_bytes": 100_000}, "bytes of output"),
        (
            "import time; x = bytearray(b'1') * 500_000_000; time.sleep(60)",
            {"memory_bytes": 300_000_000},
            "bytes of memory",
        ),
    ],
)
def test_what_takes_too_much_is_ended(
    program: str, limits: dict[str, float], said: str, tmp_path: Path
) -> None:
    ended = _inside(program, tmp_path, **limits)
    assert ended.stopped is not None
    assert said in ended.stopped


@needs_sandbox
def test_a_full_disk_is_its_own(tmp_path: Path) -> None:
    program = """
try:
    with open("big", "wb") as file:
        for _ in range(100):
            file.write(bytes(1_000_000))
except OSError as error:
    print(error.strerror)
"""
    ended = _inside(program, tmp_path, disk_bytes=10_000_000)
    assert ended.output.strip() == "No space left on device"


def test_without_a_sandbox_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Student("Ada", load_lab("packet-time")), tmp_path / "ada")
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    done = groundwire("lab", "check", "--class", tmp_path)
    assert done.returncode == 1
    assert "apt-get install bubblewrap" in done.stderr
    assert done.stdout == ""


def test_a_class_is_graded_only_when_asked_for(tmp_path: Path) -> None:
    """A clone's root has folders of labs in it, and is no class."""
    start(Student("Ada", load_lab("packet-time")), tmp_path / "ada")
    done = groundwire("lab", "check", tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert "no student.yaml in it" in done.stderr and "--class" in done.stderr
    done = groundwire("lab", "check", tmp_path, "--csv")
    assert done.returncode == 2 and "expected --class" in done.stderr
    done = groundwire("lab", "check", "--class", tmp_path / "ada")
    assert done.returncode == 2 and "expected a folder of submissions" in done.stderr


def test_a_sandbox_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda: ["sh", "-c", "echo no; exit 1"])
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(NoSandbox, match="cannot make a sandbox here"):
        require_sandbox()


@needs_sandbox
@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_a_class_is_graded(tmp_path: Path) -> None:
    """One who is right, one with a neighbour's answers and a failing program, and one whose files
    are links to somebody else's."""
    lab = load_lab("ring-all-reduce")
    ada = start(Student("Ada", lab), tmp_path / "1-ada", solved=True)
    answers = right_answers(ada.student, {})
    write_answers(ada, answers)
    bob = start(Student("Bob", lab), tmp_path / "2-bob")
    write_answers(bob, answers)
    (bob.path / "ring.py").write_text("raise SystemExit(3)\n")
    eve = start(Student("Eve", lab), tmp_path / "3-eve")
    (eve.path / "ring.py").unlink()
    (eve.path / "ring.py").symlink_to(ada.path / "ring.py")
    done = groundwire("lab", "check", "--class", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    first, second, third = json.loads(done.stdout)
    assert (first["points"], first["of"]) == (11, 13), first  # two answers need a run of hers
    assert first["answers_of"] is None
    assert second["answers_of"] == "Ada"
    assert "exited with status 3" in second["failures"]["ring"]
    assert "ring.py: expected a file of text" in third["problem"]


@needs_sandbox
@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_a_submission_that_never_ends_is_graded_without_its_run(tmp_path: Path) -> None:
    folder = start(Student("Bob", load_lab("packet-time")), tmp_path / "bob")
    write_answers(folder, right_answers(folder.student, {}))
    # A loop that changes nothing is known to wait for ever, and its guest ends; this one counts.
    (folder.path / "measure.py").write_text("n = 0\nwhile True:\n    n += 1\n")
    done = groundwire("lab", "check", "--class", tmp_path, "--limit", "8", "--json")
    (graded,) = json.loads(done.stdout)
    assert graded["failures"] == dict.fromkeys(("wire", "long"), "stopped: more than 8 s")
    assert graded["points"] == 7  # of what he predicted


def _running(mark: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path("/proc", pid, "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False
