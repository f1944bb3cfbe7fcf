"""Measures the network between two hosts: `measure.py PING_BYTES TRANSFER_BYTES`.

Every host runs this program. RANK says which one it is: rank 0 measures, rank 1 is the other end.
Time is virtual: computing takes none of it, so what you measure is the network's time alone.
"""

import os
import socket
import sys
import time

PORT = 5000
ANSWER = b"!"


def ping(other: str, size: int) -> int:
    """Nanoseconds until a packet of `size` bytes has come back from the other host (rank 0)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("", PORT))
        before = time.monotonic_ns()
        udp.sendto(bytes(size), (other, PORT))
        udp.recv(size)
        return time.monotonic_ns() - before


def echo(size: int) -> None:
    """Send one packet back to where it came from (rank 1)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("", PORT))
        data, sender = udp.recvfrom(size)
        udp.sendto(data, sender)


def transfer(other: str, size: int) -> int:
    """Nanoseconds until the other host has received `size` bytes over TCP (rank 0)."""
    block = bytes(1_000_000)
    with socket.create_connection((other, PORT)) as tcp:
        before = time.monotonic_ns()
        for _ in range(size // len(block)):
            tcp.sendall(block)
        tcp.recv(1)
        return time.monotonic_ns() - before


def sink(size: int) -> None:
    """Receive `size` bytes over TCP, then say so (rank 1)."""
    with socket.create_server(("", PORT)) as server:
        tcp, _ = server.accept()
        with tcp:
            while size > 0:
                size -= len(tcp.recv(1 << 20))
            tcp.sendall(ANSWER)
            tcp.recv(1)  # until the other end has closed


def main() -> None:
    ping_bytes, transfer_bytes = int(sys.argv[1]), int(sys.argv[2])
    if os.environ["RANK"] == "1":
        echo(ping_bytes)
        sink(transfer_bytes)
        return
    time.sleep(0.01)  # the other host is listening by then
    print(f"ping_ns {ping('h1', ping_bytes)}")
    time.sleep(0.01)
    print(f"transfer_ns {transfer('h1', transfer_bytes)}")


if __name__ == "__main__":
    main()
