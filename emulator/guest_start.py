"""Starts the experiment in a guest.

python -m emulator.guest_start RUN_DIRECTORY

Imported modules stay until the process ends. Python's collector of garbage would look through it
again and again meanwhile, and write to its pages, which ranks share.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

if __name__ == "__main__":
    gc.disable()
    from emulator.guest_experiment import main

    gc.freeze()
    gc.enable()
    sys.exit(main(Path(sys.argv[1])))
