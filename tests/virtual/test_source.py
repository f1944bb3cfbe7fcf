"""The kernel's source: what is missing or does not fit is named; our own files go into it."""

import os
from pathlib import Path

import pytest

from emulator.virtual.building import source
from emulator.virtual.building.cache import kernel_cache
from emulator.virtual.failure import VirtualKernelError
from tests.virtual.conftest import CLOCK, PATCH


@pytest.fixture
def tree(files: Path, archive: Path, tmp_path: Path) -> Path:
    found = source.require_source()
    tree = tmp_path / "work" / "linux"
    source.unpack(found, tree, lambda line: None)
    return tree


def test_our_files_go_in(tree: Path) -> None:
    source.apply_own_files(tree)
    assert (tree / "arch" / "clock.c").read_text() == CLOCK.replace("256", "1")
    assert (tree / "net" / "sched" / "sch_gwport.c").read_text() == "/* qdisc */\n"
    makefile = (tree / "net" / "sched" / "Makefile").read_text()
    assert makefile == "obj-y += sch_fifo.o\nobj-y += sch_gwport.o\n"


def test_what_has_not_changed_is_not_touched(tree: Path, files: Path) -> None:
    source.apply_own_files(tree)
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
    (files / "sch_gwport.c").write_text("/* better */\n")
    source.apply_own_files(tree)
    changed = {path.name for path in tree.rglob("*") if path.is_file() and path.stat().st_mtime > 1}
    assert changed == {"sch_gwport.c"}


def test_a_changed_patch_starts_from_the_unpacked_file(tree: Path, files: Path) -> None:
    source.apply_own_files(tree)
    patch = files / "patches" / "0001-clock.patch"
    patch.write_text(PATCH.replace("multiplier = 1", "multiplier = 8"))
    source.apply_own_files(tree)
    assert (tree / "arch" / "clock.c").read_text() == CLOCK.replace("256", "8")
    patch.unlink()
    source.apply_own_files(tree)
    assert (tree / "arch" / "clock.c").read_text() == CLOCK


NEW_FILE = """\
--- /dev/null
+++ b/arch/trap.c
@@ -0,0 +1 @@
+int traps = 1;
"""
CHANGED_NEW_FILE = """\
--- a/arch/trap.c
+++ b/arch/trap.c
@@ -1 +1 @@
-int traps = 1;
+int traps = 2;
"""


def test_a_file_that_one_patch_makes_and_another_changes_is_no_file_of_the_source(
    tree: Path, files: Path
) -> None:
    (files / "patches" / "0002-trap.patch").write_text(NEW_FILE)
    source.apply_own_files(tree)
    (files / "patches" / "0003-traps.patch").write_text(CHANGED_NEW_FILE)
    source.apply_own_files(tree)
    assert (tree / "arch" / "trap.c").read_text() == "int traps = 2;\n"


def test_a_hunk_that_does_not_fit_is_named(tree: Path) -> None:
    (tree / "arch" / "clock.c").write_text("int changed = 0;\nint upstream = 1;\n")
    with pytest.raises(VirtualKernelError) as error:
        source.apply_own_files(tree)
    assert "0001-clock.patch does not fit" in str(error.value)
    assert "arch/clock.c" in str(error.value)
    assert "Hunk #1" in str(error.value)
    assert source.SOURCE_VARIABLE in str(error.value)
    assert (tree / "arch" / "clock.c").read_text().startswith("int changed")


def test_a_dropped_qdisc_is_dropped(tree: Path, files: Path) -> None:
    source.apply_own_files(tree)
    (files / "sch_gwport.c").unlink()
    source.apply_own_files(tree)
    assert not (tree / "net" / "sched" / "sch_gwport.c").exists()
    assert "gwport" not in (tree / "net" / "sched" / "Makefile").read_text()


@pytest.mark.parametrize(
    "name", ["groundwire.config", "sch_gwport.c", "patches/0001-clock.patch", "gwport.h"]
)
def test_every_file_of_ours_is_in_the_key(files: Path, archive: Path, name: str) -> None:
    found = source.require_source()
    before = source.key(found)
    assert source.key(found) == before
    file = files / name
    file.write_text((file.read_text() if file.exists() else "") + "\n")
    assert source.key(found) != before


def test_another_source_version_is_another_key(files: Path) -> None:
    keys = {source.key(source.KernelSource(Path("/x"), version)) for version in ("1", "2")}
    assert len(keys) == 2


def test_missing_source_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "find_source", lambda: None)
    with pytest.raises(VirtualKernelError, match=r"apt-get install linux-source-6\.12"):
        source.require_source()


def test_a_fetched_archive_is_found_with_its_version(
    files: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """setup.sh puts Debian's archive there where the system's own packages have another version."""
    monkeypatch.delenv(source.SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr(source, "INSTALLED_SOURCES", tmp_path / "usr-src")
    assert source.find_source() is None
    fetched = kernel_cache() / "source"
    fetched.mkdir(parents=True)
    for age, version in ((2, "6.12.94-1"), (1, "6.12.107-1")):
        archive = fetched / f"linux-source-6.12-{version}.tar.xz"
        archive.write_bytes(b"")
        os.utime(archive, (10**9 - age, 10**9 - age))
    assert source.find_source() == source.KernelSource(archive, "6.12.107-1")


def test_wrong_source_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(source.SOURCE_VARIABLE, "/no/such/archive")
    with pytest.raises(VirtualKernelError, match="/no/such/archive: no such file"):
        source.find_source()
