"""The simulated network of a run, from before its ranks start to its counters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.network.network import Network
from emulator.ranks.simulated.files import COUNTERS, ENGINE, NETWORK, SECTION, SOCKET

COLUMNS_FILE = "network.columns"
"""In a run directory: the network that the engine follows (simulation/columns.py)."""
ENGINE_FILE = "engine.path"
"""In a run directory: where the engine's program is."""
SECTION_FILE = "carried.json"
"""In a run directory: the section by which collectives run (`collectives.carried`)."""

_LOOK_NS = 1_000_000


def simulated_directory(network: Network) -> Path:
    """The directory through which ranks use a run's simulated network: on no disk."""
    assert network.session is not None
    return network.session.directory / "simulated"


@dataclass(slots=True)
class SimulatedNetwork:
    """The process that has it."""

    directory: Path
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    @contextmanager
    def serving(cls, network: Network, run_directory: Path) -> Iterator[SimulatedNetwork]:
        """Inside of the block ranks can post. Raises RuntimeError when it cannot start."""
        directory = simulated_directory(network)
        directory.mkdir(parents=True)
        shutil.move(run_directory / COLUMNS_FILE, directory / NETWORK)
        shutil.move(run_directory / ENGINE_FILE, directory / ENGINE)
        shutil.move(run_directory / SECTION_FILE, directory / SECTION)
        log = run_directory / "simulated.log"
        with open(log, "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "emulator.ranks.simulated.broker", str(directory)],
                stdin=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": ":".join(filter(None, sys.path))},
            )
        found = cls(directory, process, log)
        try:
            while not (directory / SOCKET).exists():
                found.expect_alive()
                time.sleep(_LOOK_NS / 1e9)
            yield found
        finally:
            process.kill()
            process.wait()

    def expect_alive(self) -> None:
        """Raises RuntimeError with its last words when it has ended badly."""
        if self.process.poll() not in (None, 0):
            said = self.log.read_text(errors="replace").strip()
            raise RuntimeError(f"the simulated network has ended:\n{said[-3000:]}")

    def finish(self) -> Counters:
        """Its counters; it ends. Raises RuntimeError."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.expect_alive()
        self.log.unlink()
        return Counters(json.loads((self.directory / COUNTERS).read_text()))


@dataclass(frozen=True, slots=True)
class Counters:
    """The counts of the engine."""

    found: Mapping[str, Any]

    def port(self, link: int, is_b: bool) -> dict[str, int]:
        """The counters of a port, as links.jsonl names them: that of end b, or that of end a."""
        ports: Mapping[str, Sequence[int]] = self.found["ports"]
        number = 2 * link + is_b
        drops = ports["drops"][number]
        return {
            "bytes": ports["bytes"][number],
            "packets": ports["packets"][number] - drops,
            "drops": drops,
            "ecn_marks": ports["marks"][number],
        }

    @property
    def retransmits(self) -> int:
        """Segments that its connections sent again."""
        return int(self.found["retransmits"])

    def as_dict(self) -> dict[str, object]:
        """Plain data, for measured.json."""
        return {
            name: self.found[name] for name in ("early_posts", "packets", "hops", "retransmits")
        }
