"""The kernel's choice of entropy values (emulator/kernel/rxe/rxe_entropy.c), compiled for user
space."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from emulator.virtual.building.source import KERNEL_FILES

MOST = 256
"""RXE_ENTROPY_MOST."""


class EntropySettings(ctypes.Structure):
    """struct rxe_entropy_settings."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("values", "least", "probe_interval_ns"))


class _State(ctypes.Structure):
    _fields_ = (
        ("next", ctypes.c_uint32),
        ("bad", ctypes.c_uint32),
        ("skipped", ctypes.c_bool * MOST),
        ("probe_ns", ctypes.c_uint64 * MOST),
    )


class EntropyValues:
    """The values of one queue pair."""

    def __init__(self, values: int, least: int, probe_interval_ns: int) -> None:
        self._set = EntropySettings(values, least, probe_interval_ns)
        self._state = _State()
        _library().rxe_entropy_init(ctypes.byref(self._state))

    def take(self, now_ns: int) -> tuple[int, int | None]:
        """The value of the next packet, and the one that is probed with it."""
        probe = ctypes.c_uint32()
        of = ctypes.byref(self._state), ctypes.byref(self._set)
        value = _library().rxe_entropy_take(*of, ctypes.c_uint64(now_ns), ctypes.byref(probe))
        return int(value), None if probe.value == self._set.values else probe.value

    def marked(self, value: int) -> None:
        """A packet met a queue."""
        _library().rxe_entropy_marked(ctypes.byref(self._state), ctypes.c_uint32(value))

    def lost(self, value: int, now_ns: int) -> None:
        """A packet was lost."""
        of = ctypes.byref(self._state), ctypes.byref(self._set), ctypes.c_uint32(value)
        _library().rxe_entropy_lost(*of, ctypes.c_uint64(now_ns))

    def answered(self, value: int) -> None:
        """A probe came back."""
        _library().rxe_entropy_answered(ctypes.byref(self._state), ctypes.c_uint32(value))


@cache
def _library() -> ctypes.CDLL:
    with TemporaryDirectory(prefix="groundwire-entropy-") as scratch:
        made = Path(scratch) / "entropy.so"
        source = KERNEL_FILES / "rxe" / "rxe_entropy.c"
        flags = ["-O1", "-shared", "-fPIC", f"-I{KERNEL_FILES}", f"-I{KERNEL_FILES / 'rxe'}"]
        checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"]
        subprocess.run(["gcc", *flags, *checks, "-o", str(made), str(source)], check=True)
        return ctypes.CDLL(str(made))
