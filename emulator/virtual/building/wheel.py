"""`python -m emulator.virtual.building.wheel [DIR]`: Groundwire, its built kernel, and its virtual
GPUs for its own torch, as one file.

An installation from it needs no compiler, no root and no kernel source. The kernel is GPL-2.0: its
licence goes into the wheel, our changes are there anyway, and ORIGIN.md names the source of the
rest.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from emulator.linux.signals import run_interruptible
from emulator.virtual.building.build import build_kernel_here, source_tree
from emulator.virtual.building.carried import KEY, PROGRAM, SYMBOLS
from emulator.virtual.building.image import KernelImage
from emulator.virtual.building.source import KernelSource, require_source, unpack
from emulator.virtual.failure import VirtualKernelError
from simulation.building import CARRIED, build_here
from simulation.failure import SimulationError
from workloads.virtual_gpu.building import LIBRARY, VirtualGpuError, carry

_ROOT = Path(__file__).resolve().parents[3]
_NOT_PACKED = {"runs", "build", "dist", "tests", "benchmarks", "docs"}
"""At the top of the clone; rooms may have directories of these names."""
_ORIGIN = """# Where this kernel comes from

`linux` in this folder is Linux for the user-mode architecture (`ARCH=um`), under the GNU General
Public License, version 2 (`COPYING` here). It was built from

- Debian's source package `linux`, version {version}, as its binary package `linux-source-6.12` has
  it (<https://snapshot.debian.org/package/linux/>): `{archive}`, SHA-256 {digest}
- the configuration, patches and C files in the folder above this one, which are GPL-2.0, too

by `emulator/virtual/building/build.py` of this wheel. The same inputs and the same compiler give
the same file: `groundwire kernel build` builds it where `linux-source-6.12` and a compiler are
installed and this folder is not. Its name there is {key}.
"""


def make_wheel(to: Path) -> Path:
    """Build the wheel into a directory; returns its path. Raises VirtualKernelError where the
    kernel cannot be built, or pip's words where the wheel cannot, and VirtualGpuError where
    virtual GPUs cannot."""
    image = build_kernel_here(_say)
    source = require_source()
    with tempfile.TemporaryDirectory(prefix="groundwire-wheel-") as scratch:
        tree = Path(scratch, "tree")
        shutil.copytree(_ROOT, tree, ignore=_left_out)
        (tree / "docs").mkdir()
        carried = tree / "emulator" / "kernel" / "carried"
        _carry(image, source, carried)
        _carry_engine(tree / "simulation" / "engine" / "carried", carried / "COPYING")
        gpus = tree / "workloads" / "virtual_gpu" / "carried"
        carry(gpus, _say)
        (tree / "setup.cfg").write_text(
            f"[bdist_wheel]\nplat_name = {_platform(image.path, gpus / LIBRARY)}\n"
        )
        _say("packing")
        made = Path(scratch, "made")
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
        done = subprocess.run(
            [*command, "--wheel-dir", str(made), str(tree)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise VirtualKernelError(f"`{' '.join(command)}` failed:\n{done.stdout[-3000:]}")
        (wheel,) = made.glob("*.whl")
        to.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, to / wheel.name))


def _left_out(directory: str, names: list[str]) -> set[str]:
    left = {name for name in names if name.startswith(".") or name.endswith(".egg-info")}
    top = _NOT_PACKED & set(names) if Path(directory) == _ROOT else set()
    return left | top | {"__pycache__"}


def _carry(image: KernelImage, source: KernelSource, directory: Path) -> None:
    directory.mkdir()
    shutil.copy(image.path, directory / PROGRAM)
    shutil.copy(image.symbols, directory / SYMBOLS)
    (directory / KEY).write_text(f"{image.key}\n")
    tree = source_tree(source)
    unpack(source, tree, _say)
    parts = (tree / "COPYING", tree / "LICENSES" / "preferred" / "GPL-2.0")
    (directory / "COPYING").write_text("\n".join(part.read_text() for part in parts))
    with open(source.archive, "rb") as archive:
        digest = hashlib.file_digest(archive, "sha256").hexdigest()
    (directory / "ORIGIN.md").write_text(
        _ORIGIN.format(
            version=source.version, archive=source.archive.name, digest=digest, key=image.key
        )
    )


def _carry_engine(directory: Path, licence: Path) -> None:
    """The packet engine, which is under the kernel's licence; its source is in the folder above."""
    directory.mkdir()
    shutil.copy(build_here(), directory / CARRIED.name)
    shutil.copy(licence, directory)


def _platform(*programs: Path) -> str:
    """The wheel's platform: the newest glibc of whose symbols a program asks for one."""
    versions = re.findall(rb"GLIBC_2\.(\d+)\b", b"\0".join(x.read_bytes() for x in programs))
    return f"manylinux_2_{max(map(int, versions))}_x86_64"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Make the wheel in the directory that is named, or in dist/."""
    try:
        print(make_wheel(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
    except (VirtualKernelError, SimulationError, VirtualGpuError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run_interruptible(main)
