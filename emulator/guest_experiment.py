"""The experiment as a program: what the virtual kernel runs. Progress goes to stdout, a line each.

python -m emulator.guest_experiment RUN_DIRECTORY
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from emulator.experiment import DeadlockFound, Kernel, run_experiment
from emulator.launcher import RankFailed
from emulator.ports import UnsupportedPort
from emulator.progress import Progress
from emulator.queue_recorder import sampling_of
from emulator.queues import QueueArrangement
from topologies.fabric import Fabric
from topologies.spec import load_spec

FAILURE_FILE = "failure.txt"


def main(directory: Path) -> int:
    """Run the spec in a run directory; failures are told in `FAILURE_FILE` there. Returns 0 or
    1.
    """
    try:
        spec = load_spec(directory / "spec.yaml")

        def arrange(fabric: Fabric) -> QueueArrangement:
            return QueueArrangement(fabric, spec.seed, sampling_of(spec, fabric))

        run_experiment(spec, directory, Kernel(arrange, real_time=False), _tell)
    except (RankFailed, DeadlockFound, UnsupportedPort) as failure:
        (directory / FAILURE_FILE).write_text(f"{failure}\n")
        return 1
    except Exception:
        (directory / FAILURE_FILE).write_text(traceback.format_exc())
        return 1
    return 0


def _tell(progress: Progress) -> None:
    print(progress.encode(), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
