"""Hosts to log in to: an ssh server on this machine, with processes, a network, users and a home of
its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emulator.virtual.building.cache import kernel_cache
from tests.session.command import ROOT

_SERVER = "/usr/sbin/dropbear"
_PATIENCE_S = 60
_HOME = "/home"
PASSWORD = "groundwire"
_HASH = (  # of PASSWORD: openssl passwd -6 -salt groundwire
    "$6$groundwire$NDJykZaLqDxQGUsSFsXb0BQ46EiN0AvbS7Z.kkbnXeiOWi"
    "jvDx.HEtLDwxwHUT/Lz0IBvuVuRGAbs44JiOJ4x0"
)
Sudo = Literal["none", "free", "password"]


def missing() -> str | None:
    """The thing that this machine lacks for such hosts, as the reason of a skip."""
    if os.geteuid() != 0:
        return "needs root to make a host with processes of its own"
    for program, package in (
        (_SERVER, "dropbear-bin"),
        ("ssh", "openssh-client"),
        ("ip", "iproute2"),
    ):
        if shutil.which(program) is None:
            return f"needs {program}, of the package {package}"
    isolated = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "true"], check=False
    )
    return None if isolated.returncode == 0 else "this kernel refuses to make namespaces"


def missing_for_users() -> str | None:
    """The thing that is missing for hosts with a user that is not root, as the reason of a skip."""
    if shutil.which("sudo") is None:
        return "needs sudo"
    closed = _closed_above(ROOT / "groundwire") or _closed_above(Path(sys.prefix) / "bin")
    return f"{closed} is closed to other users" if closed else missing()


@dataclass(frozen=True, slots=True)
class User:
    """The user that logs in. `sudo`: not at all, without a password, or with `PASSWORD`."""

    name: str = "root"
    number: int = 0
    sudo: Sudo = "none"


ROOT_USER = User()


class SshHost:
    """`user` logs in with `key`; `home` is their home, and there this clone as the application,
    unless the host is `bare`. It has no way to other machines, and does not see the directory above
    `directory`; a bare one has this machine's network, for packages. `runs_disk` is the room for
    runs, such as 1M. `system` is the root of another system (`system_root`), of which the host has
    a copy; else it has this machine's. There `user` is not root."""

    def __init__(
        self,
        directory: Path,
        *,
        user: User = ROOT_USER,
        bare: bool = False,
        runs_disk: str | None = None,
        system: Path | None = None,
    ) -> None:
        self.user = user
        self._system = system
        self.home = directory / "home"
        self.key = directory / "key"
        self._directory = directory
        (self.home / ".ssh").mkdir(parents=True)
        if not bare:
            self._install()
        self._let_in()
        self._write_users()
        self.address, self.port = ("127.0.0.1", _free_port()) if bare else ("0.0.0.0", 22)
        self._start(bare, runs_disk)
        if not bare:
            self.address = self._connect()
        self._wait()

    @property
    def process(self) -> int:
        """That all others of the host descend from."""
        return self._process.pid

    @property
    def app(self) -> str:
        """The directory of the application, as the host sees it."""
        return f"{_HOME}/groundwire/app"

    @property
    def gateway(self) -> str:
        """This machine's address as the host sees it."""
        return _addresses(self.process)[0]

    def _install(self) -> None:
        app, cache = self.home / "groundwire" / "app", self.home / ".cache" / "groundwire"
        app.mkdir(parents=True)
        (self.home / "groundwire" / "runs").mkdir()
        (app / ".venv").symlink_to(sys.prefix)
        shutil.copytree(
            kernel_cache(), cache / "kernel", ignore=shutil.ignore_patterns("tree-*", "source")
        )

    def _let_in(self) -> None:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        authorized = self.home / ".ssh" / "authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        subprocess.run(
            ["dropbearkey", "-t", "ed25519", "-f", self.home / ".server-key"],
            check=True,
            capture_output=True,
        )
        for private in (self.home, authorized.parent, authorized):
            private.chmod(0o700)
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, self.user.number, self.user.number, follow_symlinks=False)

    def _write_users(self) -> None:
        name, number = self.user.name, self.user.number
        also = "" if number == 0 else "root:x:0:0:root:/root:/bin/bash\n"
        files = {
            "passwd": f"{also}{name}:x:{number}:{number}::{_HOME}:/bin/bash\n",
            "group": f"root:x:0:\nshadow:x:42:\ntty:x:5:\nutmp:x:43:\n{name}:x:{number}:\n"
            if number
            else "root:x:0:\nshadow:x:42:\ntty:x:5:\nutmp:x:43:\n",
            "shadow": f"root:*:1::::::\n{name}:{_HASH}:1::::::\n" if number else "root:*:1::::::\n",
            "sudoers": {
                "none": "",
                "free": f"{name} ALL=(ALL:ALL) NOPASSWD: ALL\n",
                "password": f"{name} ALL=(ALL:ALL) ALL\n",
            }[self.user.sudo],
        }
        etc = self._directory / "etc"
        etc.mkdir()
        for file, text in files.items():
            (etc / file).write_text(text)
            (etc / file).chmod(0o440 if file == "sudoers" else 0o644)

    def _start(self, bare: bool, runs_disk: str | None) -> None:
        script = [
            # Semaphores of processes that are killed with the host stay in it, as on a real one.
            "mount -t tmpfs -o mode=1777 shm /dev/shm",
            *(self._enter_users() if self._system is None else self._mount(self._system)),
        ]
        if runs_disk is not None:
            script.append(
                f"mount -t tmpfs -o size={runs_disk},uid={self.user.number},mode=755 "
                f"runs {_HOME}/groundwire/runs"
            )
        if not bare:
            script.append(f"mount -t tmpfs -o mode=755 hidden {self._directory.parent}")
        enter = "" if self._system is None else f"chroot {self._root} "
        script.append(
            f"exec {enter}{_SERVER} -F -E -s -r {_HOME}/.server-key -P {_HOME}/.server.pid "
            f"-p {self.address}:{self.port}"
        )
        namespaces = ["--mount", "--pid", "--uts", *([] if bare else ["--net"])]
        with open(self._directory / "server.log", "wb") as log:
            self._process = subprocess.Popen(
                ["unshare", *namespaces, "--fork", "--mount-proc", "--kill-child", "bash", "-ec",
                 " && ".join(script)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )  # fmt: skip

    @property
    def _root(self) -> Path:
        return self._directory / "root"

    def _enter_users(self) -> list[str]:
        """This machine's system with the host's users and home."""
        return [
            *self._open_python(),
            f"for f in passwd group shadow sudoers; do if [ -e /etc/$f ];"
            f" then mount --bind {self._directory}/etc/$f /etc/$f; fi; done",
            f"mount --bind {self.home} {_HOME}",
        ]

    def _mount(self, system: Path) -> list[str]:
        """Another system, with its own users and ours, and this machine's devices, resolver and
        kernel source."""
        etc, root = self._directory / "etc", self._root
        for name in ("root", "upper", "work"):
            (self._directory / name).mkdir()
        layers = ",".join(
            f"{kind}dir={place}"
            for kind, place in (
                ("lower", system),
                ("upper", self._directory / "upper"),
                ("work", self._directory / "work"),
            )
        )
        return [
            f"mount -t overlay -o {layers} system {root}",
            *(
                f"grep ^{self.user.name}: {etc}/{file} >>{root}/etc/{file}"
                for file in ("passwd", "shadow", "group")
            ),
            f"cat {etc}/sudoers >>{root}/etc/sudoers",
            f"mount --bind {self.home} {root}{_HOME}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"rm -f {root}/etc/resolv.conf",
            f"cp -L /etc/resolv.conf /etc/hosts {root}/etc/",
            f"mount --bind /usr/src {root}/usr/src",
        ]

    def _open_python(self) -> list[str]:
        """At the host Python is open to all, where here it is in a home of root's."""
        base = sys.base_prefix
        closed = _closed_above(Path(base) / "bin")
        if closed is None:
            return []
        aside = self._directory / "python"
        aside.mkdir()
        return [
            f"mount --bind {base} {aside}",
            f"mount -t tmpfs -o mode=755 opened {closed}",
            f"mkdir -p {base}",
            f"mount --bind {aside} {base}",
        ]

    def _connect(self) -> str:
        """A cable from here to the host, and a route back. It goes with the host."""
        ours = os.readlink("/proc/self/ns/net")
        self._until(lambda: os.readlink(f"/proc/{self.process}/ns/net") != ours)
        here, there = _addresses(self.process)
        name = f"gwh{self.process}"
        inside = ["nsenter", "-t", str(self.process), "-n", "ip"]
        peer = ["peer", "name", "eth0", "netns", str(self.process)]
        for command in (
            ["ip", "link", "add", name, "type", "veth", *peer],
            ["ip", "address", "add", f"{here}/30", "dev", name],
            ["ip", "link", "set", name, "up"],
            [*inside, "link", "set", "lo", "up"],
            [*inside, "address", "add", f"{there}/30", "dev", "eth0"],
            [*inside, "link", "set", "eth0", "up"],
            [*inside, "route", "add", "default", "via", here],
        ):
            subprocess.run(command, check=True)
        return there

    def _wait(self) -> None:
        def answers() -> bool:
            try:
                socket.create_connection((self.address, self.port), 1).close()
            except OSError:
                return False
            return True

        self._until(answers)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            said = (self._directory / "server.log").read_text()
            assert time.monotonic() < deadline and self._process.poll() is None, said
            time.sleep(0.05)

    def entry(self, key: Path | None = None) -> dict[str, object]:
        """This host in an inventory."""
        return {
            "ansible_host": self.address,
            "ansible_port": self.port,
            "ansible_user": self.user.name,
            "ansible_ssh_private_key_file": str(key or self.key),
            "ansible_ssh_common_args": " ".join(_OPTIONS),
            "ansible_ssh_transfer_method": "piped",  # the server has no sftp
            "ansible_python_interpreter": (
                sys.executable if self._system is None else "/usr/bin/python3"
            ),
        }

    def ssh(self, *command: str) -> subprocess.Popen[str]:
        """A command at the host, started over ssh."""
        to = ["-i", str(self.key), "-p", str(self.port), f"{self.user.name}@{self.address}"]
        return subprocess.Popen(
            ["ssh", *_OPTIONS, *to, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def die(self) -> None:
        """As with the power cut."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


_OPTIONS = (
    "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR",
)  # fmt: skip


def _closed_above(path: Path) -> Path | None:
    """The first directory on the way to a path that other users cannot pass."""
    return next((p for p in reversed(path.parents) if not p.stat().st_mode & 0o001), None)


def _addresses(process: int) -> tuple[str, str]:
    """The addresses of both ends of a host's cable, out of 198.18.0.0/15, which is for tests (RFC
    2544)."""
    first = (198 << 24) + (18 << 16) + process % 2**15 * 4
    here, there = (socket.inet_ntoa((first + end).to_bytes(4, "big")) for end in (1, 2))
    return here, there


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
