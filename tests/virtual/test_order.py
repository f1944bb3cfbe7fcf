"""Orders that are drawn: of a process's threads that are ready at one time, and of files."""

from __future__ import annotations

import sys

from tests.virtual.conftest import Guest

# A line a seed: in which order four threads came whose sleeps end at one time, how many of 40
# additions of two threads were lost, and in which order epoll tells of four sockets. A process
# without a network namespace of its own is none of a host's.
_SCRIPT = """
import ctypes, os, select, socket, threading, time
HOST = %r
if HOST:
    assert ctypes.CDLL(None).unshare(0x40000000) == 0
def draw(seed):
    with open("/proc/sys/kernel/gworder", "w") as file:
        file.write(str(seed))
def together(work, many):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
pairs = [socket.socketpair() for _ in range(4)]
epoll = select.epoll()
for here, there in pairs:
    epoll.register(here)
    there.send(b"x")
names = {here.fileno(): number for number, (here, _) in enumerate(pairs)}
for seed in range(12):
    draw(seed)
    came, total = [], [0]
    def arrive(number):
        time.sleep(0.01)
        came.append(number)
    def add(number):
        for _ in range(20):
            value = total[0]
            os.stat("/")
            total[0] = value + 1
    together(arrive, 4)
    together(add, 2)
    ready = [names[file] for file, event in epoll.poll()]
    draw(0)
    print(*came, "lost", 40 - total[0], "ready", *ready)
"""


def _drawn(guest: Guest, host: bool, seed: int = 1) -> list[str]:
    ended = guest(sys.executable, "-S", "-c", _SCRIPT % host, seed=seed)
    assert ended.errors == []
    return ended.lines


def test_a_seed_orders_threads_and_files_and_says_so_again(guest: Guest) -> None:
    lines = _drawn(guest, True)
    plain = "0 1 2 3 lost 0 ready 0 1 2 3"
    assert lines[0] == plain
    orders, lost, ready = (
        {tuple(line.split()[part]) for line in lines[1:]}
        for part in (slice(0, 4), slice(5, 6), slice(7, 11))
    )
    assert min(map(len, (orders, lost, ready))) > 2
    assert all(sorted(order) == ["0", "1", "2", "3"] for order in orders | ready)
    assert _drawn(guest, True) == lines


def test_only_processes_of_hosts_are_ordered(guest: Guest) -> None:
    assert set(_drawn(guest, False)) == {"0 1 2 3 lost 0 ready 0 1 2 3"}
