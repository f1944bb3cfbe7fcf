"""Clean systems for hosts: Debian's and Ubuntu's, of which each has an ssh server, sudo and Python.

mmdebstrap makes them once and they are kept in the cache folder; a host works on a copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_DEBIAN, _UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
SYSTEMS = {"bookworm": _DEBIAN, "trixie": _DEBIAN, "jammy": _UBUNTU, "noble": _UBUNTU}
_PACKAGES = "apt,python3,sudo,dropbear-bin,iproute2,ca-certificates,procps"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_KEYRING = Path("usr/share/keyrings/ubuntu-archive-keyring.gpg")


def system_root(suite: str) -> Path:
    """The root of a clean system, which nobody may write to; a skip where it cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to have users in the system that is made")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, of the package mmdebstrap")
    cache = Path.home() / ".cache" / "groundwire" / "test-roots"
    options = ["--variant=minbase", f"--include={_PACKAGES}"]
    ubuntu = SYSTEMS[suite] == _UBUNTU
    if ubuntu:
        options += [f"--keyring={_ubuntu_keyring(cache)}", "--components=main,universe"]
        options[1] += ",ubuntu-keyring"
    root = cache / f"{suite}-host"
    if not root.is_dir():
        made = _made(cache, suite, options)
        # As installers write it; mmdebstrap names the keys as they lie here, and no updates.
        components = "main universe" if ubuntu else "main"
        (made / "etc" / "apt" / "sources.list").write_text(
            f"deb {SYSTEMS[suite]} {suite} {components}\n"
            f"deb {SYSTEMS[suite]} {suite}-updates {components}\n"
        )
        if _CERTIFICATES.exists():
            shutil.copyfile(_CERTIFICATES, made / _CERTIFICATES.relative_to("/"))
        _moved(made, root)
    return root


def _ubuntu_keyring(cache: Path) -> Path:
    """Ubuntu's keys: this system's, or those of Debian's package, which apt has checked."""
    if (Path("/") / _KEYRING).exists():
        return Path("/") / _KEYRING
    place = cache / "ubuntu-keyring"
    if not place.is_dir():
        _moved(_made(cache, "trixie", ["--variant=extract", "--include=ubuntu-keyring"]), place)
    return place / _KEYRING


def _made(cache: Path, suite: str, options: list[str]) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{suite}-part-", dir=cache))
    done = subprocess.run(
        ["mmdebstrap", *options, suite, str(place), SYSTEMS[suite]], capture_output=True, text=True
    )
    if done.returncode != 0:
        shutil.rmtree(place)
        pytest.skip(f"{SYSTEMS[suite]} gives no {suite}: {done.stderr[-300:]}")
    place.chmod(0o755)
    return place


def _moved(part: Path, place: Path) -> None:
    """Put what is whole in its place, unless another process was first."""
    try:
        part.rename(place)
    except OSError:
        shutil.rmtree(part)
        assert place.is_dir()
