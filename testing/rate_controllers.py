"""The kernel's controllers of rates (emulator/kernel/rxe), compiled for user space."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

KERNEL = Path(__file__).parents[1] / "emulator" / "kernel"
ONE_Q32 = 2**32


FIELDS = (
    *("kind", "line_bps", "min_bps", "additive_bps", "hyper_bps"),
    *("cnp_interval_ns", "alpha_interval_ns", "decrease_interval_ns"),
    *("increase_interval_ns", "gain_q32", "fast_stages", "clamp_target"),
    *("rtt_min_ns", "rtt_low_ns", "rtt_high_ns", "ewma_q32", "beta_q32", "hyper_after"),
    *("base_rtt_ns", "target_q32", "max_stage", "target_delay_ns", "scale_q16"),
)


class Settings(ctypes.Structure):
    """struct rxe_rate_settings."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in FIELDS)


class Dcqcn(ctypes.Structure):
    """struct rxe_dcqcn."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("rate_bps", "target_bps", "alpha_q32")),
        *((f"next_{name}_ns", ctypes.c_uint64) for name in ("alpha", "decrease", "increase")),
        ("stage", ctypes.c_uint32),
        *((name, ctypes.c_uint8) for name in ("active", "cnp_for_alpha", "cnp_for_decrease")),
    )


class Timely(ctypes.Structure):
    """struct rxe_timely."""

    _fields_ = (
        ("rate_bps", ctypes.c_uint64),
        ("previous_rtt_ns", ctypes.c_uint64),
        ("difference_q16", ctypes.c_int64),
        ("increases", ctypes.c_uint32),
    )


class Hop(ctypes.Structure):
    """struct gw_int_hop."""

    _fields_ = (
        ("time_ns", ctypes.c_uint32),
        ("tx_bytes", ctypes.c_uint32),
        ("queue", ctypes.c_uint16),
        ("rate_100mbps", ctypes.c_uint16),
    )


MAX_HOPS = 8


class Hpcc(ctypes.Structure):
    """struct rxe_hpcc."""

    _fields_ = (
        ("rate_bps", ctypes.c_uint64),
        ("reference_bps", ctypes.c_uint64),
        ("utilisation_q20", ctypes.c_uint64),
        ("stage", ctypes.c_uint32),
        ("hops", ctypes.c_uint32),
        ("hop_valid", ctypes.c_uint8),
        ("last", Hop * MAX_HOPS),
    )


class Dctcp(ctypes.Structure):
    """struct rxe_dctcp."""

    _fields_ = (
        ("window_bytes", ctypes.c_uint64),
        ("alpha_q32", ctypes.c_uint64),
        ("acked", ctypes.c_uint32),
        ("marked", ctypes.c_uint32),
        ("reduced", ctypes.c_uint8),
    )


class Nscc(ctypes.Structure):
    """struct rxe_nscc."""

    _fields_ = (
        ("window_bytes", ctypes.c_uint64),
        ("average_q8", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("increase", "adjust_bytes", "adjusted_ns")),
        *((name, ctypes.c_uint64) for name in ("shrank_ns", "fast_bytes", "round_bytes")),
        *((name, ctypes.c_uint64) for name in ("round_ends_ns", "ignore_bytes", "ignored_bytes")),
        *((name, ctypes.c_uint8) for name in ("fast", "trimmed")),
    )


class Heard(ctypes.Structure):
    """struct rxe_nscc_heard."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("now_ns", "packet_bytes", "most_bytes", "acked_bytes", "flight_bytes")
    )


@cache
def library() -> ctypes.CDLL:
    """All of them; times are uint64."""
    with TemporaryDirectory(prefix="groundwire-controllers-") as scratch:
        found = ctypes.CDLL(str(_compiled(Path(scratch))))
    for name in ("rxe_dcqcn_advance", "rxe_dcqcn_cnp", "rxe_timely_rtt"):
        getattr(found, name).argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    found.rxe_dctcp_init.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
    found.rxe_dctcp_ack.argtypes = (
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64),
        *(ctypes.c_bool, ctypes.c_bool),
    )
    found.rxe_nscc_init.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
    found.rxe_nscc_acked.argtypes = (
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_uint64, ctypes.c_bool),
    )
    found.rxe_nscc_trimmed.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    found.rxe_hpcc_ack.argtypes = (
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_uint32, ctypes.c_bool),
    )
    return found


def _compiled(directory: Path) -> Path:
    made = directory / "controllers.so"
    sources = [
        str(KERNEL / "rxe" / f"rxe_{name}.c")
        for name in ("dcqcn", "timely", "hpcc", "dctcp", "nscc")
    ]
    warnings = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"]
    flags = ["-O1", "-shared", "-fPIC", f"-I{KERNEL}", f"-I{KERNEL / 'rxe'}"]
    subprocess.run(["gcc", *flags, *warnings, "-o", str(made), *sources], check=True)
    return made
