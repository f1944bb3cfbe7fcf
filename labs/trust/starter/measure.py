"""Measures messages of several sizes and fits model.py to them. Nothing to change here.

`measure.py SIZE`, in KB: four messages, of SIZE, 2 SIZE, 3 SIZE and 4 SIZE, are for the fit. One of
20 SIZE is held out. Each goes over a TCP connection of its own, and is answered by one byte.
"""

import os
import socket
import sys
import time

import model

PORT = 5000
FITTED = (1, 2, 3, 4)
HELD_OUT = 20


def message(other: str, size_bytes: int) -> int:
    """Nanoseconds until the other host has received a message, and said so (rank 0)."""
    with socket.create_connection((other, PORT)) as tcp:
        before = time.monotonic_ns()
        tcp.sendall(bytes(size_bytes))
        tcp.recv(1)
        return time.monotonic_ns() - before


def receive(server: socket.socket, size_bytes: int) -> None:
    """Receive a message, then say so (rank 1)."""
    tcp, _ = server.accept()
    with tcp:
        while size_bytes > 0:
            size_bytes -= len(tcp.recv(1 << 20))
        tcp.sendall(b"!")
        tcp.recv(1)  # until the other end has closed


def main() -> None:
    sizes_kb = [times * int(sys.argv[1]) for times in (*FITTED, HELD_OUT)]
    if os.environ["RANK"] == "1":
        with socket.create_server(("", PORT)) as server:
            for size_kb in sizes_kb:
                receive(server, 1000 * size_kb)
        return
    time.sleep(0.01)  # the other host is listening by then
    took_ns = [message("h1", 1000 * size_kb) for size_kb in sizes_kb]
    alpha_ns, beta_ns = model.fit(sizes_kb[:-1], took_ns[:-1])
    for number, measured_ns in enumerate(took_ns[:-1], 1):
        print(f"message_{number}_ns {measured_ns}")
    print(f"held_out_ns {took_ns[-1]}")
    print(f"alpha_ns {alpha_ns:.3f}")
    print(f"beta_ns {beta_ns:.3f}")


if __name__ == "__main__":
    main()
