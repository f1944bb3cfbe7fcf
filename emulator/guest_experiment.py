"""The experiment as a program: what the virtual kernel runs. Progress goes to stdout, a line each.

python -m emulator.guest_experiment RUN_DIRECTORY
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from emulator.capture import CaptureError
from emulator.experiment import DeadlockFound, KernelProfile, run_experiment
from emulator.ports.arrangement import UnsupportedPort
from emulator.ports.own_queues import QueueArrangement
from emulator.ports.queue_recorder import sampling_of
from emulator.progress import Progress
from emulator.ranks.full_directory import FULL
from emulator.ranks.launcher import RankFailed
from topologies.fabrics.fabric import Fabric
from topologies.spec.spec import load_spec

FAILED = "failed"
"""The stage of a progress that says why the experiment has failed."""


def main(directory: Path) -> int:
    """Run the spec in a run directory; the last progress says what failed. Returns 0 or 1."""
    try:
        spec = load_spec(directory / "spec.yaml")

        def arrange(fabric: Fabric) -> QueueArrangement:
            return QueueArrangement(fabric, spec.seed, sampling_of(spec, fabric))

        run_experiment(spec, directory, KernelProfile(arrange, real_time=False), _print_progress)
    except (RankFailed, DeadlockFound, UnsupportedPort, CaptureError) as failure:
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


def _print_progress(progress: Progress) -> None:
    print(progress.encode(), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
