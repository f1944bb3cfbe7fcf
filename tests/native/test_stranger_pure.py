"""A registry that somebody else could have written is refused; what it says is not done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from emulator.linux.own_files import NotOurs, read_own_file
from emulator.network import registry
from emulator.network.registry import Session, process_start, sessions
from groundwire.commands.clean import clean
from groundwire.commands.console.outcome import outcome


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of sessions in the tests of this file."""
    place = tmp_path / "registry"
    monkeypatch.setattr(registry, "state_directory", lambda: place)
    return place


def _abandoned(root: Path, *objects: dict[str, object]) -> Session:
    """A session whose process has gone, with these objects."""
    session = Session.create("abc", root=root)
    (session.directory / "owner.json").write_text('{"pid":1,"start":0,"at":0}')
    session.record(*objects)
    return session


def _hijacking(tmp_path: Path, pid: int) -> tuple[dict[str, object], ...]:
    """Registry entries that rewrite a file, remove a link and kill a process, if they are
    obeyed."""
    (tmp_path / ".bashrc").write_text("alias ls=ls\n")
    (tmp_path / "link").symlink_to("/somewhere")
    return (
        {
            "kind": "sysctl",
            "path": str(tmp_path / ".bashrc"),
            "before": "something else\n",
            "after": "alias ls=ls",
        },
        {"kind": "symlink", "path": str(tmp_path / "link"), "target": "/somewhere"},
        {"kind": "process", "pid": pid, "start": process_start(pid)},
    )


def _clean() -> int:
    with pytest.raises(typer.Exit) as ended:
        outcome(clean)(session=None, as_json=False)
    return int(ended.value.exit_code)


def test_a_stranger_s_registry_is_refused_with_words(
    root: Path,
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _abandoned(root, *_hijacking(tmp_path, sleeper.pid))
    stranger = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: stranger + 1)
    assert _clean() == 1
    said = capsys.readouterr().err
    assert f"{root} belongs to user {stranger}, not to user {stranger + 1}" in said
    assert (tmp_path / ".bashrc").read_text() == "alias ls=ls\n"
    assert (tmp_path / "link").is_symlink()
    assert sleeper.poll() is None


@pytest.mark.parametrize("what", ["root", "session", "log"])
def test_what_others_can_write_is_refused(
    what: str, root: Path, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    session = _abandoned(root, *_hijacking(tmp_path, sleeper.pid))
    places = {"root": root, "session": session.directory}
    places.get(what, session.directory / "owned.jsonl").chmod(0o777)
    assert _clean() == 1
    assert (tmp_path / "link").is_symlink()
    assert sleeper.poll() is None


def test_a_link_in_place_of_a_registry_is_not_followed(root: Path, tmp_path: Path) -> None:
    _abandoned(tmp_path / "real")
    root.symlink_to(tmp_path / "real")
    with pytest.raises(NotOurs, match="or a link"):
        sessions(root)
    root.unlink()
    root.mkdir(mode=0o700)
    (root / "abc").symlink_to(tmp_path / "real" / "abc")
    assert sessions(root) == []


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").chmod(0o600)
    assert read_own_file(tmp_path / "real") == "{}"
    with pytest.raises(NotOurs, match="is a link"):
        read_own_file(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(NotOurs, match="no plain file"):
        read_own_file(tmp_path / "pipe")


def test_only_sysctls_are_written_back_and_only_own_links_go(root: Path, tmp_path: Path) -> None:
    """The rules hold for a registry of our own, too: it may have been damaged."""
    objects = _hijacking(tmp_path, os.getpid())[:2]
    through = {**objects[0], "path": f"/proc/sys/../..{tmp_path}/.bashrc"}
    removal = _abandoned(root, *objects, through).remove()
    assert [words.split(": ")[1].endswith("is no sysctl") for words in removal.left] == [True] * 2
    assert (tmp_path / ".bashrc").read_text() == "alias ls=ls\n"
    assert (tmp_path / "link").is_symlink()


def test_another_user_s_process_is_not_killed(
    root: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = sleeper.pid
    session = _abandoned(root, {"kind": "process", "pid": pid, "start": process_start(pid)})
    stat = os.stat

    def of_another(path: str, **options: object) -> os.stat_result:
        found = stat(path, **options)  # type: ignore[arg-type]
        if path != f"/proc/{pid}":
            return found
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:10]))

    monkeypatch.setattr(os, "stat", of_another)
    (words,) = session.remove().left
    assert f"process {pid} is another user's" in words
    assert sleeper.poll() is None


def test_a_registry_is_made_for_its_user_alone(root: Path) -> None:
    umask = os.umask(0o002)
    try:
        session = _abandoned(root)
        session.record({"kind": "directory", "path": "/nowhere"})
    finally:
        os.umask(umask)
    assert root.stat().st_mode & 0o777 == 0o700
    assert [found.id for found in sessions(root)] == ["abc"]
    assert session.owned() == [{"kind": "directory", "path": "/nowhere"}]
