"""Network namespaces: made by unshare, kept by bind mounts, entered by setns.

The mounts stand in one private tmpfs per session, so that a session's namespaces, however many,
are let go by one unmount. Links in /run/netns make them visible to `ip netns`.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_MS_SLAVE = 1 << 19
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""Characters of mount points that /proc/self/mountinfo writes otherwise (proc(5))."""
_OWN = "/proc/thread-self/ns/net"
_OWN_IPC = "/proc/thread-self/ns/ipc"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount_tmpfs(directory: Path) -> None:
    """Mounts a private tmpfs on `directory`. Raises OSError."""
    path = os.fsencode(directory)
    _check(
        _libc.mount(b"groundwire", path, b"tmpfs", 0, b"mode=0755,size=100%"),
        f"mount tmpfs on {directory}",
    )
    _check(_libc.mount(None, path, None, _MS_PRIVATE, None), f"make {directory} private")


def mount_writable_layer(directory: Path, layer: Path) -> Path:
    """Has what is written below `directory`, which may be read-only, go into the empty directory
    `layer`; returns where in it. Raises OSError."""
    lower, upper, work = (layer / name for name in ("lower", "upper", "work"))
    for made in (lower, upper, work):
        made.mkdir()
    owner = directory.stat()
    os.chown(upper, owner.st_uid, owner.st_gid)
    upper.chmod(owner.st_mode & 0o7777)
    _bind(lower, directory)  # the layers' names may not have all characters
    options = f"lowerdir={lower},upperdir={upper},workdir={work}".encode()
    _check(
        _libc.mount(b"overlay", os.fsencode(directory), b"overlay", 0, options),
        f"mount a writable layer on {directory}",
    )
    return upper


def mount_of_the_machine(directory: bytes, place: str) -> None:
    """In a guest: mounts a directory of the machine below on `place`. Raises OSError."""
    mounted = _libc.mount(b"none", os.fsencode(place), b"hostfs", 0, directory)
    _check(mounted, f"mount {os.fsdecode(directory)} of the machine")


@contextmanager
def mounted_sysfs(directory: Path) -> Iterator[None]:
    """The sysfs of the calling thread's network namespace is at `directory` inside the block."""
    path = os.fsencode(directory)
    _check(_libc.mount(b"sysfs", path, b"sysfs", 0, None), f"mount sysfs on {directory}")
    try:
        yield
    finally:
        unmount(directory)


def unmount(directory: Path) -> None:
    """Detaches the mount on `directory` and all below it. Raises OSError."""
    _check(
        _libc.umount2(os.fsencode(directory), _MNT_DETACH | _UMOUNT_NOFOLLOW),
        f"unmount {directory}",
    )


def enter_descriptor(descriptor: int) -> None:
    """Moves the calling thread into the network namespace behind an open file. Raises OSError."""
    _check(_libc.setns(descriptor, CLONE_NEWNET), "enter a network namespace")


def enter(path: Path) -> None:
    """Moves the calling thread into the network namespace at `path` for good. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_descriptor(descriptor)
    finally:
        os.close(descriptor)


def cover_file(covered: Path, by: Path) -> None:
    """Shows this process, and those that it starts, the file `by` at the path `covered`.

    The mount is private to a mount namespace of its own and ends with it. Raises OSError.
    """
    _own_mounts()
    _bind(covered, by)


@dataclass(frozen=True, slots=True)
class HostPlace:
    """All that makes a process one of a host's: the files of the host's namespaces, of its network
    and of System V's shared memory, and `covers`, path -> the file or directory seen there."""

    netns: Path
    ipc: Path
    covers: Mapping[Path, Path]


def become_host(name: str, place: HostPlace) -> None:
    """Gives this process, and those that it starts, the namespaces and the name of a host, the
    sysfs of its network, and what `place` covers, of paths that there are. Raises OSError."""
    enter(place.netns)
    descriptor = os.open(place.ipc, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, _CLONE_NEWIPC), f"enter the IPC namespace of {name}")
    finally:
        os.close(descriptor)
    _check(_libc.unshare(_CLONE_NEWUTS), "unshare the host name")
    socket.sethostname(name)
    _own_mounts()
    _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None), "mount the host's own sysfs")
    for covered, by in place.covers.items():
        if covered.exists():
            _bind(covered, by, recursive=True)


def create_ipc(path: Path) -> None:
    """Makes a namespace of System V's shared memory, semaphores and queues, bind mounted at `path`.
    The calling thread stays in its own. Raises OSError; the mount goes with the parent mount."""
    own = os.open(_OWN_IPC, os.O_RDONLY | os.O_CLOEXEC)
    try:
        path.touch(exist_ok=False)
        _check(_libc.unshare(_CLONE_NEWIPC), f"make an IPC namespace for {path}")
        try:
            _bind(path, Path(_OWN_IPC))
        finally:
            _check(_libc.setns(own, _CLONE_NEWIPC), "return from an IPC namespace")
    finally:
        os.close(own)


def _own_mounts() -> None:
    _check(_libc.unshare(_CLONE_NEWNS), "unshare the mounts")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "make the mounts private")


def show_mounts_below(directory: Path, into: Path) -> None:
    """Shows what is mounted below `directory` in an empty directory, too. Raises OSError."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split()[4]))
        if directory in point.parents:
            show(point, into / point.relative_to(directory))


def show(point: Path, at: Path) -> None:
    """Shows a directory or a file at another place, which is made. Raises OSError."""
    if point.is_dir():
        at.mkdir(parents=True, exist_ok=True)
    else:
        at.parent.mkdir(parents=True, exist_ok=True)
        at.touch()
    _bind(at, point)


def _bind(covered: Path, by: Path, *, recursive: bool = False) -> None:
    flags = _MS_BIND | (_MS_REC if recursive else 0)
    _check(
        _libc.mount(os.fsencode(by), os.fsencode(covered), None, flags, None),
        f"mount {by} on {covered}",
    )


@contextmanager
def home() -> Iterator[None]:
    """Brings the calling thread back, at the end, to the namespace in which it is now."""
    descriptor = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            enter_descriptor(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def entered(path: Path) -> Iterator[None]:
    """The calling thread is in the namespace at `path` for the length of the block.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with home():
            enter_descriptor(descriptor)
            yield
    finally:
        os.close(descriptor)


def create(paths: Iterable[Path], configure: Callable[[Path], None]) -> list[int]:
    """Makes one namespace per path, bind mounted there; returns open descriptors in the same order.

    `configure(path)` is called inside each new namespace. The calling thread is back in its own
    namespace afterwards. Raises OSError; what was made until then stays mounted and goes with the
    parent mount.
    """
    source = os.fsencode(_OWN)
    descriptors: list[int] = []
    try:
        with home():
            for path in paths:
                target = os.fsencode(path)
                os.close(
                    os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
                )
                _check(_libc.unshare(CLONE_NEWNET), f"make a network namespace for {path.name}")
                _check(_libc.mount(source, target, None, _MS_BIND, None), f"mount {path}")
                descriptors.append(os.open(target, os.O_RDONLY | os.O_CLOEXEC))
                configure(path)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors


def own_network() -> None:
    """In a child: it has a new, empty network namespace, in a user namespace where it is not root.
    Raises PermissionError."""
    if _libc.unshare(CLONE_NEWNET) == 0:
        return
    if _libc.unshare(_CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise PermissionError("network namespaces need root, and this machine gives users none")


@contextmanager
def scratch() -> Iterator[None]:
    """The calling thread is in a new, empty namespace, which lives no longer than what the block
    opens in it. Raises OSError."""
    with home():
        _check(_libc.unshare(CLONE_NEWNET), "make a network namespace")
        yield


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Room for `count` more open files than usual in this process. Raises OSError when the hard
    limit forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise OSError(
                f"{wanted} open files are needed, the limit is {hard}: raise it with `ulimit -Hn`"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
