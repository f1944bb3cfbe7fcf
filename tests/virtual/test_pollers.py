"""Programs that wait by polling see what happens when it happens, however they poll."""

from __future__ import annotations

import itertools
import os
import re
import resource
import socket
import subprocess
import time
from pathlib import Path

import pytest

from emulator.fidelity.busy_pollers import invalid_reasons
from testing.queue_lab import lab, star
from testing.tcp_flows import transfer

pytestmark = pytest.mark.guest

SOURCE = Path(__file__).with_name("pollers.c")
LOOPS = re.findall(r'^    \{ "([\w-]+)"', SOURCE.read_text(), re.MULTILINE)
# Two hops of 1 us and 8.16 ns: TCP's 8 bytes are 78 of a frame, 102 on the wire at 100 Gb/s.
ONE_WAY_NS = 2016


def test_every_loop_sees_a_message_when_it_arrives(tmp_path: Path) -> None:
    program = tmp_path / "pollers"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, SOURCE], check=True)
    one_way_ns = {}
    with lab(star(2, delay="1us")) as it:
        address = it.address("h1")
        for loop in LOOPS:
            with it.network.enter("h1"):
                server = subprocess.Popen([program, "server", address, loop])
            with it.network.enter("h0"):
                client = [program, "client", address, loop]
                one_way_ns[loop] = int(subprocess.check_output(client))
            assert server.wait() == 0
    assert one_way_ns == dict.fromkeys(LOOPS, ONE_WAY_NS)
    assert len(LOOPS) >= 21
    assert invalid_reasons() == []


def test_spinners_on_other_hosts_leave_a_transfer_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "spinners"
    source = SOURCE.with_name("spinners.c")
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, source], check=True)

    def took_ns(spinners: tuple[str, ...]) -> list[int]:
        with lab(star(4, delay="1us")) as it:
            started = []
            for host, spinner in zip(("h2", "h3", "h0", "h1"), spinners, strict=False):
                with it.network.enter(host):
                    started.append(subprocess.Popen([program, spinner], stdout=subprocess.PIPE))
            (flow,) = transfer(it, [("h0", "h1")], size_bytes=20_000_000)
            for process in started:
                out, _ = process.communicate()
                assert out.split()[1] == b"0"
        first = flow.points[0][0]
        return [time_ns - first for time_ns, _ in flow.points]

    alone = took_ns(())
    assert alone[-1] > 1_000_000  # the spinners' millisecond is over within it
    assert took_ns(("memory", "epoll", "pause", "poll")) == alone
    assert invalid_reasons() == []


def test_a_descriptor_that_is_used_again_stands_for_another_file() -> None:
    """The descriptor's first file was polled; the file that has its number now is ready, and nobody
    asks."""
    polled, other = socket.socketpair()
    waited, waker = socket.socketpair()
    for end in (polled, waited):
        end.setblocking(False)
    number = polled.fileno()

    def poll(end: socket.socket) -> None:
        deadline_ns = time.monotonic_ns() + 200_000
        while time.monotonic_ns() < deadline_ns:
            with pytest.raises(BlockingIOError):
                os.read(end.fileno(), 1)

    poll(polled)
    polled.close()
    again = os.open(__file__, os.O_RDONLY)
    assert again == number
    poll(waited)
    assert os.read(again, 1)
    for end in (other, waited, waker):
        end.close()
    os.close(again)
    assert invalid_reasons() == []


def test_more_descriptors_than_the_kernel_waits_for_make_a_run_invalid() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    polled, other = socket.socketpair()
    polled.setblocking(False)
    descriptors = [os.dup(polled.fileno()) for _ in range(1100)]
    deadline_ns = time.monotonic_ns() + 5_000_000
    with other:
        for descriptor in itertools.cycle(descriptors):
            with pytest.raises(BlockingIOError):
                os.read(descriptor, 1)
            if time.monotonic_ns() > deadline_ns:
                break
    for descriptor in descriptors:
        os.close(descriptor)
    assert "polls in a way that the virtual kernel cannot follow" in "".join(invalid_reasons())
