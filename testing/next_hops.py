"""The kernel's choices of next hops (emulator/kernel/gwroute_*.c), compiled for user space."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

KERNEL = Path(__file__).parents[1] / "emulator" / "kernel"
MOST_HOPS, FLOWS = 64, 16384
REST_NS = 5_000_000
SPRAY, FLOWLET, ADAPTIVE, SOURCE = 1, 2, 3, 4
RANDOM, ROUND_ROBIN, LEAST_OF_TWO, LEAST = range(4)

_Load = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32)
_U64, _U32 = ctypes.c_uint64, ctypes.c_uint32


class _Settings(ctypes.Structure):
    _fields_ = tuple(
        (name, _U64)
        for name in ("kind", "by", "seed", "gap_ns", "threshold_bytes", "hold_ns", "stride")
    )


class _Flow(ctypes.Structure):
    _fields_ = (("last_ns", _U64), ("moved_ns", _U64), ("hop", _U32))


class _State(ctypes.Structure):
    _fields_ = (
        ("set", _Settings),
        ("random", _U64),
        ("flows", ctypes.POINTER(_Flow)),
        *((name, _U64) for name in ("last_ns", "began_ns", "choices", "moves")),
    )


class _Turn(ctypes.Structure):
    _fields_ = (("count", _U64), ("began_ns", _U64))


class _Hops(ctypes.Structure):
    _fields_ = (
        ("count", _U32),
        ("id", _U32 * MOST_HOPS),
        ("turn", ctypes.POINTER(_Turn)),
        ("number", _U32),
        ("load", _Load),
        ("of", ctypes.c_void_p),
    )


class Chooser:
    """A switch with one set of next hops. `loads` gives what waits at each of them, in bytes."""

    def __init__(
        self,
        *,
        kind: int,
        hops: Sequence[int],
        by: int = RANDOM,
        seed: int = 1,
        gap_ns: int = 0,
        threshold_bytes: int = 0,
        hold_ns: int = 0,
        stride: int = 1,
        loads: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        self._flows = (_Flow * FLOWS)()
        settings = _Settings(kind, by, seed, gap_ns, threshold_bytes, hold_ns, stride)
        self._state = _State(settings, 0, ctypes.cast(self._flows, ctypes.POINTER(_Flow)))
        _library().gwroute_begin(ctypes.byref(self._state))
        self._turn = _Turn()
        load = _Load(lambda _, hop: 2 * loads()[hop] if loads is not None else 0)
        ids, turn = (_U32 * MOST_HOPS)(*hops), ctypes.pointer(self._turn)
        self._hops = _Hops(len(hops), ids, turn, 0, load)

    def take(self, key: int = 0, now_ns: int = 0, number: int = 0) -> int:
        """The position of the next hop that a packet of a flow takes."""
        self._hops.number = number
        state, hops = ctypes.byref(self._state), ctypes.byref(self._hops)
        found: int = _library().gwroute_take(state, hops, _U64(key), _U64(now_ns))
        return found

    @property
    def moves(self) -> int:
        """Flows that went on by another hop."""
        return int(self._state.moves)


@cache
def _library() -> ctypes.CDLL:
    with TemporaryDirectory(prefix="groundwire-next-hops-") as scratch:
        made = Path(scratch) / "next_hops.so"
        names = ("choose", "spray", "flowlet", "adaptive", "source")
        sources = [str(KERNEL / f"gwroute_{name}.c") for name in names]
        warnings = ["-Wall", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"]
        flags = ["-O1", "-shared", "-fPIC", f"-I{KERNEL}"]
        subprocess.run(["gcc", *flags, *warnings, "-o", str(made), *sources], check=True)
        found = ctypes.CDLL(str(made))
    found.gwroute_take.restype = _U32
    return found
