"""The experiment as a program: what the virtual kernel runs. Progress goes to stdout, a line each.

python -m emulator.guest_experiment RUN_DIRECTORY
"""

from __future__ import annotations

import errno
import sys
import time
import traceback
from pathlib import Path

from emulator.capture import CaptureError
from emulator.experiment import DeadlockFound, Kernel, run_experiment
from emulator.launcher import RankFailed
from emulator.peers import find_peers
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

        kernel = Kernel(arrange, False, find_peers(), lambda failure: _failed(str(failure)))
        run_experiment(spec, directory, kernel, _tell)
    except RankFailed:
        return 1
    except (DeadlockFound, UnsupportedPort, CaptureError) as failure:
        _failed(str(failure))
        return 1
    except OSError as failure:
        full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
        _failed(str(failure) if full else traceback.format_exc())
        return 1
    except Exception:
        _failed(traceback.format_exc())
        return 1
    return 0


def _failed(why: str) -> None:
    """Of several kernels that fail, the first one's reason counts."""
    _tell(Progress(FAILED, why, clock_ns=time.monotonic_ns()))


def _tell(progress: Progress) -> None:
    print(progress.encode(), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
