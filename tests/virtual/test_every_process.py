"""The kernel runs in every process of the guest (patch 0004): what that must not change."""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from tests.traced import skip_where_traced
from tests.virtual.conftest import Guest

# A socket filter lies in the kernel's vmalloc area. It is made in one process and runs in the
# senders', which were there before it and have never seen that memory.
FILTERS = r"""
import ctypes, os, socket, struct
SO_ATTACH_FILTER, SO_DETACH_FILTER, RET = 26, 27, 0x06
receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
turns = [os.pipe() for _ in range(4)]
for end, _ in turns:
    if os.fork() == 0:
        while os.read(end, 1):
            sender.send(b"0123456789")
        os._exit(0)
for length in range(1, 9):
    program = ctypes.create_string_buffer(struct.pack("HBBI", RET, 0, 0, length) * 1)
    packed = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))
    receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, packed)
    for _, start in turns:
        os.write(start, b"x")
        print(length, len(receiver.recv(100)))
    receiver.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, packed)
"""


def test_memory_that_one_process_made_is_there_in_all(guest: Guest) -> None:
    ended = guest(sys.executable, "-c", FILTERS)
    assert ended.lines == [f"{length} {length}" for length in range(1, 9) for _ in range(4)]


# Enough of them, in several pages each, for the kernel to hand out addresses again: a sender that
# had kept the pages that were there before would run instructions of a filter that is gone.
MANY_FILTERS = r"""
import ctypes, os, socket, struct
SO_ATTACH_FILTER, SO_DETACH_FILTER, RET, INSTRUCTIONS = 26, 27, 0x06, 4000
receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
turns = [os.pipe() for _ in range(2)]
for end, _ in turns:
    if os.fork() == 0:
        while os.read(end, 1):
            sender.send(b"0123456789")
        os._exit(0)
wrong = 0
for i in range(1000):
    length = 1 + i % 7
    program = ctypes.create_string_buffer(struct.pack("HBBI", RET, 0, 0, length) * INSTRUCTIONS)
    packed = struct.pack("HxxxxxxP", INSTRUCTIONS, ctypes.addressof(program))
    receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, packed)
    os.write(turns[i % 2][1], b"x")
    wrong += len(receiver.recv(100)) != length
    receiver.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, packed)
print(wrong)
"""


def test_memory_that_one_process_freed_is_forgotten_by_all(guest: Guest) -> None:
    ended = guest(sys.executable, "-c", MANY_FILTERS)
    assert ended.lines == ["0"], ended.result.message


ADDRESSES = r"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
PRIVATE_ANONYMOUS, FIXED, IN_32_BIT, NO_RESERVE = 0x22, 0x10, 0x40, 0x4000
def mapped(address, flags, size=4096):
    flags |= PRIVATE_ANONYMOUS | NO_RESERVE
    found = libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(size), 3, flags, -1, 0)
    failed = found == ctypes.c_void_p(-1).value
    return errno.errorcode[ctypes.get_errno()] if failed else found
print(mapped(0x60000000, FIXED), mapped(0x10000, FIXED, 2**31))
print(mapped(0x5ffff000, FIXED) == 0x5ffff000)
print(mapped(0, 0) >= 2**38, mapped(0x60000000, 0) >= 2**38)
print(mapped(0, 0, 2**36) >= 2**38, mapped(0x10000, 0, 2**31) >= 2**38)
print(mapped(0, IN_32_BIT) < 2**31, mapped(0, IN_32_BIT, 2**31))
"""


def test_the_kernels_addresses_are_not_for_user_code(guest: Guest) -> None:
    """They are refused to who insists on them; others are given other ones, also for 64 GiB."""
    ended = guest(sys.executable, "-c", ADDRESSES)
    assert ended.lines == ["EINVAL EINVAL", "True", *["True True"] * 2, "True ENOMEM"]


LISTING = r"""
import os
os.makedirs("/tmp/d")
for name in range(2000):
    open(f"/tmp/d/{name}", "w").close()
def child():
    assert len(os.listdir("/usr/bin")) > 10
    assert len(os.listdir("/tmp/d")) == 2000
    os._exit(0)
for _ in range(8):
    if os.fork() == 0:
        child()
print({os.wait()[1] for _ in range(8)})
"""


def test_directories_are_listed_from_any_process(guest: Guest) -> None:
    assert guest(sys.executable, "-c", LISTING).lines == ["{0}"]


@skip_where_traced
def test_a_process_that_the_host_ends_is_missed(guest: Guest) -> None:
    """As the host does when it runs out of memory."""
    lost = threading.Event()

    def lose_one() -> None:
        while not lost.wait(0.1):
            for pid in _processes_of_own_guest()[-1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=lose_one)
    thread.start()
    try:
        ended = guest(sys.executable, "-c", "import time\nwhile True: time.sleep(0.001)")
    finally:
        lost.set()
        thread.join()
    assert ended.result.reason == "died"
    assert any("of the guest ended on the host" in line for line in ended.result.console)


def _processes_of_own_guest() -> list[int]:
    """Host processes of the guest that this process has started, but for its first one."""
    status = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
            status[int(name)] = int(fields[1])
    leaders = {pid for pid, parent in status.items() if parent == os.getpid()}
    return sorted(
        pid for pid, parent in status.items() if parent in leaders and os.getsid(pid) in leaders
    )
