"""Environments of programs that are none of our packages, for tests marked `long`.

    python -m testing.foreign_programs [NAME...]

makes them, or some of them, in `GROUNDWIRE_PROGRAMS`, by default below the user's cache folder.
Environments that are there already stay. An environment with torch has Groundwire's own, by links.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.cache_folder import cache_folder

_TORCH = ("torch", "torch-*.dist-info", "torchgen", "functorch")


@dataclass(frozen=True)
class Environment:
    """`pip` are packages of PyPI for an environment of Python, `debian` packages that are unpacked.
    With `torch` it has Groundwire's, with `own_torch` the one that `pip` names, which may have
    gigabytes for accelerators where GROUNDWIRE_TORCH_INDEX names no other."""

    pip: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    torch: bool = False
    own_torch: bool = False


ENVIRONMENTS = {
    "messages": Environment(
        (
            "dask==2026.8.0", "distributed==2026.8.0", "xgboost-cpu==3.2.0", "lightgbm==4.7.0",
            "grpcio==1.85.3", "pyzmq==27.3.0", "nats-py==2.16.0", "redis==8.1.0", "flwr==1.42.0",
        )
    ),
    "servers": Environment(
        (
            "rpyc==6.0.2", "pyro5==5.17", "aiohttp==3.14.5", "websockets==17.4",
            "ipyparallel==9.2.0",
        )
    ),
    "mpi": Environment(("mpi4py==4.1.2", "mpich==5.0.2", "numpy==2.4.6")),
    "openmpi": Environment(("mpi4py==4.1.2", "numpy==2.4.6")),
    "tensorflow": Environment(("tensorflow-cpu==2.21.0",)),
    "torch": Environment(("accelerate==1.15.0", "lightning==2.6.6"), torch=True),
    "oldest-torch": Environment(("torch==2.6.0",), own_torch=True),
    "torch-2.7": Environment(("torch==2.7.1",), own_torch=True),
    "torch-2.8": Environment(("torch==2.8.0",), own_torch=True),
    "newest-torch": Environment(("torch==2.15.0",), own_torch=True),
    "deepspeed": Environment(("deepspeed==0.19.8",), torch=True),
    "jax": Environment(("jax[cpu]==0.10.2",)),
    "ray": Environment(("ray==2.60.0",)),
    "torchft": Environment(("torchft==0.2.0",), torch=True),
    "nvflare": Environment(("nvflare==2.9.0",)),
    "mooncake": Environment(("mooncake-transfer-engine-non-cuda==0.3.13.post1",)),
    "debian": Environment(
        debian=(
            "redis-server", "redis-tools", "nats-server", "liblzf1", "libjemalloc2",
            "liblua5.1-0", "lua-bitop", "lua-cjson", "libatomic1", "etcd-server", "etcd-client",
            "memcached", "libevent-2.1-7", "mosquitto", "mosquitto-clients", "libmosquitto1",
            "libwebsockets17", "libcjson1", "libdlt2", "socat",
        )
    ),
}  # fmt: skip


def programs_folder() -> Path:
    """The folder of environments. Raises NoCacheFolder for a user without a home."""
    named = os.environ.get("GROUNDWIRE_PROGRAMS")
    return Path(named) if named else cache_folder("programs", "programs of others")


def make(name: str, folder: Path) -> None:
    """Makes an environment of ENVIRONMENTS. Raises CalledProcessError."""
    environment, place = ENVIRONMENTS[name], folder / name
    place.mkdir(parents=True, exist_ok=True)
    if environment.debian:
        subprocess.run(["apt-get", "download", "-q", *environment.debian], cwd=place, check=True)
        for package in place.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, place], check=True)
            package.unlink()
        return
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    if environment.torch:
        link_torch(place)
    pip = [str(place / "bin/pip"), "install", "-q", "--disable-pip-version-check"]
    variables = dict(os.environ)
    if environment.own_torch:
        variables["PIP_CONSTRAINT"] = os.devnull  # which may name ours
        index = os.environ.get("GROUNDWIRE_TORCH_INDEX")
        pip += ["--no-compile", *(["--extra-index-url", index] if index else [])]
    subprocess.run([*pip, *environment.pip], env=variables, check=True)


def link_torch(place: Path) -> None:
    """Give an environment the torch of this clone. That of another one may be gone."""
    ours = Path(sysconfig.get_path("purelib"))
    (theirs,) = place.glob("lib/python*/site-packages")
    for found in (path for pattern in _TORCH for path in ours.glob(pattern)):
        (theirs / found.name).unlink(missing_ok=True)
        (theirs / found.name).symlink_to(found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Makes environments of programs of others.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(ENVIRONMENTS)}; all by default"
    )
    names = parser.parse_args(arguments).names
    if unknown := set(names) - set(ENVIRONMENTS):
        parser.error(f"found {', '.join(sorted(unknown))}; allowed are {', '.join(ENVIRONMENTS)}")
    folder = programs_folder()
    for name in names or ENVIRONMENTS:
        done = folder / name / ".made"
        if done.exists():
            if ENVIRONMENTS[name].torch:
                link_torch(folder / name)
            print(f"{folder / name}: is there", flush=True)
            continue
        print(f"{folder / name}", flush=True)
        make(name, folder)
        done.touch()


if __name__ == "__main__":
    main()
