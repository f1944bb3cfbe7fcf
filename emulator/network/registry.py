"""The possessions of a session, on disk, written before it is made: so that exactly that can be
removed.

A session is a directory `<run>/groundwire/<session id>`. `owner.json` says which process it belongs
to; `owned.jsonl` has one line per object in order of creation, and is undone from the end. Removing
checks, object by object, that it still is the one recorded: a link still points into the session, a
process still has its start time and is this user's, a sysctl is one. Nothing is found by its name
alone, and nothing is read that somebody else could have written.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from emulator.linux import namespaces
from emulator.linux.own_files import (
    NotOurs,
    make_own_directory,
    open_own_file,
    own_directory,
    read_own_file,
)
from emulator.linux.rdma_netlink import remove_rdma_device

NETNS_DIRECTORY = Path("/run/netns")
SYSCTLS = Path("/proc/sys")


def state_directory() -> Path:
    """The directory of this user's sessions: /run/groundwire for root, else below
    XDG_RUNTIME_DIR."""
    if os.geteuid() == 0:
        return Path("/run/groundwire")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "groundwire" if runtime else Path(f"/tmp/groundwire-{os.geteuid()}")


def process_start(pid: int) -> int | None:
    """A process's start time in clock ticks since boot (field 22 of /proc/PID/stat); None: gone.

    With the id it names a process for good: ids are used again, start times are not.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@dataclass(frozen=True)
class Removal:
    """The outcome of a clean-up: what it removed and what it had to leave, in words."""

    removed: tuple[str, ...]
    left: tuple[str, ...]


class Session:
    """The objects of one session. Not thread-safe: one thread builds and tears down."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = directory / "owned.jsonl"

    @classmethod
    def create(cls, session_id: str | None = None, root: Path | None = None) -> Session:
        """A new session that this process owns. Raises FileExistsError when the id is taken, and
        NotOurs when others can write where sessions are."""
        name = session_id or secrets.token_hex(3)
        if not name.isalnum() or len(name) > 16:
            raise ValueError(f"session id {name!r}: expected at most 16 letters and digits")
        directory = (root or state_directory()) / name
        make_own_directory(directory.parent)
        # Filled under a hidden name first: a session without its owner would look abandoned.
        hidden = directory.with_name(f".{name}")
        hidden.mkdir(mode=0o755)
        owner = {"pid": os.getpid(), "start": process_start(os.getpid()), "at": time.time()}
        try:
            with open_own_file(hidden / "owner.json") as file:
                file.write(json.dumps(owner))
            if directory.exists():
                raise FileExistsError(f"there is a session {name} already, in {directory}")
            hidden.rename(directory)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        return cls(directory)

    @property
    def id(self) -> str:
        return self.directory.name

    @property
    def netns_directory(self) -> Path:
        """The directory in which the session's namespaces are mounted."""
        return self.directory / "netns"

    def _owner(self) -> dict[str, int]:
        try:
            owner: dict[str, int] = json.loads(read_own_file(self.directory / "owner.json"))
        except (OSError, ValueError):
            return {}
        return owner

    @property
    def owner_pid(self) -> int:
        """The process that made the session; 0 when that is not known."""
        return int(self._owner().get("pid", 0))

    def alive(self) -> bool:
        """Whether the process that made the session still runs."""
        owner = self._owner()
        start = process_start(int(owner.get("pid", 0)))
        return start is not None and start == owner.get("start")

    # -- recording ---------------------------------------------------------------------------------

    def record(self, *objects: Mapping[str, object]) -> None:
        """Writes objects down. Called before they are made."""
        with open_own_file(self._log) as file:
            file.write("".join(json.dumps(o, separators=(",", ":")) + "\n" for o in objects))

    def record_namespaces(self) -> None:
        """The mount under which the session's namespaces are."""
        self.record({"kind": "netns-mount", "path": str(self.netns_directory)})

    def record_links(self, links: dict[Path, Path]) -> None:
        """Symbolic links: where each is -> what it points to."""
        self.record(
            *({"kind": "symlink", "path": str(p), "target": str(t)} for p, t in links.items())
        )

    def record_directory(self, path: Path) -> None:
        """A directory that is about to be made and that others may use as well: it goes when it is
        empty."""
        self.record({"kind": "directory", "path": str(path)})

    def record_process(self, pid: int) -> None:
        """A process of ours. Recorded after its start, as its id is not known before."""
        self.record({"kind": "process", "pid": pid, "start": process_start(pid)})

    def change_sysctl(self, path: Path, value: str) -> None:
        """Changes a global sysctl until the session ends. Raises OSError.

        When a living session has changed it before, the value to go back to is the one from before
        that, whichever of the two ends first.
        """
        others = self._others_sysctls(path)
        before = str(others[0]["before"]) if others else path.read_text().strip()
        self.record({"kind": "sysctl", "path": str(path), "before": before, "after": value})
        path.write_text(value)

    def _others_sysctls(self, path: Path) -> list[dict[str, object]]:
        return [
            thing
            for session in sessions(self.directory.parent)
            if session.id != self.id and session.alive()
            for thing in session.owned()
            if thing.get("kind") == "sysctl" and thing.get("path") == str(path)
        ]

    def owned(self) -> list[dict[str, object]]:
        """The recorded objects in order. A line that a crash cut short is left out."""
        try:
            lines = read_own_file(self._log).splitlines()
        except FileNotFoundError:
            return []
        objects = []
        for line in lines:
            try:
                objects.append(json.loads(line))
            except ValueError:
                continue
        return objects

    # -- removing ----------------------------------------------------------------------------------

    def remove(self) -> Removal:
        """Undoes everything recorded, last first, then the directory. Can be called again."""
        removed: list[str] = []
        left: list[str] = []
        for pid in self._processes_inside():
            _kill(pid, process_start(pid))
            removed.append(f"process {pid} in a namespace of the session")
        for thing in reversed(self.owned()):
            try:
                done = self._undo(thing)
            except OSError as error:
                left.append(f"{_describe(thing)}: {error}")
                continue
            if done:
                removed.append(_describe(thing))
        if not left:
            shutil.rmtree(self.directory, ignore_errors=True)
        return Removal(tuple(removed), tuple(left))

    def _undo(self, thing: dict[str, object]) -> bool:
        path = Path(str(thing.get("path", "")))
        match thing.get("kind"):
            case "netns-mount":
                if path != self.netns_directory or not os.path.ismount(path):
                    return False
                namespaces.unmount(path)
                return True
            case "symlink":
                target = os.path.normpath(str(thing["target"]))
                if not Path(target).is_relative_to(self.directory):
                    return False
                if not path.is_symlink() or os.readlink(path) != thing["target"]:
                    return False
                path.unlink()
                return True
            case "process":
                return _kill(int(str(thing["pid"])), thing["start"])
            case "directory":
                if not path.is_dir() or any(path.iterdir()):
                    return False
                path.rmdir()
                return True
            case "rdma-device":
                return remove_rdma_device(str(thing["path"]))
            case "sysctl":
                return self._restore_sysctl(path, thing)
        return False

    def _restore_sysctl(self, path: Path, thing: dict[str, object]) -> bool:
        if not Path(os.path.normpath(path)).is_relative_to(SYSCTLS):
            raise NotOurs(f"{path} is no sysctl: not written")
        if sorted(path.read_text().split()) != sorted(str(thing["after"]).split()):
            return False  # somebody else has set it since
        others = self._others_sysctls(path)
        path.write_text(str(others[-1]["after"] if others else thing["before"]))
        return True

    def _processes_inside(self) -> list[int]:
        """Processes whose network namespace is one of the session's: they would keep it alive."""
        ours = set()
        try:
            for entry in os.scandir(self.netns_directory):
                status = entry.stat(follow_symlinks=False)
                ours.add((status.st_dev, status.st_ino))
        except FileNotFoundError:
            return []
        if not ours:
            return []
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                status = os.stat(f"/proc/{name}/ns/net")
            except OSError:
                continue
            if (status.st_dev, status.st_ino) in ours:
                found.append(int(name))
        return found


def sessions(root: Path | None = None) -> list[Session]:
    """All sessions on disk, of living processes and of dead ones. Raises NotOurs when somebody else
    could have written where they are."""
    directory = root or state_directory()
    found = []
    with suppress(FileNotFoundError), own_directory(directory) as entries:
        for name in sorted(os.listdir(entries)):
            with suppress(FileNotFoundError):  # it has just gone
                if stat.S_ISDIR(os.lstat(directory / name).st_mode):
                    with own_directory(directory / name):
                        found.append(Session(directory / name))
    return [session for session in found if (session.directory / "owner.json").is_file()]


def remove_dead() -> dict[str, Removal]:
    """Removes the sessions whose process has gone; those of living processes stay."""
    return {s.id: s.remove() for s in sessions() if not s.alive()}


@contextmanager
def none_left_by_an_interrupt() -> Iterator[None]:
    """Remove the sessions that this process has made in the block, where an interrupt ends it: a
    network may be up then, and nobody has been told yet to take it down."""
    before = {session.id for session in sessions()}
    try:
        yield
    except KeyboardInterrupt:
        for session in sessions():
            if session.id not in before and session.owner_pid == os.getpid():
                session.remove()
        raise


def _kill(pid: int, start: object) -> bool:
    """Kills the process, if it still is the one that started then. Raises PermissionError."""
    if start is None or process_start(pid) != start:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Asked again with the descriptor open: from here on the id cannot be somebody else's.
        if process_start(pid) != start:
            return False
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            raise NotOurs(f"process {pid} is another user's: not killed")
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _describe(thing: dict[str, object]) -> str:
    what = thing.get("path") or thing.get("pid")
    return f"{thing.get('kind')} {what}"
