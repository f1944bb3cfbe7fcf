"""How much room the ring backend has for packets that nobody has written to a file yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

Backend = Literal["auto", "socket", "ring"]

# Room in rings for all ports together, at most, and as a share of the memory that is free (a
# virtual kernel has little); a frame of the default snap length takes 256 bytes.
_RING_BYTES: Final = 256 << 20
_RING_SHARE: Final = 8
_FEWEST_FRAMES: Final = 1024
# In virtual time a ring is emptied in no time. And each frame of several pages is two mappings on
# the host (its first page is written to), of which a process may have 65,530.
_FEWEST_FRAMES_VIRTUAL: Final = 64
_MOST_FRAMES: Final = 1 << 15
# In real time half a ring at one packet every 60 ns: 100 Gb/s of 700-byte packets, or of 9000-byte
# ones and their acknowledgements with room to spare.
_FILL_NS_PER_FRAME: Final = 30
# In virtual time a ring has room for the smallest frames, 64 bytes and 20 of L1 overhead, in both
# directions, for so long. Its reader is there when half of it is full (patch 0022).
_ROOM_NS: Final = 12_000
# With less, readings are so many that packets may as well come one by one.
_LEAST_ROOM_NS: Final = 3_000
_SMALLEST_FRAME_BITS: Final = 84 * 8
# The place where tpacket_rcv puts an Ethernet header: TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - 14.
_ETHERNET_OFFSET: Final = 66


def frame_bytes(snaplen: int) -> int:
    """Bytes of the ring that a packet takes: a power of two, so that frames fill blocks."""
    return int(1 << (_ETHERNET_OFFSET + snaplen - 1).bit_length())


def frames_in_real_time(ports: int, snaplen: int, free_bytes: int) -> int:
    """How many packets the ring of each port holds, where so much memory is free."""
    frames = _most_frames(snaplen, free_bytes) // max(1, ports)
    return min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)


def pause_ns(frames: int) -> int:
    """For how long packets may gather in a ring of so many, in real time."""
    return frames * _FILL_NS_PER_FRAME


def frames_in_virtual_time(
    backend: Backend, rates_bps: Sequence[int], held_ns: int, snaplen: int, free_bytes: int
) -> tuple[int, ...] | None:
    """How many packets the ring of each port holds, by the ports' rates, where so much memory is
    free and interfaces hold what they receive for `held_ns`; None where there are no rings."""
    if backend == "socket":
        return None
    wanted = [
        2 * rate * (_ROOM_NS + held_ns) // (_SMALLEST_FRAME_BITS * 10**9) + 1 for rate in rates_bps
    ]
    part = min(1.0, _most_frames(snaplen, free_bytes) / max(1, sum(wanted)))
    frames = tuple(max(int(part * most), _FEWEST_FRAMES_VIRTUAL) for most in wanted)
    filled_ns = (
        held * _SMALLEST_FRAME_BITS * 10**9 // (2 * rate)
        for held, rate in zip(frames, rates_bps, strict=True)
    )
    if backend == "auto" and any(room_ns < _LEAST_ROOM_NS + held_ns for room_ns in filled_ns):
        return None
    return frames


def ring_bytes_of_guest(
    backend: Backend, rates_bps: Sequence[int], held_ns: int, snaplen: int, free_bytes: int
) -> int:
    """The memory of the rings of all ports together in a guest with so much memory free."""
    frames = frames_in_virtual_time(backend, rates_bps, held_ns, snaplen, free_bytes)
    return sum(frames or ()) * frame_bytes(snaplen)


def _most_frames(snaplen: int, free_bytes: int) -> int:
    """The room of all ports together."""
    return min(_RING_BYTES, free_bytes // _RING_SHARE) // frame_bytes(snaplen)
