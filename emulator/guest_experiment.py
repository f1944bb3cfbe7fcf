"""The experiment as a program: what the virtual kernel runs. Progress goes to stdout, a line each.

python -m emulator.guest_experiment RUN_DIRECTORY
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from emulator.capture import CaptureError
from emulator.experiment import DeadlockFound, Kernel, run_experiment
from emulator.full_directory import FULL
from emulator.launcher import RankFailed
from emulator.ports import UnsupportedPort
from emulator.progress import Progress
from emulator.queue_recorder import sampling_of
from emulator.queues import QueueArrangement
from topologies.fabric import Fabric
from topologies.spec import load_spec

FAILED = "failed"
"""The stage of a progress that says why the experiment has failed."""


def main(directory: Path) -> int:
    """Run the spec in a run directory; the last progress says what failed. Returns 0 or 1."""
    try:
        spec = load_spec(directory / "spec.yaml")

        def arrange(fabric: Fabric) -> QueueArrangement:
            return QueueArrangement(fabric, spec.seed, sampling_of(spec, fabric))

        run_experiment(spec, directory, Kernel(arrange, real_time=False), _tell)
    except (RankFailed, DeadlockFound, UnsupportedPort, CaptureError) as failure:
        _tell(Progress(FAILED, str(failure)))
        return 1
    except OSError as failure:
        full = failure.errno in FULL
        _tell(Progress(FAILED, str(failure) if full else traceback.format_exc()))
        return 1
    except Exception:
        _tell(Progress(FAILED, traceback.format_exc()))
        return 1
    return 0


def _tell(progress: Progress) -> None:
    print(progress.encode(), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
