"""The wheel, installed by a plain user in a clean system: no compiler, no root, no kernel source.

The root file systems are made once by debootstrap and kept in the cache folder; they are read-only
in the tests. The user's home alone can be written, and is new each time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from emulator.virtual.building.build import find_kernel
from tests.session.command import ROOT

pytestmark = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)
_SYSTEMS = {
    "bookworm": "http://deb.debian.org/debian",
    "trixie": "http://deb.debian.org/debian",
    "noble": "http://archive.ubuntu.com/ubuntu",
}
_KEYRINGS = {"noble": Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")}
_USER = 61_999
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_SCRIPT = """
set -eu
cd "$HOME"
! command -v cc && ! command -v make
python3 -m venv env
. env/bin/activate
pip install --quiet /wheel/*.whl
groundwire kernel status
groundwire lab start packet-time lab --name Ada --solution
groundwire lab run lab
groundwire lab check lab
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
    assert re.search(r"version 6\.12\.\d", origin)
    assert re.search(r"SHA-256 [0-9a-f]{64}", origin)
    assert "GNU GENERAL PUBLIC LICENSE" in licence
    assert mode & 0o111
    for changed in ("groundwire.config", "sch_gwport.c", "README.md"):
        assert f"emulator/kernel/{changed}" in names
    assert any(name.startswith("emulator/kernel/patches/") for name in names)
    assert {"labs/packet-time/page.md", "labs/packet-time/starter/measure.py"} <= names
    for room in ("groundwire", "emulator", "analysis", "workloads", "collectives", "topologies"):
        modules = {str(path.relative_to(ROOT)) for path in (ROOT / room).rglob("*.py")}
        assert modules <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    assert re.search(r"-py3-none-manylinux_2_\d+_x86_64\.whl$", wheel.name)


@pytest.mark.long
@pytest.mark.parametrize("system", _SYSTEMS)
def test_lab_1_by_a_plain_user_of_a_clean_system(system: str, wheel: Path, tmp_path: Path) -> None:
    root = _root_of(system)
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
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }
    command = [
        *("bwrap", "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc"),
        *("--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/dev/shm"),
        *("--bind", str(home), "/home/student", "--ro-bind", str(wheel.parent), "/wheel"),
        *("--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf", *find, "--unshare-pid"),
        *("--clearenv", *(word for pair in variables.items() for word in ("--setenv", *pair))),
        *("--", "setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "bash", "-c", _SCRIPT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    shutil.rmtree(home)  # gigabytes
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 points" in done.stdout


def _root_of(system: str) -> Path:
    """A root file system with Python and nothing else of ours, or a skip that says why not."""
    for program, package in (("debootstrap", "debootstrap"), ("bwrap", "bubblewrap")):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}, of the package {package}")
    if os.getuid() != 0:
        pytest.skip("needs root for debootstrap")
    keyring = _KEYRINGS.get(system)
    if keyring is not None and not keyring.exists():
        pytest.skip(f"needs {keyring}, of the package ubuntu-keyring")
    root = Path.home() / ".cache" / "groundwire" / "test-roots" / system
    if root.is_dir():
        return root
    part = root.with_name(f"{system}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    packages = "python3,python3-venv,ca-certificates"
    signed = [f"--keyring={keyring}", "--components=main,universe"] if keyring else []
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", *signed, system, str(part),
         _SYSTEMS[system]],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0 and "Failed getting release file" in done.stdout + done.stderr:
        pytest.skip(f"{_SYSTEMS[system]} does not answer")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if _CERTIFICATES.exists():
        shutil.copyfile(_CERTIFICATES, part / _CERTIFICATES.relative_to("/"))
    for place in ("wheel", "home/student", os.environ.get("PIP_FIND_LINKS", "").lstrip("/")):
        (part / place).mkdir(parents=True, exist_ok=True)
    (part / "etc" / "resolv.conf").touch()
    (part / "etc" / "hosts").write_text("127.0.0.1 localhost\n")  # as installers do
    part.rename(root)
    return root
