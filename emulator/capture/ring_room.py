"""How much room the ring backend has for packets that nobody has written to a file yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

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
_PAUSE_NS: Final = 10_000
_LATE_NS: Final = 2_000
_SMALLEST_FRAME_BITS: Final = 84 * 8
# With less, readings are so many that packets may as well come one by one.
_LEAST_PAUSE_NS: Final = 1_000
# Where tpacket_rcv puts an Ethernet header: TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - 14.
_ETHERNET_OFFSET: Final = 66


@dataclass(frozen=True, slots=True)
class RingRoom:
    """How many frames the ring of each port holds, and for how long packets may gather there, which
    in virtual time need not be heeded; 0 where each has to be read at once."""

    frames: tuple[int, ...]
    pause_ns: int


def frame_bytes(snaplen: int) -> int:
    """Bytes of the ring that a packet takes: a power of two, so that frames fill blocks."""
    return int(1 << (_ETHERNET_OFFSET + snaplen - 1).bit_length())


def room_in_real_time(ports: int, snaplen: int, free_bytes: int) -> RingRoom:
    """Rings of so many ports, where so much memory is free."""
    frames = _most_frames(snaplen, free_bytes) // max(1, ports)
    frames = min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)
    return RingRoom((frames,) * ports, frames * _FILL_NS_PER_FRAME)


def room_in_virtual_time(
    rates_bps: Sequence[int], held_ns: int, snaplen: int, free_bytes: int
) -> RingRoom:
    """Rings of ports of these rates that hold what they receive for `held_ns`, where so much memory
    is free."""
    if not rates_bps:
        return RingRoom((), _PAUSE_NS)
    unread_ns = _LATE_NS + held_ns
    wanted = [2 * rate * (_PAUSE_NS + unread_ns) // (_SMALLEST_FRAME_BITS * 10**9) + 1
              for rate in rates_bps]  # fmt: skip
    part = min(1.0, _most_frames(snaplen, free_bytes) / sum(wanted))
    frames = tuple(max(int(part * most), _FEWEST_FRAMES_VIRTUAL) for most in wanted)
    filled_ns = min(
        held * _SMALLEST_FRAME_BITS * 10**9 // (2 * rate)
        for held, rate in zip(frames, rates_bps, strict=True)
    )
    pause_ns = min(_PAUSE_NS, filled_ns - unread_ns)
    return RingRoom(frames, pause_ns if pause_ns >= _LEAST_PAUSE_NS else 0)


def ring_bytes_of_guest(
    backend: Literal["auto", "scapy", "ring"],
    rates_bps: Sequence[int],
    held_ns: int,
    snaplen: int,
    free_bytes: int,
) -> int:
    """What the rings of all ports take together in a guest with so much memory free."""
    if backend == "scapy":
        return 0
    room = room_in_virtual_time(rates_bps, held_ns, snaplen, free_bytes)
    if backend == "auto" and not room.pause_ns:
        return 0
    return sum(room.frames) * frame_bytes(snaplen)


def _most_frames(snaplen: int, free_bytes: int) -> int:
    """Of all ports together."""
    return min(_RING_BYTES, free_bytes // _RING_SHARE) // frame_bytes(snaplen)
