"""`python -m emulator.virtual.building` does what `groundwire kernel build` does, with the standard
library alone: setup.sh builds the kernel while pip installs the packages."""

from __future__ import annotations

import json
import sys

from emulator.linux.signals import run_interruptible
from emulator.virtual.building.build import ensure_kernel, kernel_to_build
from emulator.virtual.failure import VirtualKernelError


def main() -> None:
    """Build the virtual kernel unless this version of it is in the cache already; with `--status`
    only print its name, its directory and whether it is built, as JSON."""
    try:
        if sys.argv[1:] == ["--status"]:
            wanted = kernel_to_build()
            known = {"key": wanted.key, "directory": str(wanted.path.parent)}
            print(json.dumps({**known, "built": wanted.path.exists()}))
            return
        image = ensure_kernel(_say)
    except (VirtualKernelError, OSError) as error:
        sys.exit(f"error: {error}")
    _say(f"virtual kernel: {image.path}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_interruptible(main)
