"""A guest's memory, as long as it is enough, changes nothing of what its programs see of time,
chance and the network."""

import os
import sys
from pathlib import Path

from tests.virtual.conftest import Guest

_LIMITS = ("tcp_max_syn_backlog", "tcp_max_tw_buckets", "tcp_max_orphans", "tcp_mem", "udp_mem",
           "tcp_rmem", "tcp_wmem", "inet_peer_threshold")  # fmt: skip
# Seen to differ: random numbers, how often they are drawn (each address to which a
# datagram goes draws for its IP identifier, unless another has just done so in the same place of
# a table), ports, limits of sockets, and how much of a receive buffer the same data takes.
_SCRIPT = f"""
import os, random, socket, struct, sys, time
SO_MEMINFO, IP_MTU_DISCOVER, IP_PMTUDISC_DONT = 55, 10, 0
print(os.urandom(8).hex(), hash("text"))
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(1000)]
[sock.bind(("127.0.0.1", 0)) for sock in sockets]
print([sock.getsockname()[1] for sock in sockets])
sockets[0].close()
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
for number in range(20_000):
    sender.sendto(b"x", (f"127.{{number % 200}}.{{number // 200}}.1", 9))
    if number % 500 == 0:
        time.sleep(0.003)
print(os.urandom(8).hex())
libc = __import__("ctypes").CDLL(None)
print([open(f"/proc/sys/net/ipv4/{{name}}").read() for name in {_LIMITS!r}])
libc.unshare(0x40000000)  # CLONE_NEWNET
print([open(f"/proc/sys/net/ipv4/{{name}}").read() for name in {_LIMITS!r}
       if os.path.exists(f"/proc/sys/net/ipv4/{{name}}")])
libc.setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0)
with open(sys.argv[1], "rb", buffering=0) as large:
    while large.read(1 << 20):
        pass
    free_kb = int(open("/proc/meminfo").read().split("MemFree:")[1].split()[0])
    print(f"{{free_kb // 1024}} MB free", file=sys.stderr)
    server, pairs, taken = socket.create_server(("127.0.0.1", 0)), [], []
    for _ in range(100):
        pair = socket.create_connection(server.getsockname()), server.accept()[0]
        pair[0].setblocking(False)
        try:
            for number in range(200):
                pair[0].send(bytes(1 + (number * 131 + len(pairs) * 977) % 30_000))
        except BlockingIOError:
            pass
        time.sleep(0.01)
        pairs.append(pair)
        memory = [struct.unpack("9I", end.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))
                  for end in pair]
        taken.append(memory)
    print(taken)
print(time.monotonic_ns())
"""


def test_more_memory_changes_nothing(guest: Guest, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, 900 * 10**6)  # sparse: more than the small guest has, less than the large

    def boot(memory_bytes: int) -> tuple[list[str], int]:
        ended = guest(
            sys.executable, "-c", _SCRIPT, large,
            memory_bytes=memory_bytes, writable=(tmp_path,), directory=Path("/"),
        )  # fmt: skip
        assert ended.result.reason == "exited"
        assert ended.result.exit_status == 0, ended.errors
        return ended.lines, int(ended.errors[0].split()[0])

    (small, small_free_mb), (large_one, large_free_mb) = boot(500 * 10**6), boot(2 * 10**9)
    assert small_free_mb < 50, "its memory was to be full of the file"
    assert large_free_mb > 500
    names = ("random", "UDP ports", "drawn for IP identifiers", "limits", "limits of a namespace",
             "buffers", "time")  # fmt: skip
    assert len(small) == len(names)
    differ = [n for n, a, b in zip(names, small, large_one, strict=True) if a != b]
    assert differ == []
