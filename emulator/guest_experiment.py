"""The experiment as a program: what the virtual kernel runs. Progress goes to stdout, a line each.

Where there is no run directory yet, this is a guest of which copies run experiments: all that none
depends on is done, and told; then the run directory is there.
"""

from __future__ import annotations

import json
import os
import traceback
from contextlib import ExitStack
from pathlib import Path

from emulator.capture import CaptureError
from emulator.experiment import DeadlockFound, KernelProfile, Until, run_experiment
from emulator.guest_entry import BOOT_SEED, IMPORTING, UNTIL
from emulator.home_directory import writable_homes
from emulator.ports.arrangement import UnsupportedPort
from emulator.ports.own_queues import QueueArrangement
from emulator.ports.sampling import sampling_of
from emulator.progress import FAILED, Progress
from emulator.ranks.failures.full_directory import FULL
from emulator.ranks.failures.hang_watch import RunHangs
from emulator.ranks.launcher import Launcher, RankFailed
from emulator.ranks.program_jobs import EarlyImport
from topologies.fabrics.fabric import Fabric
from topologies.spec.payload_scaling import wire_spec
from topologies.spec.spec import load_spec

SPEC_FILE = "spec.yaml"
_PREPARED, _ORDERS = 3, 4
"""Files of a guest that stands still (emulator/virtual/guest.py)."""


def main(directory: Path) -> int:
    """Run the spec in a run directory; the last progress says what failed. Returns 0 or 1."""
    with ExitStack() as stack:
        launcher = None
        if not (directory / SPEC_FILE).exists():
            importing = EarlyImport.read(Path(IMPORTING))
            ours = importing is None
            launcher = stack.enter_context(Launcher(with_torch=ours, importing=importing))
            launcher.wait_until_prepared()
            os.write(_PREPARED, b"p")
            os.read(_ORDERS, 1)
            os.close(_PREPARED)
            os.close(_ORDERS)
        return _run(directory, launcher)


def _run(directory: Path, launcher: Launcher | None) -> int:
    try:
        spec = wire_spec(load_spec(directory / SPEC_FILE))

        def arrange(fabric: Fabric) -> QueueArrangement:
            return QueueArrangement(fabric, spec.seed, sampling_of(spec, fabric))

        profile = KernelProfile(arrange, real_time=False)
        # Guests that import torch for a program have booted alike, whatever the seed.
        seed = spec.seed if os.path.exists(IMPORTING) and spec.seed != BOOT_SEED else None
        with writable_homes(spec, directory):
            run_experiment(spec, directory, profile, _print_progress, launcher, seed, _until())
    except (RankFailed, DeadlockFound, RunHangs, UnsupportedPort, CaptureError) as failure:
        _print_progress(Progress(FAILED, str(failure)))
        return 1
    except OSError as failure:
        full = failure.errno in FULL
        _print_progress(Progress(FAILED, str(failure) if full else traceback.format_exc()))
        return 1
    except Exception:
        _print_progress(Progress(FAILED, traceback.format_exc()))
        return 1
    return 0


def _until() -> Until | None:
    try:
        return Until(**json.loads(Path(UNTIL).read_text()))
    except FileNotFoundError:
        return None


def _print_progress(progress: Progress) -> None:
    print(progress.encode(), flush=True)
