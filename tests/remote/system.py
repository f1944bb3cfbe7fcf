"""Clean systems for hosts: Debian's and Ubuntu's, of which each has an ssh server, sudo and Python.

mmdebstrap makes them once and they are kept in the cache folder; a host works on a copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
MIRRORS = {"bookworm": _DEBIAN, "trixie": _DEBIAN, "sid": _DEBIAN, "jammy": UBUNTU, "noble": UBUNTU}
_PACKAGES = "apt,python3,sudo,dropbear-bin,iproute2,ca-certificates,procps"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_KEYRING = Path("usr/share/keyrings/ubuntu-archive-keyring.gpg")
# apt's words for a server that cannot be reached, or that has not what it should
_NO_MIRROR = re.compile(
    "Could not resolve|Temporary failure|Could not connect|Connection (failed|timed out|refused)"
    "|does not have a Release file"
)


def system_root(suite: str) -> Path:
    """The root of a clean system, which nobody may write to; a skip where it cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to have users in the system that is made")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, of the package mmdebstrap")
    cache = Path.home() / ".cache" / "groundwire" / "test-roots"
    options = ["--variant=minbase", f"--include={_PACKAGES}"]
    ubuntu = MIRRORS[suite] == UBUNTU
    if ubuntu:
        options += [f"--keyring={ubuntu_keyring(cache)}", "--components=main,universe"]
        options[1] += ",ubuntu-keyring"
    root = cache / f"{suite}-host"
    if not root.is_dir():
        made = made_system(cache, suite, options)
        # As installers write it; mmdebstrap names the keys as they lie here, and no updates.
        components = "main universe" if ubuntu else "main"
        (made / "etc" / "apt" / "sources.list").write_text(
            f"deb {MIRRORS[suite]} {suite} {components}\n"
            f"deb {MIRRORS[suite]} {suite}-updates {components}\n"
        )
        if CERTIFICATES.exists():
            shutil.copyfile(CERTIFICATES, made / CERTIFICATES.relative_to("/"))
        moved(made, root)
    return root


def ubuntu_keyring(cache: Path) -> Path:
    """Ubuntu's keys: this system's, or those of Debian's package, which apt has checked."""
    if (Path("/") / _KEYRING).exists():
        return Path("/") / _KEYRING
    place = cache / "ubuntu-keyring"
    if not place.is_dir():
        options = ["--variant=extract", "--include=ubuntu-keyring"]
        moved(made_system(cache, "trixie", options), place)
    return place / _KEYRING


def made_system(cache: Path, suite: str, options: list[str]) -> Path:
    """A system in a new folder of the cache; others may make the same one at the same time."""
    cache.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{suite}-part-", dir=cache))
    done = subprocess.run(
        ["mmdebstrap", *options, suite, str(place), MIRRORS[suite]], capture_output=True, text=True
    )
    if done.returncode != 0:
        shutil.rmtree(place)
        if _NO_MIRROR.search(done.stderr):
            pytest.skip(f"{MIRRORS[suite]} does not answer")
    assert done.returncode == 0, done.stderr[-3000:]
    place.chmod(0o755)
    return place


def moved(part: Path, place: Path) -> Path:
    """Put what is whole in its place, unless another process was first."""
    try:
        part.rename(place)
    except OSError:
        shutil.rmtree(part)
        assert place.is_dir()
    return place
