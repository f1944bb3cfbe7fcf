"""Limits of the host: raised when they may be, else one message says which one to raise."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.image import KernelImage
from emulator.virtual.host.limits import refused_by_host
from tests.slowdown import slowdown

ROOT = Path(__file__).resolve().parents[2]


def command(limit: int, soft: int, hard: int, *argv: str) -> subprocess.CompletedProcess[str]:
    """`python -m emulator.virtual` with a limit."""
    return subprocess.run(
        [sys.executable, "-m", "emulator.virtual", "--mem", "512MB", "--", *argv],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
        preexec_fn=lambda: resource.setrlimit(limit, (soft, hard)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "what", "option"),
    [
        (resource.RLIMIT_FSIZE, "a file", "f"),
        (resource.RLIMIT_AS, "the address space of a process", "v"),
    ],
)
def test_a_limit_that_is_too_tight_is_named_and_a_soft_one_raised(
    kernel: KernelImage, limit: int, what: str, option: str
) -> None:
    hard = resource.getrlimit(limit)[1]
    tight = 400 * 10**6
    if hard == resource.RLIM_INFINITY:
        done = command(limit, tight, hard, "true")
        assert done.returncode == 0, done.stderr
    done = command(limit, tight, tight, "true")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"guest memory of 512 MB refused: {what} may have 400 MB at most here; "
        f"raise the hard limit, `ulimit -H -{option}`"
    )


def test_few_open_files_are_enough_where_more_may_be_had(kernel: KernelImage) -> None:
    script = "import ctypes, asyncio, email, xml.dom, unittest, multiprocessing"
    soft, hard = 48, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = command(resource.RLIMIT_NOFILE, soft, hard, "python3", "-c", script)
    assert done.returncode == 0, done.stderr


def test_too_few_open_files_are_named(kernel: KernelImage) -> None:
    """A traceback of whatever the guest's Python imported when they had run out."""
    done = command(resource.RLIMIT_NOFILE, 64, 64, "true")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "a guest with up to 256 open files refused: a process may have 64 at most here; "
        "raise the hard limit, `ulimit -H -n`"
    )


def test_more_ranks_and_captures_are_more_open_files(kernel: KernelImage, tmp_path: Path) -> None:
    def refusal(hosts: int, capture: str) -> str:
        spec = tmp_path / "spec.yaml"
        spec.write_text(
            f"fabric: {{kind: flat, hosts: {hosts}}}\ncapture: {{points: {capture}}}\n"
            f"workload: {{kind: collectives, ranks: {hosts}, operations: [{{kind: barrier}}]}}\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "groundwire.cli", "run", spec, "--out", tmp_path / "run"],
            cwd=ROOT, capture_output=True, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        (tmp_path / "run" / "spec.yaml").unlink()
        return done.stderr.splitlines()[-1]

    assert "a guest with up to 164 open files refused" in refusal(2, "[]")
    assert "a guest with up to 288 open files refused" in refusal(64, "[]")
    assert "a guest with up to 352 open files refused" in refusal(64, "[hosts]")


def test_a_limit_on_pending_signals_is_named(kernel: KernelImage) -> None:
    """A timer counts as one; without it the guest panicked that it 'was going to sleep forever'."""
    done = command(resource.RLIMIT_SIGPENDING, 0, 0, "true")
    assert done.returncode == 1
    assert "the host refused it a timer" in done.stderr
    assert "raise `ulimit -i`, here 0" in done.stderr


def test_a_guest_that_gets_no_more_of_the_host_ends_at_once_and_says_so(
    kernel: KernelImage,
) -> None:
    """A run went on with 14 of its 16 ranks where a control group allowed 20 processes, ended after
    200 s and said 'Cannot allocate memory'. Here the address space runs out instead, as the limits
    of processes do not hold for root."""

    def forbid_more(line: str) -> None:
        for pid in {*guest_processes()} - others:
            resource.prlimit(pid, resource.RLIMIT_AS, (1, 1))

    def guest_processes() -> Iterator[int]:
        for entry in Path("/proc").glob("[0-9]*/status"):
            try:
                if (
                    f"PPid:\t{os.getpid()}\n" in entry.read_text()
                    and os.path.basename(os.readlink(entry.with_name("exe"))) == "linux"
                ):
                    yield int(entry.parent.name)
            except OSError:
                continue

    others = {*guest_processes()}  # one that stands for other tests
    started = time.monotonic()
    script = "echo speak; while :; do sleep 1; done"
    guest = GuestSpec(argv=("sh", "-c", script), memory_bytes=512 * 10**6)
    result = run_guest(kernel, guest, forbid_more)
    assert result.reason == "died"
    assert "the host refused" in result.message
    assert "`ulimit -v`, here " in result.message
    assert time.monotonic() - started < 20 * slowdown()


def test_what_to_raise_is_said_of_each_refusal() -> None:
    said = refused_by_host("[   10.120000] start_userspace : clone failed, errno = 11")
    assert said is not None and "another process (Resource temporarily unavailable)" in said
    assert "`ulimit -u`, here " in said and "pids.max of its control group" in said
    said = refused_by_host("[   10.1] UML ran out of memory on the host side! This can happen")
    assert said is not None and "vm.max_map_count, here " in said
    assert refused_by_host("[    0.0] Run /proc/self/cwd/init as init process") is None
