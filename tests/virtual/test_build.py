"""Building: what is missing is named; nothing is built twice; what is interrupted goes on."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.virtual.building import build, source
from emulator.virtual.building.cache import kernel_cache
from emulator.virtual.building.variant import KernelVariant
from emulator.virtual.failure import VirtualKernelError
from tests.slowdown import slowdown


def test_another_processor_is_named(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(VirtualKernelError, match="for x86-64 only, and this machine is aarch64"):
        build.ensure_kernel(print)


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    present = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "flex" else present(name))
    with pytest.raises(VirtualKernelError, match="apt-get install flex"):
        build.require_tools()


def test_a_damaged_archive_names_the_command(files: Path, archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(VirtualKernelError, match=r"tar .*-xf"):
        build.ensure_kernel(lambda line: None)
    assert build.find_kernel() is None
    assert not list(kernel_cache().glob("tree-*/linux"))


MAKEFILE = textwrap.dedent("""\
    allnoconfig:
    \t@cp $(KCONFIG_ALLCONFIG) $(O)/.config; [ ! -e $(O)/lose ] || : > $(O)/.config
    linux:
    \t@echo '  CC      clock.o'; [ ! -e broken ] || { echo 'clock.c:1: error'; exit 1; }
    \t@[ ! -e slow ] || { echo half > $(O)/linux; until [ -e go ]; do sleep 0.1; done; }
    \t@cp /bin/true $(O)/linux; echo '0000 b time_travel_time' > $(O)/System.map
    """)


def fake_tree(*marks: str) -> Path:
    """Put a Makefile of a few lines where the kernel's tree would be: `broken`, `slow` or well."""
    found = source.require_source()
    tree = build.source_tree(found)
    source.unpack(found, tree, lambda line: None)
    (tree / "Makefile").write_text(MAKEFILE)
    for mark in marks:
        (tree / mark).touch()
    return tree


def test_built_once_then_found(files: Path, archive: Path) -> None:
    fake_tree()
    said: list[str] = []
    assert build.find_kernel() is None
    image = build.ensure_kernel(said.append)
    assert image.path.exists()
    assert any("compiling" in line for line in said)
    said.clear()
    assert build.ensure_kernel(said.append) == image == build.find_kernel()
    assert said == []


def test_a_variant_is_a_kernel_beside_the_usual_one(files: Path, archive: Path) -> None:
    tree = fake_tree()
    (files / "groundwire.config").write_text("CONFIG_IPV6=n\nCONFIG_NET=y\n")
    usual = build.ensure_kernel(print)
    (files / "ipv6").mkdir()
    (files / "ipv6" / "options.config").write_text("CONFIG_IPV6=y\n")
    assert build.find_kernel() == usual, "it costs others no build"
    assert build.find_kernel(KernelVariant.IPV6) is None
    image = build.ensure_kernel(print, KernelVariant.IPV6)
    assert image.key != usual.key and image.path.exists()
    assert build.find_kernel(KernelVariant.IPV6) == image
    assert build.find_kernel() == usual
    configured = (tree.parent / "objects-ipv6" / ".config").read_text()
    assert configured == "CONFIG_NET=y\nCONFIG_IPV6=y\n"
    assert "CONFIG_IPV6=n" in (tree.parent / "objects" / ".config").read_text()


def test_a_second_build_says_that_it_waits_and_finds_the_first_ones_kernel(
    files: Path, archive: Path
) -> None:
    tree = fake_tree("slow")
    first = threading.Thread(target=build.ensure_kernel, args=(lambda line: None,))
    first.start()
    half = tree.parent / "objects" / "linux"
    wait_until(lambda: half.exists() and half.read_text() == "half\n", 60)
    second: list[str] = []
    waiting = threading.Thread(target=build.ensure_kernel, args=(second.append,))
    waiting.start()
    wait_until(lambda: second, 10)
    (tree / "go").touch()
    first.join()
    waiting.join()
    assert second == [f"another build is at work in {kernel_cache()}; waiting for it"]
    assert build.find_kernel() is not None


def test_a_compiler_error_is_shown(files: Path, archive: Path) -> None:
    fake_tree("broken")
    with pytest.raises(VirtualKernelError) as error:
        build.ensure_kernel(lambda line: None)
    assert "clock.c:1: error" in str(error.value)
    assert "make -C" in str(error.value)
    assert "make.log" in str(error.value)
    assert build.find_kernel() is None


def test_an_option_that_the_source_refuses_is_named(files: Path, archive: Path) -> None:
    tree = fake_tree()
    (tree.parent / "objects").mkdir()
    (tree.parent / "objects" / "lose").touch()
    with pytest.raises(VirtualKernelError, match="does not accept CONFIG_NET=y"):
        build.ensure_kernel(lambda line: None)


_BUILD_BEFORE_PACKAGES = """
import sys
from pathlib import Path
from emulator.virtual.building import source
source.KERNEL_FILES = Path(sys.argv.pop(1))
from emulator.virtual.building.__main__ import main
main()
"""


def test_it_is_built_with_the_standard_library_alone(files: Path, archive: Path) -> None:
    """setup.sh builds while pip installs; -S is a Python that finds no packages."""
    fake_tree()
    command: list[str | Path] = [sys.executable, "-S", "-c", _BUILD_BEFORE_PACKAGES, files]
    environment = os.environ | {"PYTHONPATH": str(Path(build.__file__).parents[3])}

    def status() -> dict[str, object]:
        asked = [*command, "--status"]
        said = subprocess.check_output(asked, env=environment, text=True)
        return dict(json.loads(said))

    assert not status()["built"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    image = build.find_kernel()
    assert image is not None
    assert status() == {"key": image.key, "directory": str(image.path.parent), "built": True}
    assert done.stderr.endswith(f"virtual kernel: {image.path}\n")


_BUILD = """
import sys
from pathlib import Path
from emulator.virtual.building import source
source.KERNEL_FILES = Path(sys.argv.pop(1))
from groundwire.cli import main
main()
"""


def builders(tmp_path: Path) -> list[str]:
    """Processes, except this one, that have this test's HOME in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if f"HOME={tmp_path}".encode() in environment.split(b"\0"):
            found.append((process / "comm").read_text().strip())
    return found


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def interrupted(how: str, files: Path, tmp_path: Path, begun: Callable[[], bool]) -> None:
    """Start a build, end it once `begun()`, and see that nothing of it goes on; what it said."""
    command: list[str | Path] = [sys.executable, "-c", _BUILD, files, "kernel", "build"]
    builder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(begun, 60)
    ended = time.monotonic()
    match how:
        case "ctrl-c":  # a terminal sends it to all processes of the foreground group
            os.killpg(builder.pid, signal.SIGINT)
        case "kill":
            builder.terminate()
        case "kill -9":
            builder.kill()
    said = builder.communicate()[1].splitlines()
    wait_until(lambda: not builders(tmp_path), 10)
    assert time.monotonic() - ended < 2 * slowdown()
    if how != "kill -9":
        status, word = (130, "interrupted") if how == "ctrl-c" else (143, "terminated")
        assert builder.returncode == status
        assert said[-2:] == [
            "interrupted; the next build goes on from here",
            f"groundwire: {word}",
        ]
        assert not any("Traceback" in line or "Error" in line for line in said)
    assert build.find_kernel() is None


def assert_only_the_kernel_is_left(tree: Path) -> None:
    image = build.ensure_kernel(lambda line: None)
    assert image.path.read_bytes() != b"half\n"
    left = {path.name for path in kernel_cache().iterdir()}
    assert left == {image.key, "lock", tree.parent.name}
    assert {path.name for path in tree.parent.iterdir()} == {"linux", "objects", "unpacked"}


@pytest.mark.parametrize("how", ["ctrl-c", "kill", "kill -9"])
def test_an_interrupted_build_ends_and_the_next_goes_on(
    files: Path, archive: Path, tmp_path: Path, how: str
) -> None:
    tree = fake_tree("slow")
    half = tree.parent / "objects" / "linux"
    interrupted(how, files, tmp_path, lambda: half.exists() and half.read_text() == "half\n")
    (tree / "slow").unlink()
    assert_only_the_kernel_is_left(tree)


@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_an_interrupted_unpacking_ends_and_starts_anew(
    files: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    found = source.require_source()
    half = build.source_tree(found).with_name("unpacking")
    slow = tmp_path / "bin" / "xz"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
        interrupted(how, files, tmp_path, lambda: half.exists() and "sleep" in builders(tmp_path))
    assert not (half.parent / "linux").exists()
    assert_only_the_kernel_is_left(fake_tree())


@pytest.mark.parametrize("name", ["my cache", "a:b", "100%", "c#", "it's", "(1)", "a&b"])
def test_a_name_that_make_takes_apart_is_refused(
    files: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    with pytest.raises(VirtualKernelError, match="Linux cannot be built in a directory with"):
        build.ensure_kernel(print)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["önbellek-ğİı", "~+,=@"])
def test_other_names_are_built_in(
    files: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    fake_tree()
    assert build.ensure_kernel(lambda line: None).path.is_relative_to(tmp_path / name)


HOSTILE = (
    *("ARCH", "CC", "CFLAGS", "CPATH", "CROSS_COMPILE", "GNUTARGET", "HOSTCC", "KBUILD_CFLAGS"),
    *("KCFLAGS", "LANG", "LC_MESSAGES", "LDFLAGS", "LIBRARY_PATH", "LLVM", "MAKEFILES", "O"),
    *("MAKEFLAGS", "PATCH_GET", "POSIXLY_CORRECT", "TAR_OPTIONS", "V", "XDG_CACHE_HOME", "XZ_OPT"),
)


def test_no_setting_of_the_user_reaches_a_program_that_builds(
    files: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make V=1 setup` exported MAKEFLAGS to the kernel's build, KCFLAGS made another kernel of it,
    and TAR_OPTIONS or XZ_OPT kept it from being unpacked."""
    monkeypatch.delenv(source.SOURCE_VARIABLE)
    monkeypatch.setattr(source, "INSTALLED_SOURCES", tmp_path)
    programs = ("dpkg-query", "tar", "patch", "make", "strip")
    (tmp_path / "bin").mkdir()
    for program in programs:
        path = "false" if program == "dpkg-query" else shutil.which(program)
        told = tmp_path / "bin" / program
        told.write_text(f'#!/bin/sh\nenv >"$0.environment"\nexec {path} "$@"\n')
        told.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for name in HOSTILE:
        if name != "XDG_CACHE_HOME":
            monkeypatch.setenv(name, "--hostile")
    fake_tree()
    build.ensure_kernel(lambda line: None)
    for program in programs:
        environment = (tmp_path / "bin" / f"{program}.environment").read_text()
        assert "LC_ALL=C\n" in environment, program
        names = {line.partition("=")[0] for line in environment.splitlines()}
        assert {"PATH", "HOME"} <= names, program
        assert not names & set(HOSTILE), program
