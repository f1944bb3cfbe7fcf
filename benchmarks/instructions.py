"""How many instructions a packet-hop takes: tells changes of 1% in one run.

    .venv/bin/python benchmarks/instructions.py [--ranks 8] [--mtu 1500] [--size 2MB]
        [--iterations 3] [--json]

QEMU emulates a machine of one core whose clock counts instructions (`-icount shift=0`: each takes a
nanosecond). Its files are this machine's (virtiofs), so the virtual kernel in it is this clone's,
and so are Python and torch. A star of 100 Gb/s links of 1 us makes an all-reduce and an all-to-all
each iteration, its ranks are packed. Printed are the instructions of each iteration but the first,
which touches memory for the first time, and their mean by the packet-hops of an iteration: those of
the ranks, of the guest's kernel and of the machine's. An instruction that copies (`rep movsb`)
counts for each byte, one that saves or loads all vector registers as one, and a wait for memory as
none. So this tells less code from more, and not what caches and vector registers cost.

Needs root, QEMU, its virtiofsd (both in Debian's qemu-system-x86, qemu-system-common), gcc and a
libc to link with (libc6-dev). The machine's kernel is Debian's linux-image-cloud-amd64, which is
fetched by apt-get once (27 MB, `~/.cache/groundwire/instructions`) and not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator.progress import Progress
from emulator.session import run_session
from emulator.virtual.building.build import ensure_kernel
from topologies.spec.spec import Spec, parse_spec

_PROGRAM = Path(__file__).resolve()
_COUNTED = "counted: "
_PACKAGE = "linux-image-cloud-amd64"
_MODULES = (
    "virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "fuse",
    "virtiofs",
)  # fmt: skip
_VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
_MEMORY = "3G"
_PATIENCE_S = 3600.0


def star(arguments: argparse.Namespace) -> Spec:
    operations = [{"kind": kind, "size": arguments.size} for kind in ("all_reduce", "all_to_all")]
    description = {
        "name": "instructions",
        "fabric": {
            "kind": "flat",
            "hosts": arguments.ranks,
            "link": {"rate": "100Gbps", "delay": "1us", "mtu": arguments.mtu},
            "queue": {"kind": "droptail", "buffer": "32MB"},
        },
        "workload": {
            "kind": "collectives",
            "ranks": arguments.ranks,
            "iterations": arguments.iterations,
            "operations": operations,
        },
        "compute": {"device": "none"},
        "capture": {"points": []},
        "predict": [],
        "virtual": {"ranks_per_process": arguments.ranks},
    }
    return parse_spec(json.dumps(description), "instructions")


def count(spec: Spec) -> dict[str, Any]:
    """In the machine: run the spec. The clock's nanoseconds are instructions."""
    marks: list[int] = []

    def report(progress: Progress) -> None:
        if progress.stage in ("iteration", "collect"):
            marks.append(time.monotonic_ns())
        if progress.stage != "clock":
            print(progress.stage, progress.detail, flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "run"
        run_session(spec, "virtual", directory, report)
        lines = (directory / "links.jsonl").read_text().splitlines()
        stops = json.loads((directory / "environment.json").read_text())["stops"]
    hops = sum(json.loads(line)["packets"] for line in lines)
    iterations = [end - begin for begin, end in pairwise(marks)]
    hops_per_iteration = hops / len(iterations)
    return {
        "packet_hops": hops,
        "iterations": iterations,
        "instructions_per_hop": statistics.mean(iterations[1:]) / hops_per_iteration,
        "calls_per_hop": stops["calls"] / hops,
    }


def fetched_kernel() -> tuple[Path, list[Path]]:
    """Debian's kernel and the modules that it needs for the host's files."""
    place = Path.home() / ".cache" / "groundwire" / "instructions"
    if not any(place.glob("boot/vmlinuz-*")):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        asked = ["apt-cache", "depends", "--important", _PACKAGE]
        depends = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        package = next(word for word in depends.split() if word.startswith("linux-image-6"))
        subprocess.run(["apt-get", "download", "-q", package], cwd=place, check=True)
        (archive,) = place.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, place], check=True)
        archive.unlink()
    (kernel,) = place.glob("boot/vmlinuz-*")
    modules = [next(place.rglob(f"{name}.ko")) for name in _MODULES]
    return kernel, modules


def initramfs(command: str, modules: list[Path], directory: Path) -> Path:
    """A first process that runs `command` (initramfs-buffer-format.rst in Linux)."""
    program = directory / "init"
    source = _PROGRAM.with_suffix(".c")
    define = f"-DCOMMAND={json.dumps(command)}"
    subprocess.run(["gcc", "-static", "-O1", define, source, "-o", program], check=True)
    archive = _entry("dev", 0o040755) + _entry("dev/console", 0o020600, device=(5, 1))
    archive += _entry("init", 0o100755, program.read_bytes())
    for number, module in enumerate(modules):
        archive += _entry(f"module{number}", 0o100644, module.read_bytes())
    made = directory / "initramfs"
    made.write_bytes(archive + _entry("TRAILER!!!", 0))
    return made


def _entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    named = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(named), 0)
    head = b"070701" + b"".join(b"%08x" % number for number in numbers) + named
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


@contextmanager
def host_files(socket: Path) -> Iterator[None]:
    """This machine's files for whoever connects to `socket`."""
    command = [_VIRTIOFSD, f"--socket-path={socket}", "-o", "source=/,cache=always,sandbox=chroot"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not socket.exists() and server.poll() is None:
            time.sleep(0.05)
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def run_machine(command: str) -> dict[str, Any]:
    """The counts that `count` found in the machine. Raises SystemExit with the machine's last
    words."""
    kernel, modules = fetched_kernel()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        socket = directory / "files"
        image = initramfs(command, modules, directory)
        with host_files(socket):
            machine = subprocess.Popen(
                [
                    "qemu-system-x86_64", "-accel", "tcg", "-icount", "shift=0,sleep=off",
                    # QEMU 7.2 reads the stack of an IRET in user mode as the kernel would, which
                    # SMAP forbids.
                    "-cpu", "max,-smap", "-smp", "1", "-m", _MEMORY,
                    "-object", f"memory-backend-memfd,id=m,size={_MEMORY},share=on",
                    "-numa", "node,memdev=m", "-chardev", f"socket,id=c,path={socket}",
                    "-device", "vhost-user-fs-pci,chardev=c,tag=host", "-nic", "none",
                    "-nographic", "-no-reboot", "-kernel", str(kernel), "-initrd", str(image),
                    "-append", "console=ttyS0 quiet mitigations=off panic=-1",
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace",
            )  # fmt: skip
            assert machine.stdout is not None
            said = []
            try:
                for line in machine.stdout:
                    said.append(line)
                    print(line, end="", file=sys.stderr)
            finally:
                machine.kill()
                machine.wait()
    found = [line for line in said if line.startswith(_COUNTED)]
    if not found:
        raise SystemExit("the machine ended without a count:\n" + "".join(said[-20:]))
    result: dict[str, Any] = json.loads(found[0].removeprefix(_COUNTED))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--size", default="2MB")
    parser.add_argument("--iterations", type=int, default=3, help="at least 2")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    spec = star(arguments)
    if arguments.inside:
        print(_COUNTED + json.dumps(count(spec)), flush=True)
        return
    if arguments.iterations < 2:
        parser.error(f"--iterations {arguments.iterations}: at least 2")
    if os.geteuid() != 0:
        parser.error("needs root: virtiofsd serves all files of this machine")
    ensure_kernel(print)
    words = [sys.executable, str(_PROGRAM), "--inside", *sys.argv[1:]]
    inherited = [f"{name}={os.environ[name]}" for name in ("HOME", "GROUNDWIRE_KERNEL_IMAGE")
                 if name in os.environ]  # fmt: skip
    found = run_machine(shlex.join(["env", *inherited, *words]))
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    counted = ", ".join(f"{number:,}" for number in found["iterations"][1:])
    print(
        f"{found['packet_hops']:,} packet-hops; instructions of iterations from the 2nd: {counted}"
    )
    print(f"{found['instructions_per_hop']:,.0f} instructions a hop")


if __name__ == "__main__":
    main()
