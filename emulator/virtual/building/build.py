"""Build the virtual kernel from Debian's source package, once per version of what goes into it."""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.virtual.building import source as kernel_source
from emulator.virtual.building.build_process import build_environment, build_process
from emulator.virtual.building.cache import kernel_cache, writable_kernel_cache
from emulator.virtual.building.carried import carried_kernel
from emulator.virtual.building.image import KernelImage
from emulator.virtual.building.variant import KernelVariant
from emulator.virtual.failure import VirtualKernelError

# Debian package that provides each program or header that the build needs.
_PROGRAMS = {"make": "make", "gcc": "gcc", "ld": "binutils", "flex": "flex", "bison": "bison",
             "bc": "bc", "xz": "xz-utils", "tar": "tar", "patch": "patch"}  # fmt: skip
_PROGRESS_EVERY_S = 5.0
# Same input, same binary: nothing of the building machine or moment goes in.
_FIXED_IDENTITY = {
    "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
    "KBUILD_BUILD_USER": "groundwire",
    "KBUILD_BUILD_HOST": "groundwire",
    "KBUILD_BUILD_VERSION": "1",
}


def find_kernel(variant: KernelVariant = KernelVariant.USUAL) -> KernelImage | None:
    """The kernel that is carried or named (`carried.py`), else the one for today's source and
    files, if it has been built; builds nothing. Raises VirtualKernelError where the one that is
    named does not exist."""
    return carried_kernel(variant) or _find_built(variant)


def _find_built(variant: KernelVariant) -> KernelImage | None:
    source = kernel_source.find_source()
    if source is None:
        return None
    image = _image(kernel_source.key(source, variant))
    return image if image.path.exists() else None


def kernel_to_build() -> KernelImage:
    """The usual kernel for today's source and files, whether it has been built or not.

    Raises VirtualKernelError when there is no source.
    """
    return _image(kernel_source.key(kernel_source.require_source()))


def ensure_kernel(
    progress: Callable[[str], None], variant: KernelVariant = KernelVariant.USUAL
) -> KernelImage:
    """The kernel for today's source and files, built when it is absent (minutes; 5 to 30 s if only
    our own files changed).

    Raises VirtualKernelError: source or tools are missing, a patch does not fit, a configuration
    option cannot be had, or the compiler fails; the message holds the command and its last lines.
    Interrupted, it says so, and the next build goes on with what is finished.
    """
    return find_kernel(variant) or build_kernel_here(progress, variant)


def build_kernel_here(
    progress: Callable[[str], None], variant: KernelVariant = KernelVariant.USUAL
) -> KernelImage:
    """As `ensure_kernel`, but of this machine's source, whatever is carried or named."""
    found = _find_built(variant)
    if found is not None:
        return found
    require_tools()
    source = kernel_source.require_source()
    with _lock(writable_kernel_cache(), progress):
        try:
            return _find_built(variant) or _build(source, variant, progress)
        except KeyboardInterrupt:
            progress("interrupted; the next build goes on from here")
            raise


def require_tools() -> None:
    """Raises VirtualKernelError naming the packages that the build needs and this machine lacks,
    or its processor, for which there is no User-Mode Linux."""
    if platform.machine() != "x86_64":
        raise VirtualKernelError(
            "the virtual kernel is User-Mode Linux, which there is for x86-64 only, and this "
            f"machine is {platform.machine()}; the native kernel remains (--kernel native, as root)"
        )
    missing = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if missing:
        raise VirtualKernelError(
            "the virtual kernel cannot be built without: " + ", ".join(sorted(missing))
            + "; install them with `sudo apt-get install " + " ".join(sorted(missing)) + "`"
        )  # fmt: skip


def _image(key: str) -> KernelImage:
    directory = kernel_cache() / key
    return KernelImage(directory / "linux", directory / "System.map", key)


def source_tree(source: kernel_source.KernelSource) -> Path:
    """The directory in which a source is unpacked and built."""
    return kernel_cache() / f"tree-{kernel_source.unpacked_name(source)}" / "linux"


@contextmanager
def _lock(cache: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """One build at a time: the tree is shared by all versions of our own files."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another build is at work in {cache}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)  # by what works on the tree, should we be killed
        yield


def _build(
    source: kernel_source.KernelSource, variant: KernelVariant, progress: Callable[[str], None]
) -> KernelImage:
    started = time.monotonic()
    tree = source_tree(source)
    objects = _objects(tree, variant)
    kernel_source.unpack(source, tree, progress)
    key = ""
    while key != kernel_source.key(source, variant):  # our files may be edited meanwhile
        key = kernel_source.key(source, variant)
        kernel_source.apply_own_files(tree)
    image = _image(key)
    _begin_from_usual(objects, _objects(tree, KernelVariant.USUAL))
    objects.mkdir(exist_ok=True)
    progress(f"configuring the kernel{f' with {variant.name}' if variant.value else ''}")
    _configure(tree, objects, kernel_source.options(variant))
    progress("compiling the kernel (about 4 minutes on 2 cores the first time)")
    _make(tree, objects, ["linux"], progress)
    scratch = image.path.parent.with_name(f"{image.key}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    _run(["strip", "-o", str(scratch / "linux"), str(objects / "linux")], scratch)
    shutil.copyfile(objects / "System.map", scratch / "System.map")
    scratch.rename(image.path.parent)
    progress(f"kernel {image.key} built in {time.monotonic() - started:.0f} s: {image.path}")
    return image


def _objects(tree: Path, variant: KernelVariant) -> Path:
    return tree.parent / (f"objects-{variant.value}" if variant.value else "objects")


def _begin_from_usual(objects: Path, usual: Path) -> None:
    """make compiles anew only what a variant's options change."""
    if objects.exists() or not usual.exists():
        return
    scratch = objects.with_name(f"{objects.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(usual, scratch, symlinks=True)
    scratch.rename(objects)


def _configure(tree: Path, objects: Path, options: str) -> None:
    wanted = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", options, re.MULTILINE))
    config = objects / ".config"
    asked, made_from = objects / "asked.config", objects / "groundwire.config"
    if config.exists() and made_from.exists() and made_from.read_text() == options:
        return
    made_from.unlink(missing_ok=True)
    asked.write_text(options)
    _make(tree, objects, [f"KCONFIG_ALLCONFIG={asked}", "allnoconfig"], lambda line: None)
    got = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config.read_text(), re.MULTILINE))
    lost = [f"{name}={value}" for name, value in wanted.items() if got.get(name, "n") != value]
    if lost:
        raise VirtualKernelError("this kernel source does not accept " + ", ".join(lost))
    shutil.move(asked, made_from)


def _make(tree: Path, objects: Path, goals: list[str], progress: Callable[[str], None]) -> None:
    jobs = len(os.sched_getaffinity(0))
    command = ["make", "-C", str(tree), "ARCH=um", f"O={objects}", f"-j{jobs}", *goals]
    names = [f"{name}={value}" for name, value in _FIXED_IDENTITY.items()]
    log = objects / "make.log"
    compiled, reported = 0, time.monotonic()
    tail: deque[str] = deque(maxlen=30)
    with open(log, "w") as log_file, build_process([*command, *names]) as make:
        assert make.stdout is not None
        for line in make.stdout:
            log_file.write(line)
            tail.append(line)
            compiled += line.startswith("  CC ")
            if compiled and time.monotonic() - reported > _PROGRESS_EVERY_S:
                reported = time.monotonic()
                progress(f"compiling the kernel: {compiled} files")
    if make.returncode != 0:
        raise VirtualKernelError(
            f"`{' '.join(command)}` failed with exit status {make.returncode} "
            f"(everything it said is in {log}):\n{''.join(tail)}"
        )


def _run(command: list[str], directory: Path) -> None:
    environment = build_environment()
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise VirtualKernelError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
