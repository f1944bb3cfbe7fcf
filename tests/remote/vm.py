"""A real virtual machine: Debian 12 with Debian's kernel in QEMU, reached by ssh.

Its disk is made once by debootstrap and kept in the cache folder; each machine works on a copy.
Packages come to it as to this machine, by QEMU's own network; Python's as wheels from here.

Its processor may be emulated, and then all is 10 to 20 times slower. So most of what `setup.sh`
asks for is on the disk: installing it takes a minute here and a quarter of an hour there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.remote.wheelhouse import make_wheels

_RESOLVER = "10.0.2.3"
_PACKAGES = (
    "systemd-sysv,udev,openssh-server,sudo,python3,ca-certificates,iproute2,kmod,initramfs-tools,"
    "linux-image-cloud-amd64"
)
_INSTALLED = (
    "python3-venv", "gcc", "libc6-dev", "make", "flex", "bison", "patch", "xz-utils", "libelf-dev",
    "libssl-dev", "libibverbs-dev", "ibverbs-providers", "linux-source-6.12",
)  # fmt: skip
"""The image's packages, which leave bc, g++ and iputils-ping for the playbook to install."""
_MIRROR = "http://deb.debian.org/debian"
_DISK = "12G"
_MEMORY_MB = 4096
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "debootstrap": "debootstrap",
    "mkfs.ext4": "e2fsprogs",
    "ssh-keygen": "openssh-client",
}


def missing() -> str | None:
    """The thing that this machine lacks for such machines, as the reason of a skip."""
    if os.geteuid() != 0:
        return "needs root for debootstrap"
    if sys.version_info[:2] != (3, 11):
        return "needs Python 3.11, as the machine has, for its wheels"
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            return f"needs {program}, of the package {package}"
    return None


class Vm:
    """Runs until `stop`. `worker` logs in with a key and has sudo without a password."""

    def __init__(self, directory: Path) -> None:
        self._image = _image(Path.home() / ".cache" / "groundwire" / "test-vm")
        self._directory = directory
        self.port = _free_port()
        self._wheels = make_wheels(directory / "wheels")
        self.accelerator = "kvm"
        # A machine that has /dev/kvm need not have one in which a kernel comes up.
        if not (os.access("/dev/kvm", os.W_OK) and self._start("kvm", 60)):
            self.accelerator = "tcg"
            assert self._start("tcg", 1200), (directory / "console").read_text()[-3000:]

    def _start(self, accelerator: str, patience_s: float) -> bool:
        """Whether its ssh server answers in time."""
        disk = self._directory / "disk.qcow2"
        disk.unlink(missing_ok=True)
        base = str(self._image / "disk.img")
        _quietly("qemu-img", "create", "-f", "qcow2", "-F", "raw", "-b", base, str(disk))
        cpu = "host,-arch-capabilities" if accelerator == "kvm" else "max"
        threads = "" if accelerator == "kvm" else ",thread=multi"
        with open(self._directory / "console", "wb") as console:
            self._process = subprocess.Popen(
                [
                    "qemu-system-x86_64", "-accel", accelerator + threads, "-cpu", cpu,
                    "-smp", "2", "-m", str(_MEMORY_MB), "-nographic", "-no-reboot",
                    "-kernel", str(self._image / "vmlinuz"),
                    "-initrd", str(self._image / "initrd.img"),
                    "-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0",
                    "-drive", f"file={disk},if=virtio,cache=unsafe",
                    "-netdev", f"user,id=n,hostfwd=tcp:127.0.0.1:{self.port}-:22",
                    "-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
                ],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(1)
        self.stop()
        return False

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.settimeout(5)
                return connection.recv(3) == b"SSH"
        except OSError:
            return False

    def entry(self) -> dict[str, object]:
        """This machine in an inventory."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "worker",
            "ansible_ssh_private_key_file": str(self._image / "key"),
            "ansible_ssh_common_args": (
                "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
                "-o IdentitiesOnly=yes -o ConnectTimeout=120 -o ControlPersist=1h"
            ),
            "ansible_timeout": 120,
            "groundwire_wheels": str(self._wheels),
            # pip compiles nothing (by its "0"): an emulated processor takes minutes for that.
            "groundwire_environment": {"PIP_NO_COMPILE": "0"},
        }

    def says(self, command: str) -> str:
        """The output of a command at the machine."""
        return subprocess.run(
            ["ssh", "-i", str(self._image / "key"), "-p", str(self.port), "-o",
             "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
             "LogLevel=ERROR", "worker@127.0.0.1", command],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip

    def stop(self) -> None:
        """End it; QEMU writes its disk out."""
        self._process.terminate()
        self._process.wait()


def _image(cache: Path) -> Path:
    """A directory with disk.img, vmlinuz, initrd.img and key."""
    image = cache / "bookworm-2"  # counts up when what is on the disk changes
    if image.is_dir():
        return image
    part = cache / "bookworm-2.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    root = part / "root"
    _quietly("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm",
             str(root), _MIRROR)  # fmt: skip
    _quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(part / "key"))
    _configure(root, (part / "key.pub").read_text())
    _install(root)
    for name in ("vmlinuz", "initrd.img"):
        (found,) = (root / "boot").glob(f"{name}-*")
        shutil.copyfile(found, part / name)
    _quietly("mkfs.ext4", "-q", "-d", str(root), str(part / "disk.img"), _DISK)
    shutil.rmtree(root)
    part.rename(image)
    return image


def _configure(root: Path, key: str) -> None:
    security = "http://deb.debian.org/debian-security"
    files = {
        "etc/hostname": "groundwire-vm\n",
        "etc/hosts": "127.0.0.1 localhost groundwire-vm\n",
        "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
        "etc/systemd/network/eth0.network": "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n",
        "etc/apt/sources.list": f"deb {_MIRROR} bookworm main\n"
        f"deb {_MIRROR} bookworm-updates main\ndeb {security} bookworm-security main\n",
        "etc/sudoers.d/worker": "worker ALL=(ALL:ALL) NOPASSWD: ALL\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if _CERTIFICATES.exists():
        shutil.copyfile(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"))
    _quietly("chroot", str(root), "useradd", "-m", "-s", "/bin/bash", "worker")
    _quietly("chroot", str(root), "systemctl", "enable", "systemd-networkd", "ssh")
    ssh = root / "home" / "worker" / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "authorized_keys").write_text(key)
    owner = (root / "home" / "worker").stat()
    for path in (ssh, ssh / "authorized_keys"):
        os.chown(path, owner.st_uid, owner.st_gid)


def _install(root: Path) -> None:
    """With this machine's network, and then its own."""
    resolver = root / "etc" / "resolv.conf"
    shutil.copyfile("/etc/resolv.conf", resolver)
    apt = ("chroot", str(root), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y")
    _quietly(*apt, "update")
    _quietly(*apt, "install", "--no-install-recommends", *_INSTALLED)
    _quietly(*apt, "clean")
    resolver.write_text(f"nameserver {_RESOLVER}\n")


def _quietly(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-1000:]}"


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
