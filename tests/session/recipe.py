"""A Containerfile, read, and its steps done in a clean system as a builder of images would."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.remote.system import CERTIFICATES

_DROPPED = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
_SHM_BYTES = 64 << 20
"""The size of /dev/shm that containers have by default."""
_CERTIFICATES = "/run/certificates.crt"
"""This machine's: its way to the index may have one of its own."""
_PLAIN_ROOT = f"""
root=$1; shift
mount --bind /dev "$root/dev"
mount -t tmpfs -o size={_SHM_BYTES},mode=1777 shm "$root/dev/shm"
mount -t proc proc "$root/proc"
for file in /etc/resolv.conf:/etc/resolv.conf {CERTIFICATES}:{_CERTIFICATES}; do
    [ -e "${{file%%:*}}" ] || continue
    [ -e "$root${{file##*:}}" ] || touch "$root${{file##*:}}"
    mount --bind "${{file%%:*}}" "$root${{file##*:}}"
done
exec chroot "$root" "$@"
"""
_SUITES = {
    "debian:bookworm": "bookworm",
    "debian:bookworm-slim": "bookworm",
    "ubuntu:24.04": "noble",
}


@dataclass(frozen=True)
class Step:
    """An instruction and what follows it, continued lines joined."""

    name: str
    text: str


def steps_of(recipe: Path) -> list[Step]:
    """The instructions of a Containerfile, in order."""
    lines = [line for line in recipe.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Step(name, text) for name, text in found]


def suite_of(steps: list[Step]) -> str:
    """The suite that mmdebstrap makes for the image that a recipe begins with."""
    assert steps[0].name == "FROM"
    return _SUITES[steps[0].text.rpartition("library/")[2]]


class System:
    """A root file system in which a recipe's steps are done."""

    def __init__(self, root: Path, context: Path) -> None:
        """`context` is the folder that COPY reads. The system gets a file of hosts, as engines give
        each container one."""
        (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        self.root, self.context = root, context
        self.user, self.directory = "root", "/"
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        self.command: list[str] = []

    def build(self, steps: list[Step]) -> None:
        """Do the steps. Raises AssertionError with what a command said."""
        for step in steps[1:]:
            if step.name == "RUN":
                done = self.run(["sh", "-c", step.text], building=True)
                assert done.returncode == 0, (
                    f"{step.text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
                )
            elif step.name == "COPY":
                *sources, to = shlex.split(step.text)
                place = self.root / to.lstrip("/")
                place.mkdir(parents=True, exist_ok=True)
                found = [path for source in sources for path in self.context.glob(source)]
                assert found, f"COPY {step.text}: nothing in {self.context}"
                for path in found:
                    shutil.copyfile(path, place / path.name)
            elif step.name == "ENV":
                name, _, value = step.text.partition("=")
                self.environment[name] = value
            elif step.name == "USER":
                self.user = step.text
            elif step.name == "WORKDIR":
                self.directory = step.text
            elif step.name == "CMD":
                self.command = json.loads(step.text)
            else:
                raise AssertionError(f"no such step here: {step.name}")

    def run(
        self, argv: list[str], *, building: bool = False, timeout_s: float = 3000
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the recipe's user: of the image being built, with what such a user may
        do there, else in a container, where nobody has a capability.

        An image is built in a plain root: bubblewrap lets nobody gain a right, and sudo is one.
        """
        names = {
            "PIP_FIND_LINKS",
            "PIP_INDEX_URL",
            "PIP_EXTRA_INDEX_URL",
            "PIP_CERT",
            "SSL_CERT_FILE",
        }
        passed = {name: value for name, value in os.environ.items() if name in names}
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        variables = {**passed, **self.environment, "HOME": home}
        certificates = [str(CERTIFICATES), _CERTIFICATES] if CERTIFICATES.exists() else []
        if certificates:
            variables["PIP_CERT"] = _CERTIFICATES
        as_user = [] if self.user == "root" else ["setpriv", *self._ids()]
        if building:
            words = [f"{name}={value}" for name, value in variables.items()]
            inside = ["env", "-i", "-C", self.directory, *words, *as_user, *argv]
            command = ["unshare", "--mount", "--pid", "--kill-child"]
            command += ["sh", "-euc", _PLAIN_ROOT, "sh", str(self.root), *inside]
            return subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        as_user += _DROPPED
        command = [
            *("bwrap", "--bind", str(self.root), "/", "--dev", "/dev", "--proc", "/proc"),
            *("--size", str(_SHM_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf", "--unshare-pid"),
            *(["--ro-bind", *certificates] if certificates else []),
            *("--cap-add", "ALL", "--chdir", self.directory, "--clearenv"),
            *(word for pair in variables.items() for word in ("--setenv", *pair)),
            *("--", *as_user, *argv),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def _ids(self) -> list[str]:
        lines = (line.split(":") for line in (self.root / "etc/passwd").read_text().splitlines())
        uid, gid = next((found[2], found[3]) for found in lines if found[0] == self.user)
        return [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
