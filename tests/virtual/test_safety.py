"""A guest may change one thing on the host: the directories that it was given."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from emulator.virtual.building.image import KernelImage
from tests.virtual.conftest import Guest

ROOT = Path(__file__).resolve().parents[2]


def tree(directory: Path) -> Path:
    directory.mkdir()
    for name in ("one", "two", "deep/three"):
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(name)
    return directory


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_removing_everything_removes_nothing(guest: Guest, place: str) -> None:
    # The guest has a /tmp of its own, into which the host's directory is mounted; the rest of the
    # host's files are its root file system.
    with tempfile.TemporaryDirectory(dir=place) as name:
        _assert_survives(guest, tree(Path(name) / "victim"))


def _assert_survives(guest: Guest, victim: Path) -> None:
    before = contents(victim)
    ended = guest("rm", "-rf", victim, readable=(victim,))
    assert any("Read-only file system" in line for line in ended.errors)
    assert contents(victim) == before


def test_writes_go_to_the_named_directory_only(guest: Guest, tmp_path: Path) -> None:
    given, other = tree(tmp_path / "given"), tree(tmp_path / "other")
    script = f"""
import os, pathlib
given, other = pathlib.Path({str(given)!r}), pathlib.Path({str(other)!r})
(given / "new").write_text("made in the guest" * 10000)
(given / "one").unlink()
with open(given / "two", "a") as file:
    file.write(" and more")
for attempt in (lambda: (other / "new").write_text(""), lambda: (other / "one").unlink(),
                lambda: os.chmod(other / "two", 0), lambda: os.rename(other / "one", other / "x"),
                lambda: os.truncate(other / "one", 0), lambda: os.mkdir("/root-of-host")):
    try:
        attempt()
    except OSError as error:
        print(error.errno)
"""
    ended = guest(sys.executable, "-c", script, writable=(given,), readable=(other,))
    assert ended.errors == []
    assert ended.lines == ["30"] * 6  # EROFS
    assert contents(given) == {
        "new": "made in the guest" * 10000,
        "two": "two and more",
        "deep/three": "deep/three",
    }
    assert contents(other) == {"one": "one", "two": "two", "deep/three": "deep/three"}


def test_temporary_directories_are_the_guests_own(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "host-only").write_text("")
    ended = guest("sh", "-c", "for d in /tmp /run /dev/shm; do ls -A $d; echo x > $d/mine; done")
    assert ended.result.exit_status == 0
    assert not [line for line in ended.lines if "host-only" in line]


def test_two_guests_at_once_do_not_meet(guest: Guest) -> None:
    # Each guest has its own namespaces, files and clock although they share a host.
    first = guest("sh", "-c", "echo > /tmp/mark; ls /tmp | grep -c mark")
    second = guest("sh", "-c", "ls /tmp | grep -c mark")
    assert first.lines == ["1"]
    assert second.lines == ["0"]


# $0 is an empty directory. The root of what is run there has copies on write of the directories
# that a guest needs, which are $1 without those in $2, and no others of ours: whatever is done to a
# file in them is in `upper` alone.
SACRIFICIAL_ROOT = """
copy() {
    test -e "root$1" && return  # in a directory that is there
    mkdir -p "upper$1" "work$1" "root$1" &&
    mount -t overlay overlay -o "lowerdir=$1,upperdir=upper$1,workdir=work$1" "root$1"
}
make() {
    mount -t tmpfs tmpfs "$0" && cd "$0" && mkdir upper work root || return
    for each in /bin /sbin /lib*; do
        if test -L "$each"; then cp -a "$each" root; else copy "$each"; fi || return
    done
    for each in /usr /etc $1; do copy "$each" || return; done
    others=$(find /usr/lib -mindepth 1 -maxdepth 1 -type d ! -name '*-linux-gnu' ! -name 'python3*')
    for each in /usr/share /usr/include /usr/src $others $2; do
        test ! -d "root$each" || mount -t tmpfs tmpfs "root$each" || return
    done
    cd root && mkdir -p given proc dev tmp run sys && touch sacrificial given/file &&
    mount -t proc proc proc && mount -t tmpfs tmpfs dev && mkdir dev/shm &&
    mknod -m 666 dev/null c 1 3 && mknod -m 666 dev/zero c 1 5 && mknod -m 666 dev/urandom c 1 9
}
make "$@" || exit 77
shift 2
chroot . "$@" || exit
cd .. && find root/given root/sacrificial -printf '%y %f\\n' && find upper ! -type d
"""
REMOVE_ROOT = """
import sys
from pathlib import Path
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.image import KernelImage
kernel = KernelImage(Path(sys.argv[1]), Path(sys.argv[2]), "")
script = "test -e /sacrificial && exec rm -rf --no-preserve-root /"
guest = GuestSpec(argv=("sh", "-c", script), directory=Path("/"), writable=(Path("/given"),))
refused = []
result = run_guest(kernel, guest, print, refused.append)
print(result.reason, result.exit_status)
print(*(line for line in refused if line.endswith("'/sacrificial': Read-only file system")))
"""


def test_removing_the_root_removes_nothing(kernel: KernelImage, tmp_path: Path) -> None:
    """Really `rm -rf /`, but for a guest whose host's root can be lost."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not have mounts of its own")
    program = (sys.executable, "-c", REMOVE_ROOT, kernel.path, kernel.symbols)
    needed = f"{ROOT} {kernel.path.parent} {sys.base_prefix} {sys.prefix}"
    # Tens of thousands of files more, each of which `rm` would try to remove.
    packages = {
        sysconfig.get_path("purelib", vars={"base": base}) for base in (sys.prefix, sys.base_prefix)
    }
    hidden = " ".join([*packages, f"{ROOT}/.git"])
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SACRIFICIAL_ROOT, tmp_path, needed, hidden, *program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip(f"the root file system cannot be copied on write: {done.stderr}")
    assert done.stdout.splitlines() == [
        "exited 1",
        "rm: cannot remove '/sacrificial': Read-only file system",
        "d given",  # without its file
        "f sacrificial",
    ], done.stderr


def test_the_command_line_shows_of_tmp_what_it_is_told_to(
    kernel: KernelImage, tmp_path: Path
) -> None:
    shown, hidden = tree(tmp_path / "shown"), tree(tmp_path / "hidden")
    script = f"cat {shown}/one; touch {shown}/new || echo read-only; ls {hidden} || echo hidden"
    command = [sys.executable, "-m", "emulator.virtual", "--mem", "512MB", "--ro"]
    done = subprocess.run(
        [*command, str(shown), "--", "sh", "-c", script],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["oneread-only", "hidden"]
    missing = subprocess.run(
        [*command, str(tmp_path / "missing"), "--", "true"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert missing.returncode == 2 and "does not exist" in missing.stderr
    told = subprocess.run(
        [sys.executable, "-m", "emulator.virtual", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "/tmp, /run and /dev/shm are the guest's own" in " ".join(told.stdout.split())
