"""Every way in which a guest can end badly is told apart, and nothing is left behind."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.virtual import boot
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.image import KernelImage
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.memory.host_memory import available_memory
from tests.plain_user import needs_root, run_as_nobody
from tests.slowdown import slowdown
from tests.virtual.conftest import Guest

EAT_MEMORY = "x = []\nwhile True: x.append(bytearray(10**7))"
ROOT = Path(__file__).resolve().parents[2]


def leftovers() -> set[str]:
    """Kernel processes, control directories and memory files of guests, on this host."""
    found = [str(path) for path in Path("/dev/shm").glob("groundwire-guest-*")]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"init=/proc/self/cwd/init" in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return set(found)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = leftovers()
    yield
    deadline = time.monotonic() + 30
    # Other guests may have been started meanwhile by somebody else: only ours count.
    while left := {item for item in leftovers() - before if _is_ours(item)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _is_ours(item: str) -> bool:
    if item.startswith("/"):
        return f"-{os.getpid()}-" in item
    try:
        return f"PPid:\t{os.getpid()}\n" in Path("/proc", item, "status").read_text()
    except OSError:
        return False


def megabytes(pattern: str, message: str) -> int:
    (found,) = re.findall(pattern, message)
    return int(found.replace(",", ""))


def test_out_of_memory_says_so(guest: Guest) -> None:
    ended = guest(sys.executable, "-c", EAT_MEMORY, memory_bytes=256 * 10**6)
    assert ended.result.reason == "out-of-memory"
    assert ended.result.exit_status is None
    name = Path(sys.executable).name
    assert f"256 MB were not enough when {name} asked for more" in ended.result.message
    largest = megabytes(rf"in each: {name} \(pid \d+\) (\d+) MB", ended.result.message)
    # The kernel, 2% for what describes the pages, and process 1 take less than a fifth of it.
    assert 200 < largest < megabytes(r"([\d,]+) MB were processes'", ended.result.message) < 256


def test_memory_that_runs_out_while_another_process_holds_most_of_it(guest: Guest) -> None:
    # The kernel would end the one that sleeps, and the other try again for ever at one instant.
    # Their program is locked in memory, as ranks' are: how often it would be read again before
    # memory has run out hangs on what Python finds compiled, and too often is another ending.
    script = """
import ctypes, os, time
assert ctypes.CDLL(None).mlockall(1) == 0  # MCL_CURRENT
held = bytearray(150 * 10**6)
if os.fork() == 0:
    del held
    x = []
    while True: x.append(bytearray(10**6))
time.sleep(10)
"""
    ended = guest(sys.executable, "-c", script, memory_bytes=300 * 10**6)
    assert ended.result.reason == "out-of-memory"
    assert "The largest of 2 processes" in ended.result.message


def test_out_of_memory_by_files_says_so(guest: Guest) -> None:
    ended = guest("dd", "if=/dev/zero", "of=/tmp/file", "bs=1M", memory_bytes=256 * 10**6)
    assert ended.result.reason == "out-of-memory"
    files = megabytes(r"([\d,]+) MB files' in /tmp, /run and /dev/shm", ended.result.message)
    assert 200 < files < 256


READ_AGAIN = """
import mmap, sys
if free := int(sys.argv[2]):
    free_kb = int(open("/proc/meminfo").read().split("MemFree:")[1].split()[0])
    held = b"x" * (free_kb * 1024 - free)
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for _ in range(int(sys.argv[3])):
    sum(pages[::4096])
print(open("/proc/vmstat").read().split("workingset_refault_file ")[1].split()[0])
"""


def sparse_file(directory: Path, size_bytes: int) -> Path:
    file = directory / "file"
    file.touch()
    os.truncate(file, size_bytes)
    return file


def test_reading_again_what_was_dropped_without_end_is_out_of_memory(
    guest: Guest, tmp_path: Path
) -> None:
    # A file of 64 MB, which is read again and again at one instant, finds 9 to 13 of 800 MB left
    # (Python frees more when it had to compile).
    words = (sparse_file(tmp_path, 64 * 10**6), 11 * 10**6, 10**9)
    spec = {"memory_bytes": 800 * 10**6, "readable": (tmp_path,)}
    ended = guest(sys.executable, "-c", READ_AGAIN, *words, **spec)
    assert ended.result.reason == "out-of-memory"
    assert megabytes(r"at one instant of virtual time it read ([\d,]+) MB", ended.result.message)
    assert megabytes(r"([\d,]+) MB were left for files that it reads", ended.result.message) < 16


def test_a_file_larger_than_memory_can_be_read_again(guest: Guest, tmp_path: Path) -> None:
    words = (sparse_file(tmp_path, 256 * 10**6), 0, 7)
    spec = {"memory_bytes": 200 * 10**6, "readable": (tmp_path,)}
    ended = guest(sys.executable, "-c", READ_AGAIN, *words, **spec)
    assert (ended.result.reason, ended.errors) == ("exited", [])
    assert int(ended.lines[0]) * 4096 > 1.2 * 2**30  # more than what ends a guest with no room


def test_panic_shows_the_kernels_words(guest: Guest) -> None:
    # Process 1 loses what it returns to; the kernel does not go on without it.
    script = """
import re
start, end = re.search(r"^(\\w+)-(\\w+) .*\\[stack\\]$", open("/proc/1/maps").read(), re.M).groups()
with open("/proc/1/mem", "r+b", buffering=0) as memory:
    memory.seek(int(start, 16))
    memory.write(bytes(int(end, 16) - int(start, 16)))
"""
    ended = guest(sys.executable, "-c", script)
    assert ended.result.reason == "panic"
    assert "Attempted to kill init" in ended.result.message
    assert any("Kernel panic" in line for line in ended.result.console)


# For the kernel's console, which shows whole lines only.
LAST_WORDS = "open('/dev/kmsg', 'w').write('these are the last words\\n')\n"


def test_deadlock_names_who_waits(guest: Guest) -> None:
    script = LAST_WORDS + "import os; print('waiting'); os.read(os.pipe()[0], 1)"
    ended = guest(sys.executable, "-c", script)
    assert ended.lines == ["waiting"]
    assert ended.result.reason == "deadlock"
    assert "3600 virtual seconds" in ended.result.message
    assert "os.read(os.pipe()" in ended.result.message
    assert any(line.endswith("these are the last words") for line in ended.result.console)
    assert ended.result.wall_s < 20 * slowdown()


def test_a_long_sleep_is_no_deadlock(guest: Guest) -> None:
    ended = guest("sh", "-c", "sleep 3000; echo awake")
    assert (ended.lines, ended.result.reason) == (["awake"], "exited")


def test_endless_computing_is_a_stall(guest: Guest) -> None:
    script = LAST_WORDS + "n = 0\nwhile True: n += 1"
    ended = guest(sys.executable, "-c", script, stall_timeout_s=2.0)
    assert ended.result.reason == "stalled"
    assert any(line.endswith("these are the last words") for line in ended.result.console)
    assert "2 real seconds" in ended.result.message
    assert ended.result.exit_status is None


def test_a_kernel_that_cannot_boot_shows_its_console(kernel: KernelImage) -> None:
    guest = GuestSpec(argv=("true",), memory_bytes=4 * 10**6)
    result = run_guest(kernel, guest, print)
    assert result.reason in ("panic", "died")
    assert result.console


def test_too_much_memory_is_refused_with_figures(guest: Guest) -> None:
    wanted = available_memory().size_bytes + 10**9
    with pytest.raises(VirtualKernelError) as refused:
        guest("true", memory_bytes=wanted)
    assert f"{wanted / 1e6:,.0f} MB refused" in str(refused.value)
    assert "available" in str(refused.value)


def test_more_memory_than_any_guest_can_have_is_refused_with_figures(guest: Guest) -> None:
    with pytest.raises(VirtualKernelError, match="300,000 MB refused: a guest has at most 255,551"):
        guest("true", memory_bytes=300 * 10**9)


def command(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "emulator.virtual", "--mem", "512MB", "--", *words]
    return subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def wait_for_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], 300)[0]:
        process.kill()
    line = process.stdout.readline()
    assert line == "started\n", process.stderr.read() if process.stderr else line


def children_of(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def guest_processes_of(pid: int) -> list[int]:
    kernels = children_of(pid)
    users = [user for child in kernels for user in children_of(child)]
    assert kernels
    assert users
    return kernels + users


def assert_gone(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + 30
    while alive := [pid for pid in pids if Path("/proc", str(pid)).exists()]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.02)


LOOP = "echo started; while true; do :; done"


def test_interrupt_ends_all_within_two_seconds(kernel: KernelImage) -> None:
    process = command("sh", "-c", LOOP)
    wait_for_line(process)
    processes = guest_processes_of(process.pid)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    assert_gone(processes)
    took = time.monotonic() - started
    assert took < 2 * slowdown()


def test_killed_parent_takes_its_guest_along(kernel: KernelImage) -> None:
    process = command("sh", "-c", LOOP)
    wait_for_line(process)
    processes = guest_processes_of(process.pid)
    process.kill()
    process.wait()
    assert_gone(processes)
    mark = f"groundwire-guest-{process.pid}-"
    assert not [path for path in Path("/dev/shm").iterdir() if path.name.startswith(mark)]


def test_killed_while_its_guest_boots_it_leaves_no_files(kernel: KernelImage) -> None:
    process = command("true")
    mark = f"groundwire-guest-{process.pid}-*"
    deadline = time.monotonic() + 300
    while not list(Path("/dev/shm").glob(f"{mark}/guest.json")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while left := list(Path("/dev/shm").glob(mark)):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def test_when_a_command_speaks_nothing_is_left_to_remove(kernel: KernelImage) -> None:
    ours = f"groundwire-guest-{os.getpid()}-*"
    others = set(Path("/dev/shm").glob(ours))  # of a guest that stands for other tests
    left = []

    def look(line: str) -> None:
        left.append(set(Path("/dev/shm").glob(ours)) - others)

    run_guest(kernel, GuestSpec(argv=("echo", "spoken"), memory_bytes=512 * 10**6), look)
    assert left == [set()]


def test_a_kernel_that_is_killed_has_died(kernel: KernelImage) -> None:
    process = command("sh", "-c", LOOP)
    wait_for_line(process)
    processes = guest_processes_of(process.pid)
    os.kill(processes[0], signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "died: the guest ended without a report" in said
    assert "Run /proc/self/cwd/init as init process" in said  # of the console
    assert_gone(processes)


def test_a_kernel_that_the_host_killed_for_memory_says_so(
    kernel: KernelImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's count of such kills is a stand-in: to run out of memory would end others, too."""
    kills = iter((3, 5))
    monkeypatch.setattr(boot, "killed_for_memory", lambda: next(kills))
    others = children_of(os.getpid())  # such as the server of commands of other tests

    def end_it(line: str) -> None:
        (kernel_process,) = set(children_of(os.getpid())) - set(others)
        os.kill(kernel_process, signal.SIGKILL)

    guest = GuestSpec(argv=("sh", "-c", LOOP), memory_bytes=512 * 10**6)
    result = run_guest(kernel, guest, end_it)
    assert result.reason == "died"
    assert "the host's kernel killed 2 processes" in result.message
    assert re.search(r"now .* has [\d,]+ MB", result.message)


def test_the_host_would_kill_the_guest_before_us(kernel: KernelImage) -> None:
    process = command("sh", "-c", LOOP)
    wait_for_line(process)
    for pid in guest_processes_of(process.pid):
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
    process.kill()
    process.communicate()


def test_signals_do_not_end_process_1(guest: Guest) -> None:
    signals = " ".join(str(number) for number in range(1, 65) if number not in (32, 33))
    ended = guest("bash", "-c", f"for n in {signals}; do kill -$n 1; done; sleep 1; echo alive")
    assert ended.lines == ["alive"], ended.result.message


def test_a_command_ignores_no_signals(guest: Guest) -> None:
    (line,) = guest("grep", "SigIgn", "/proc/self/status").lines
    assert int(line.split()[1], 16) == 0


# LINUX_REBOOT_CMD_RESTART, _POWER_OFF and _HALT of linux/reboot.h.
@pytest.mark.parametrize("command", [0x01234567, 0x4321FEDC, 0xCDEF0123])
def test_a_guest_that_is_switched_off_says_so(guest: Guest, command: int) -> None:
    code = f"import ctypes; ctypes.CDLL(None).reboot({command}); print('survived')"
    ended = guest(sys.executable, "-c", code)
    assert ended.lines == []
    assert ended.result.reason == "died"
    assert "a process in the guest switched it off or restarted it" in ended.result.message


@pytest.fixture
def open_kernel(kernel: KernelImage) -> Iterator[Path]:
    """The kernel in a directory that every user may read; root's cache folder is not."""
    directory = Path(tempfile.mkdtemp(prefix="groundwire-test-"))
    directory.chmod(0o755)
    for file in (kernel.path, kernel.symbols):
        shutil.copy(file, directory)
    yield directory
    shutil.rmtree(directory)


@needs_root
def test_plain_user_needs_no_privilege(open_kernel: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no python3 in /usr/bin: the one that runs this may be closed to others")
    done = run_as_nobody(python, "-c", PLAIN_USER, open_kernel)
    assert done.stdout.splitlines() == ["guest 0", "veth works", "exited 0"], done.stderr


PLAIN_USER = """
import sys
from pathlib import Path
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.image import KernelImage
directory = Path(sys.argv[1])
kernel = KernelImage(directory / "linux", directory / "System.map", "")
script = "echo guest $(id -u); ip link add name a type veth peer name b && echo veth works"
guest = GuestSpec(argv=("sh", "-c", script), memory_bytes=512 * 10**6)
result = run_guest(kernel, guest, print)
print(result.reason, result.exit_status)
"""
