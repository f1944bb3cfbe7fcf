"""The kernel source: find Debian's package, unpack it, keep it patched with our own files."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator.virtual.building.build_process import build_environment, build_process
from emulator.virtual.building.cache import kernel_cache
from emulator.virtual.building.variant import KernelVariant
from emulator.virtual.failure import VirtualKernelError
from topologies.installation import in_clone

KERNEL_FILES = Path(__file__).resolve().parents[2] / "kernel"
SOURCE_VARIABLE = "GROUNDWIRE_KERNEL_SOURCE"
PACKAGE = "linux-source-6.12"
INSTALLED_SOURCES = Path("/usr/src")

# Not needed by a user-mode kernel, but most of the archive's volume.
_NOT_UNPACKED = (
    "Documentation/*/*",
    "tools/testing/*/*",
    "tools/perf/*/*",
    "arch/[!ux]*/*.[chS]",
    "arch/*/boot/dts",
    "drivers/gpu/*.[ch]",
    "drivers/infiniband/hw/*.[ch]",
    "drivers/infiniband/ulp/*.[ch]",
    "drivers/media/*.[ch]",
    "drivers/net/ethernet/*.[ch]",
    "drivers/net/wireless/*.[ch]",
    "drivers/scsi/*.[ch]",
    "drivers/staging/*.[ch]",
    "sound/*.[ch]",
)
_RXE = Path("drivers/infiniband/sw/rxe")
_PATCHED_FILE = re.compile(r"^--- a/(\S+)", re.MULTILINE)
_OPTION = re.compile(r"^(CONFIG_\w+)=", re.MULTILINE)
_CREATED_FILE = re.compile(r"^--- /dev/null\n\+\+\+ b/(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class KernelSource:
    """One source archive on this machine. `version` tells two archives of one name apart."""

    archive: Path
    version: str


def find_source() -> KernelSource | None:
    """The archive named by `$GROUNDWIRE_KERNEL_SOURCE`, else the one that Debian's package has
    installed, else the newest of those that setup.sh has fetched into the cache folder.

    Raises VirtualKernelError when the variable names a file that does not exist.
    """
    named = os.environ.get(SOURCE_VARIABLE)
    if named:
        archive = Path(named)
        if not archive.is_file():
            raise VirtualKernelError(
                f"{SOURCE_VARIABLE}={named}: no such file; it must name a linux-source archive"
            )
        return KernelSource(archive, _stat_version(archive))
    for archive in sorted(INSTALLED_SOURCES.glob(f"{PACKAGE}*.tar.*")):
        return KernelSource(archive, _package_version() or _stat_version(archive))
    fetched = (kernel_cache() / "source").glob(f"{PACKAGE}-*.tar.*")
    for archive in sorted(fetched, key=lambda path: path.stat().st_mtime, reverse=True):
        version = archive.name.removeprefix(f"{PACKAGE}-").partition(".tar")[0]
        return KernelSource(archive, version)
    return None


def require_source() -> KernelSource:
    """As `find_source`, but raises VirtualKernelError with the command that installs it."""
    source = find_source()
    if source is None:
        raise VirtualKernelError(
            f"no kernel source: {INSTALLED_SOURCES}/{PACKAGE}.tar.* does not exist. Install it "
            f"with `sudo apt-get install {PACKAGE}` (Debian 12 and 13); elsewhere "
            + in_clone("`make setup` fetches Debian's, or ", "")
            + f"set {SOURCE_VARIABLE} to an archive of Linux 6.12"
        )
    return source


def own_files() -> list[Path]:
    """Our files that shape the usual kernel: configuration, patches, C sources; sorted."""
    sources = [*KERNEL_FILES.glob("*.[ch]"), *KERNEL_FILES.glob("rxe/*.[ch]")]
    usual = (KERNEL_FILES / "patches").glob("*.patch")
    return sorted([KERNEL_FILES / "groundwire.config", *usual, *sources])


def files_of(variant: KernelVariant) -> list[Path]:
    """Our files that shape a variant beyond those of the usual kernel; sorted."""
    return sorted((KERNEL_FILES / variant.value).iterdir()) if variant.value else []


def patches() -> list[Path]:
    """Our patches in the order in which they apply. All kernels have one tree: those of a variant
    touch only what the usual kernel does not compile."""
    usual = sorted((KERNEL_FILES / "patches").glob("*.patch"))
    variants = [KERNEL_FILES / each.value for each in KernelVariant if each.value]
    return [*usual, *(patch for folder in variants for patch in sorted(folder.glob("*.patch")))]


def options(variant: KernelVariant) -> str:
    """The configuration of a kernel: one option a line, everything else is off."""
    usual = (KERNEL_FILES / "groundwire.config").read_text()
    if not variant.value:
        return usual
    own = (KERNEL_FILES / variant.value / "options.config").read_text()
    said = set(_OPTION.findall(own))
    left = [line for line in usual.splitlines(True) if said.isdisjoint(_OPTION.findall(line))]
    return "".join(left) + own


def unpacked_name(source: KernelSource) -> str:
    """A name for a source as it is unpacked: another one where other files are left out."""
    left_out = hashlib.sha256("\0".join(_NOT_UNPACKED).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.+-]", "_", source.version) + "-" + left_out


def unpack(source: KernelSource, tree: Path, progress: Callable[[str], None]) -> None:
    """Unpack `source` to `tree`, unless that is already there.

    A tree that an interrupt leaves half unpacked lies beside it until the next time: to remove it
    takes longer than the user wants to wait. Raises VirtualKernelError.
    """
    if tree.is_dir():
        return
    progress(f"unpacking {source.archive} ({source.version})")
    half = tree.with_name("unpacking")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    excludes = [f"--exclude=*/{pattern}" for pattern in _NOT_UNPACKED]
    # Debian's archive consists of blocks that can be decompressed in parallel.
    filters = ["-I", "xz -T0"] if source.archive.suffix == ".xz" else []
    command = ["tar", *filters, "-xf", str(source.archive), "--strip-components=1", *excludes]
    with build_process([*command, "-C", str(half)]) as tar:
        assert tar.stdout is not None
        said = tar.stdout.read()
    if tar.returncode != 0:
        shutil.rmtree(half)
        raise VirtualKernelError(f"{' '.join(command)} failed: {said.strip()}")
    half.rename(tree)


def apply_own_files(tree: Path) -> None:
    """Bring `tree` to "as unpacked, plus our patches and C files", touching only what differs.

    The unpacked state of each file that a patch has ever touched is kept beside the tree, so
    that a changed patch does not need a new unpacking, and `make` sees only what changed.

    Raises VirtualKernelError naming the patch, the file and the hunk that does not apply.
    """
    unpacked = tree.parent / "unpacked"
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="patch-") as scratch_name:
        scratch = Path(scratch_name)
        for name in _patched_names():
            if not (unpacked / name).exists() and (tree / name).exists():
                _copy(tree / name, scratch / name)
                (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).rename(unpacked / name)  # whole, or not at all
        for original in _files_below(unpacked):
            _copy(original, scratch / original.relative_to(unpacked))
        for patch in patches():
            _apply(patch, scratch)
        _add_qdiscs(tree, unpacked, scratch)
        for made in _files_below(scratch):
            _replace_if_different(made, tree / made.relative_to(scratch))


def key(source: KernelSource, variant: KernelVariant = KernelVariant.USUAL) -> str:
    """A name for the kernel that this source and our files give: 16 hex digits."""
    digest = hashlib.sha256(source.version.encode())
    for file in [*own_files(), *files_of(variant)]:
        digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _package_version() -> str | None:
    try:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", PACKAGE],
            env=build_environment(),
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _stat_version(archive: Path) -> str:
    stat = archive.stat()
    return f"{archive.name}-{stat.st_size}-{stat.st_mtime_ns}"


def _patched_names() -> list[str]:
    texts = [patch.read_text() for patch in patches()]
    changed = {name for text in texts for name in _PATCHED_FILE.findall(text)}
    created = {name for text in texts for name in _CREATED_FILE.findall(text)}
    return sorted({*changed, "net/sched/Makefile"} - created)


def _apply(patch: Path, directory: Path) -> None:
    command = ["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch", "-r", "-"]
    try:
        done = subprocess.run(
            [*command, "-i", str(patch)],
            cwd=directory,
            env=build_environment(),
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise VirtualKernelError(
            "the command `patch` is missing: `sudo apt-get install patch`"
        ) from error
    if done.returncode != 0:
        raise VirtualKernelError(
            f"{patch.name} does not fit this kernel source; set {SOURCE_VARIABLE} to an archive "
            f"of Linux 6.12, or unset it and install {PACKAGE}:\n{done.stdout.strip()}"
        )


def _add_qdiscs(tree: Path, unpacked: Path, scratch: Path) -> None:
    """Put our C files into net/sched and its Makefile, and beside rxe, where a patch names them;
    drop those that we no longer have."""
    sources = sorted(KERNEL_FILES.glob("*.c"))
    for stale in (tree / "net/sched").glob("sch_gw*.c"):
        if stale.name not in {source.name for source in sources}:
            stale.unlink()
    makefile = scratch / "net/sched/Makefile"
    lines = [f"obj-y += {source.stem}.o\n" for source in sources]
    makefile.write_text((unpacked / "net/sched/Makefile").read_text() + "".join(lines))
    for file in [*sources, *KERNEL_FILES.glob("*.h")]:
        _copy(file, scratch / "net/sched" / file.name)
    for file in KERNEL_FILES.glob("rxe/*.[ch]"):
        _copy(file, scratch / _RXE / file.name)


def _files_below(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _replace_if_different(source: Path, target: Path) -> None:
    if not target.exists() or target.read_bytes() != source.read_bytes():
        _copy(source, target)
