"""The same command with the same seed gives the same output, whatever the host does."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.virtual.conftest import Guest

# Everything that was seen to differ between boots, and the order in which threads and
# processes get to run.
SCRIPT = """
import os, random, socket, threading, time, uuid
print(os.urandom(16).hex(), hash("text"), uuid.uuid4(), random.random(), os.getpid())
ports = []
for _ in range(5):
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    ports += [listener.getsockname()[1], client.getsockname()[1]]
print(ports, id(object()))
order = []
def work(name):
    for _ in range(50):
        order.append(name)
        time.sleep(random.random() / 1000)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(order, time.monotonic_ns(), time.time_ns())
server = socket.create_server(("127.0.0.1", 0))
for child in range(8):
    if os.fork() == 0:
        with socket.create_connection(server.getsockname()) as sock:
            sock.sendall(bytes([child]) * 1_000_000)
        os._exit(0)
arrivals, open_socks = [], [server.accept()[0] for _ in range(8)]
import selectors
selector = selectors.DefaultSelector()
for sock in open_socks:
    selector.register(sock, selectors.EVENT_READ)
while selector.get_map():
    for key, _ in selector.select():
        data = key.fileobj.recv(65536)
        arrivals.append((key.fd, len(data)))
        if not data:
            selector.unregister(key.fileobj)
print(arrivals, time.monotonic_ns())
print(sorted(os.listdir("/tmp")), os.uname(), open("/proc/self/stat").read())
"""


def test_each_boot_has_as_much_memory(guest: Guest) -> None:
    # The host's kernel puts the guest's memory after a gap of random size unless told not to.
    if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode != 0:
        pytest.skip("this host or container forbids personality(ADDR_NO_RANDOMIZE)")
    script = "grep MemTotal /proc/meminfo; cat /proc/sys/vm/min_free_kbytes"
    boots = [guest("sh", "-c", script).lines for _ in range(4)]
    assert boots == [boots[0]] * 4


def test_boots_repeat_bit_for_bit(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    def boot(seed: int = 1) -> tuple[list[str], int]:
        ended = guest(sys.executable, "-c", SCRIPT, seed=seed, directory=Path("/"))
        assert ended.errors == []
        assert ended.result.reason == "exited"
        return ended.lines, ended.result.virtual_ns

    first = boot()
    assert boot() == first
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        assert boot() == first, "differs on a loaded host"
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    monkeypatch.setenv("SOMETHING", "else")
    elsewhere = tempfile.mkdtemp()
    monkeypatch.chdir(elsewhere)
    assert boot() == first, "differs from another directory"
    shutil.rmtree(elsewhere)
    other, _ = boot(seed=2)
    assert other[0].split()[:4] != first[0][0].split()[:4]
