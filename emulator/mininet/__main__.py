"""A fabric with Mininet's CLI in the kernel at hand: what `groundwire shell` runs in a guest.

python -m emulator.mininet [--spec FILE | --topo NAME [--custom FILE]] [--follow FILE | COMMAND...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from emulator.mininet.cli import follow, run_commands
from emulator.mininet.session import fabric_of, open_net
from emulator.ports.own_queues import QueueArrangement


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec")
    parser.add_argument("--topo")
    parser.add_argument("--custom")
    parser.add_argument("--follow", type=Path)
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    source = fabric_of(given.spec, given.topo, given.custom)
    net = open_net(source, lambda fabric: QueueArrangement(fabric, source.seed))
    try:
        failures = follow(net, given.follow) if given.follow else run_commands(net, given.command)
    finally:
        net.stop()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
