"""The compiled part of virtual GPUs: built once for each torch and each version of its source, and
kept.

`python -m workloads.virtual_gpu.building` builds it for the torch of the Python that runs it, as
setup.sh does.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from topologies.cache_folder import NoCacheFolder, cache_folder

EXTENSION = Path(__file__).resolve().parent / "extension"
COMMANDS = EXTENSION.parent / "commands"
LIBRARY = "_groundwire_gpu.so"
NVML = "libnvidia-ml.so.1"
"""NVML's stand-in, which needs no torch."""
PROGRAMS = "bin"
"""The folder beside the libraries that has nvidia-smi and lspci."""
OPERATORS = "operators.txt"
"""Names of torch's operators that have a kernel for CUDA, a line each."""
CARRIED = EXTENSION.parent / "carried"
"""The directory into which `make wheel` puts what it has built for the torch that Groundwire itself
has; a clone has no such directory."""
KEY = "key"
"""The file in it that says for which torch, Python and source it is."""
TRIED_TORCH = ((2, 6), (2, 7), (2, 8), (2, 9), (2, 13), (2, 15))
"""The versions of torch that virtual GPUs are tried with. Older ones are refused; for others it is
compiled, and where that fails with a newer one the error says so."""
OLDEST_TORCH, NEWEST_TORCH = TRIED_TORCH[0], TRIED_TORCH[-1]
_named = [".".join(map(str, version)) for version in TRIED_TORCH]
TRIED = f"{', '.join(_named[:-1])} and {_named[-1]}"
_FLAGS = ("-O1", "-std=c++20", "-fPIC", "-DTORCH_EXTENSION_NAME=_groundwire_gpu")
_ASK = """
import importlib.util, json, sys, sysconfig
spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit("it has no torch")
import importlib.metadata
place = spec.submodule_search_locations[0]
print(json.dumps({"torch": place, "version": importlib.metadata.version("torch"),
    "python": sysconfig.get_paths()["include"], "abi": sys.implementation.cache_tag}))
"""


class VirtualGpuError(ValueError):
    """The compiled part cannot be built, or a Python cannot have it."""


@dataclass(frozen=True, slots=True)
class Torch:
    """A torch: its package, its version, and the headers and the ABI of the Python that has it.
    `flags` are options by which what is compiled here goes together with torch's own libraries."""

    torch: str
    version: str
    python: str
    abi: str
    flags: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, ...]:
        """The first two numbers of its version."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])

    @classmethod
    def of(cls, python: str) -> Torch:
        """The torch of a Python. Raises VirtualGpuError."""
        try:
            asked = subprocess.run(
                [python, "-c", _ASK],
                capture_output=True,
                text=True,
                env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VirtualGpuError(f"virtual GPUs: {python}: {error}") from error
        if asked.returncode != 0:
            words = asked.stderr.strip().splitlines()[-1:] or ["it says nothing"]
            raise VirtualGpuError(f"virtual GPUs need torch: {python}: {words[0]}")
        found = cls(**json.loads(asked.stdout))
        if found.release < OLDEST_TORCH:
            oldest = ".".join(map(str, OLDEST_TORCH))
            raise VirtualGpuError(
                f"virtual GPUs: {found.torch}: found torch {found.version}; expected {oldest} or "
                f"later ({TRIED} are tried)"
            )
        return replace(found, flags=_as_compiled(Path(found.torch)))


def library_for(torch: Torch, tell: Callable[[str], None] = lambda text: None) -> Path:
    """The directory that has `LIBRARY` and `OPERATORS`: the one that this installation carries,
    where that is for this torch and Python, else one of the cache, built when it is absent, which
    `tell` is told. Raises VirtualGpuError."""
    key = _key(torch)
    if _is_for(CARRIED, key):
        return CARRIED
    place = _cache() / key
    if (place / LIBRARY).is_file():
        return place
    tell(f"compiling virtual GPUs for torch {torch.version}: some minutes, once")
    if shutil.which("g++") is None:
        raise VirtualGpuError(
            "virtual GPUs cannot be built without g++; install it with `sudo apt-get install g++`"
        )
    if not (Path(torch.python) / "Python.h").is_file():
        raise VirtualGpuError(
            f"virtual GPUs cannot be built without Python's headers: no {torch.python}/Python.h; "
            "install them with `sudo apt-get install python3-dev`"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / LIBRARY).is_file():
                _build(torch, place)
    except VirtualGpuError as error:
        if torch.release <= NEWEST_TORCH:
            raise
        raise VirtualGpuError(
            f"virtual GPUs: {torch.torch}: found torch {torch.version}, newer than those that are "
            f"tried ({TRIED}): {error}"
        ) from error
    except OSError as error:
        raise VirtualGpuError(f"virtual GPUs cannot be kept: {error}") from error
    return place


def carry(to: Path, tell: Callable[[str], None] = lambda text: None) -> None:
    """Put the compiled part for this Python's torch into a directory, as `CARRIED`. It is compiled
    when it is absent. Raises VirtualGpuError."""
    torch = Torch.of(sys.executable)
    shutil.copytree(library_for(torch, tell), to)
    (to / KEY).write_text(f"{_key(torch)}\n")
    for library in (LIBRARY, NVML):
        _run(["strip", "--strip-unneeded", str(to / library)])


def _is_for(directory: Path, key: str) -> bool:
    try:
        return (directory / KEY).read_text().strip() == key
    except OSError:
        return False


def _build(torch: Torch, place: Path) -> None:
    made = place.with_name(f"{place.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    flags = [*_FLAGS, *torch.flags]
    include = Path(torch.torch) / "include"
    headers = [include, include / "torch/csrc/api/include", Path(torch.python)]
    seen = [word for path in headers for word in ("-isystem", str(path))]

    def compile_one(source: Path) -> Path:
        result = made / f"{source.stem}.o"
        _run(["g++", *flags, *seen, "-c", str(source), "-o", str(result)])
        return result

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        objects = list(pool.map(compile_one, sorted(EXTENSION.glob("*.cpp"))))
    libraries = Path(torch.torch) / "lib"
    names = [f"-l{name}" for name in ("c10", "torch_cpu", "torch", "torch_python")]
    # Without a path of its own: torch's libraries are in memory when it is loaded. So every
    # environment with this torch shares it.
    where = [f"-L{libraries}", *names]
    library = str(made / LIBRARY)
    _run(["g++", "-shared", *map(str, objects), *where, "-o", library])
    for each in objects:
        each.unlink()
    nvml = [
        "-shared",
        "-fvisibility=hidden",
        f"-Wl,-soname,{NVML}",
        str(EXTENSION / "nvml/nvml.cpp"),
    ]
    _run(["g++", *_FLAGS, *nvml, "-o", str(made / NVML)])
    (made / PROGRAMS).mkdir()
    for source in sorted(COMMANDS.glob("*.py")):
        program = made / PROGRAMS / source.stem.replace("_", "-")
        shutil.copyfile(source, program)
        program.chmod(0o755)
    (made / OPERATORS).write_text("".join(f"{name}\n" for name in cuda_operators(torch)))
    shutil.rmtree(place, ignore_errors=True)
    made.rename(place)


def _as_compiled(torch: Path) -> tuple[str, ...]:
    """The options that torch's own libraries tell: C++11's strings, which wheels for CUDA of 2.6
    have not, and the compiler by whose version pybind11 knows modules that share their types
    (PYBIND11_INTERNALS_ID; later it has another). Raises VirtualGpuError."""
    try:
        core, python = (
            (torch / "lib" / name).read_bytes() for name in ("libc10.so", "libtorch_python.so")
        )
    except OSError as error:
        raise VirtualGpuError(f"virtual GPUs: no library of torch's: {error}") from error
    strings = re.search(rb"_ZN3c10\w*St7__cxx1112basic_string", core) is not None
    found = (f"-D_GLIBCXX_USE_CXX11_ABI={int(strings)}",)
    compiler = re.search(rb"__pybind11_internals_v\d+_gcc_libstdcpp(_cxxabi\d+)__", python)
    return found if compiler is None else (*found, f'-DPYBIND11_BUILD_ABI="{compiler[1].decode()}"')


def cuda_operators(torch: Torch) -> list[str]:
    """Operators that have a kernel of their own on CUDA, as torch's own table says."""
    table = Path(torch.torch).parent / "torchgen/packaged/ATen/native/native_functions.yaml"
    try:
        text = table.read_text()
    except OSError as error:
        raise VirtualGpuError(f"virtual GPUs: no table of torch's operators: {error}") from error
    entries: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("- func:"):
            name = line.removeprefix("- func:").partition("(")[0].strip()
            entries[name] = []
        elif name:
            entries[name].append(line)
    has_kernel = {
        name
        for name, lines in entries.items()
        if any(re.match(r"    [\w, ]*\bCUDA\b[\w, ]*:", line) for line in lines)
    }
    for name, lines in entries.items():
        for line in lines:
            delegate = re.match(r"  structured_delegate: (\S+)", line)
            if delegate and delegate[1] in has_kernel:
                has_kernel.add(name)
    return sorted(f"aten::{name}" for name in has_kernel)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise VirtualGpuError(f"`{shlex.join(command)}` failed:\n{done.stderr[-3000:]}")


def _key(torch: Torch) -> str:
    digest = hashlib.sha256(repr((_FLAGS, torch.abi, torch.flags)).encode())
    for path in sorted([*EXTENSION.rglob("*.?pp"), *COMMANDS.glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"torch-{torch.version}-{digest.hexdigest()[:16]}"


def _cache() -> Path:
    try:
        return cache_folder("virtual-gpu", "virtual GPUs")
    except NoCacheFolder as error:
        raise VirtualGpuError(str(error)) from error


def main() -> None:
    """Build it for this Python's torch, and print where it is."""
    try:
        print(library_for(Torch.of(sys.executable)))
    except VirtualGpuError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
