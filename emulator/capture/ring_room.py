"""How much room the ring backend has for packets that nobody has written to a file yet."""

from __future__ import annotations

from typing import Final

# Room in rings for all ports together, at most, and as a share of the memory that is free (a
# virtual kernel has little); a frame of the default snap length takes 256 bytes.
_RING_BYTES: Final = 256 << 20
_RING_SHARE: Final = 8
_FEWEST_FRAMES: Final = 1024
# In virtual time a ring is emptied in no time. And each frame of several pages is two mappings on
# the host (its first page is written to), of which a process may have 65,530.
_FEWEST_FRAMES_VIRTUAL: Final = 64
_MOST_FRAMES: Final = 1 << 15
# Where tpacket_rcv puts an Ethernet header: TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - 14.
_ETHERNET_OFFSET: Final = 66


def frame_bytes(snaplen: int) -> int:
    """Bytes of the ring that a packet takes: a power of two, so that frames fill blocks."""
    return int(1 << (_ETHERNET_OFFSET + snaplen - 1).bit_length())


def frames_per_port(ports: int, snaplen: int, free_bytes: int, real_time: bool) -> int:
    """How many packets the ring of each port holds, where so much memory is free."""
    room_bytes = min(_RING_BYTES, free_bytes // _RING_SHARE)
    frames = room_bytes // frame_bytes(snaplen) // max(1, ports)
    fewest = _FEWEST_FRAMES if real_time else _FEWEST_FRAMES_VIRTUAL
    return min(max(frames, fewest), _MOST_FRAMES)


def ring_bytes_of_guest(ports: int, snaplen: int, free_bytes: int) -> int:
    """What the rings of all ports take together in a guest with so much memory free."""
    frames = frames_per_port(ports, snaplen, free_bytes, real_time=False)
    return ports * frames * frame_bytes(snaplen)
