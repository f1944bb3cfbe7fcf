"""The wheel, installed by a plain user in a clean system: no compiler, no root, no kernel source.

The root file systems are made once by mmdebstrap and kept in the cache folder; they are read-only
in the tests. The user's home alone can be written, and is new each time. CI has Debian in the
cheapest form: packages that Python needs, unpacked, and no torch, which lab 1 does without. The
long tests have whole systems, and install all that pip would. Where a mirror of the system or
the index of Python packages does not answer, a test is skipped, and says so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from emulator.virtual.building.build import find_kernel
from groundwire.rooms import ROOMS
from tests.remote.system import CERTIFICATES, MIRRORS, UBUNTU, made_system, moved, ubuntu_keyring
from tests.session.command import ROOT

pytestmark = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)
_SYSTEMS = ("bookworm", "trixie", "noble")
_IN_CI = ("bookworm", pytest.param("noble", marks=pytest.mark.long))
_UNPACKED = "base-files,bash,coreutils,dash,grep,libc-bin,libstdc++6,sed,util-linux"
_USER = 61_999
# pip's words for an index that cannot be reached
_NO_INDEX = re.compile(
    "Temporary failure in name resolution|Failed to establish a new connection|ConnectTimeoutError"
    "|Name or service not known|Connection refused|No route to host"
)
_FROM_SOURCE = """
pip install --quiet --no-deps /wheel/*.tar.gz
python > needed <<END
from importlib.metadata import requires
all_of_it = [each for each in requires("groundwire") if "extra ==" not in each]
print("\\n".join(each for each in all_of_it if not each.startswith("torch")))
END
pip install --quiet --requirement needed
echo is-installed >&2
groundwire init mine.yaml
groundwire validate mine.yaml
groundwire predict mine.yaml --predictor flow --json
groundwire kernel build || test $? = 1
"""
_BEGIN = """
set -eu
cd "$HOME"
! command -v cc && ! command -v make
python3 -m venv env
. env/bin/activate
"""
_WITH_TORCH = """
pip install --quiet /wheel/*.whl
echo is-installed >&2
groundwire kernel status
groundwire lab start packet-time lab --name Ada --solution
groundwire lab run lab
groundwire lab check lab
"""
_WITHOUT_TORCH = """
pip install --quiet --no-deps /wheel/*.whl
python > needed <<END
from importlib.metadata import requires
all_of_it = [each for each in requires("groundwire") if "extra ==" not in each]
print("\\n".join(each for each in all_of_it if not each.startswith("torch")))
END
pip install --quiet --requirement needed
echo is-installed >&2
groundwire kernel status >&2
groundwire lab start packet-time lab --name Ada --solution >&2
groundwire lab run lab --only wire >&2
groundwire lab check lab --json || test $? = 1
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "emulator.virtual.building.wheel", str(to)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = to.glob("*.whl")
    return made


def test_the_wheel_has_the_kernel_its_licence_and_its_origin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        origin = packed.read("emulator/kernel/carried/ORIGIN.md").decode()
        licence = packed.read("emulator/kernel/carried/COPYING").decode()
        mode = packed.getinfo("emulator/kernel/carried/linux").external_attr >> 16
        program = packed.getinfo("workloads/virtual_gpu/carried/bin/nvidia-smi").external_attr >> 16
    assert re.search(r"version 6\.12\.\d", origin)
    assert re.search(r"SHA-256 [0-9a-f]{64}", origin)
    assert "GNU GENERAL PUBLIC LICENSE" in licence
    assert mode & 0o111 and program & 0o111
    assert "workloads/virtual_gpu/carried/_groundwire_gpu.so" in names
    for changed in ("groundwire.config", "sch_gwport.c", "README.md"):
        assert f"emulator/kernel/{changed}" in names
    assert any(name.startswith("emulator/kernel/patches/") for name in names)
    assert {"labs/packet-time/page.md", "labs/packet-time/starter/measure.py"} <= names
    for room in ROOMS:
        modules = {str(path.relative_to(ROOT)) for path in (ROOT / room).rglob("*.py")}
        assert modules <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    assert re.search(r"-py3-none-manylinux_2_\d+_x86_64\.whl$", wheel.name)


@pytest.mark.parametrize("system", _IN_CI)
def test_lab_1_runs_for_a_plain_user_of_a_clean_system(
    system: str, wheel: Path, tmp_path: Path
) -> None:
    done = _as_student(_root_of(system, whole=False), _BEGIN + _WITHOUT_TORCH, wheel, tmp_path)
    _require_success(done)
    verdict = json.loads(done.stdout)
    missing = {each["name"] for each in verdict["questions"] if not each["passed"]}
    assert missing == {"transferred_ns", "beyond_ns"}, verdict  # those of the run that takes longer


@pytest.mark.long
@pytest.mark.parametrize("system", _SYSTEMS)
def test_lab_1_by_a_plain_user_of_a_clean_system(system: str, wheel: Path, tmp_path: Path) -> None:
    done = _as_student(_root_of(system, whole=True), _BEGIN + _WITH_TORCH, wheel, tmp_path)
    _require_success(done)
    assert "12 of 12 points" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("system", _SYSTEMS)
def test_the_sdist_is_installed_by_a_plain_user_of_a_clean_system(
    system: str, tmp_path: Path
) -> None:
    """It predicts without a compiler, and says what the virtual kernel needs."""
    tree, packed = tmp_path / "tree", tmp_path / "packed"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
    build = f"import setuptools.build_meta as made; made.build_sdist({str(packed)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=tree, check=True, capture_output=True)
    (made,) = packed.glob("*.tar.gz")
    done = _as_student(_root_of(system, whole=False), _BEGIN + _FROM_SOURCE, made, tmp_path)
    _require_success(done)
    assert "mine.yaml: fat-tree, 16 hosts" in done.stdout and '"flow"' in done.stdout
    assert re.search(r"cannot be built without: .*\bflex\b", done.stderr)
    assert "make setup" not in done.stdout + done.stderr


def _require_success(done: subprocess.CompletedProcess[str]) -> None:
    said = done.stdout + done.stderr
    if done.returncode != 0 and "is-installed" not in said and _NO_INDEX.search(said):
        pytest.skip("the index of Python packages does not answer")
    assert done.returncode == 0, said


def _as_student(
    root: Path, script: str, wheel: Path, tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, _USER, _USER)
    for path in (*tmp_path.parents, wheel.parent, *wheel.parent.parents):
        if path.is_relative_to("/tmp/") and path != Path("/tmp"):
            path.chmod(0o755)
    wheels = Path(os.environ.get("PIP_FIND_LINKS", ""))
    find = ["--ro-bind", str(wheels), str(wheels)] if wheels.is_absolute() else []
    variables = {
        "HOME": "/home/student",
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_NO_COMPILE": "1",  # on one core, of which most is never imported
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }
    command = [
        *("bwrap", "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc"),
        *("--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/dev/shm"),
        *("--bind", str(home), "/home/student", "--ro-bind", str(wheel.parent), "/wheel"),
        *("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf", *find, "--unshare-pid"),
        *("--clearenv", *(word for pair in variables.items() for word in ("--setenv", *pair))),
        *("--", "setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "bash", "-c", script),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    shutil.rmtree(home)  # gigabytes
    return done


def _root_of(system: str, *, whole: bool) -> Path:
    """A root file system with Python and nothing else of ours, or a skip that says why not."""
    for program, package in (("mmdebstrap", "mmdebstrap"), ("bwrap", "bubblewrap")):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}, of the package {package}")
    if os.getuid() != 0:
        pytest.skip("needs root, to have another user in the system that is made")
    kind = "whole" if whole else "unpacked"
    root = Path.home() / ".cache" / "groundwire" / "test-roots" / f"{system}-{kind}"
    if root.is_dir():
        return root
    packages = "apt,python3,python3-venv,ca-certificates"  # what any installed system has
    options: list[str] = []
    if MIRRORS[system] == UBUNTU:
        options += [f"--keyring={ubuntu_keyring(root.parent)}", "--components=main,universe"]
    if whole:
        options += ["--variant=minbase", f"--include={packages}"]
    else:
        merged = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
        options += ["--variant=extract", merged, f"--include={packages},{_UNPACKED}"]
    part = made_system(root.parent, system, options)
    for place in ("wheel", "home/student", os.environ.get("PIP_FIND_LINKS", "").lstrip("/")):
        (part / place).mkdir(parents=True, exist_ok=True)
    if CERTIFICATES.exists():
        certificates = part / CERTIFICATES.relative_to("/")
        certificates.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CERTIFICATES, certificates)
    (part / "etc" / "resolv.conf").unlink(missing_ok=True)
    (part / "etc" / "resolv.conf").touch()
    (part / "etc" / "hosts").write_text("127.0.0.1 localhost\n")  # as installers do
    return moved(part, root)
