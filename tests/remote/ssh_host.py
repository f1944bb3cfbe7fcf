"""Hosts to log in to: an ssh server on this machine, with processes and a home of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from emulator.virtual.building.cache import kernel_cache
from tests.session.command import ROOT

_SERVER = "/usr/sbin/dropbear"


def missing() -> str | None:
    """What this machine lacks for such hosts, as the reason of a skip."""
    if os.geteuid() != 0:
        return "needs root to make a host with processes of its own"
    for program, package in ((_SERVER, "dropbear-bin"), ("ssh", "openssh-client")):
        if shutil.which(program) is None:
            return f"needs {program}, of the package {package}"
    isolated = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False)
    return None if isolated.returncode == 0 else "this kernel refuses to make namespaces"


class SshHost:
    """root logs in with `key`, has `home` as its home, and there this clone as the application,
    unless it is `bare`."""

    def __init__(self, directory: Path, *, bare: bool = False) -> None:
        self.home = directory / "home"
        self.port = _free_port()
        self.key = directory / "key"
        (self.home / ".ssh").mkdir(parents=True)
        if not bare:
            app, cache = self.home / "groundwire" / "app", self.home / ".cache" / "groundwire"
            app.mkdir(parents=True)
            cache.mkdir(parents=True)
            (app / ".venv").symlink_to(sys.prefix)
            (cache / "kernel").symlink_to(kernel_cache())
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        authorized = self.home / ".ssh" / "authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        for private in (self.home, authorized.parent, authorized):
            private.chmod(0o700)
        users = directory / "passwd"
        users.write_text(f"root:x:0:0:root:{self.home}:/bin/bash\n")
        known_by = directory / "server-key"
        subprocess.run(
            ["dropbearkey", "-t", "ed25519", "-f", known_by], check=True, capture_output=True
        )
        server = f"{_SERVER} -F -E -s -r {known_by} -P {directory}/server.pid"
        inside = f"mount --bind {users} /etc/passwd && exec {server} -p 127.0.0.1:{self.port}"
        isolate = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        with open(directory / "server.log", "wb") as log:
            self._process = subprocess.Popen(
                [*isolate, "bash", "-c", inside],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline and self._process.poll() is None
                time.sleep(0.05)

    def entry(self, key: Path | None = None) -> dict[str, object]:
        """This host in an inventory."""
        options = (
            "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
        )
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(key or self.key),
            "ansible_ssh_common_args": options,
            "ansible_ssh_transfer_method": "piped",  # the server has no sftp
            "ansible_python_interpreter": sys.executable,
        }

    def die(self) -> None:
        """As with the power cut."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
