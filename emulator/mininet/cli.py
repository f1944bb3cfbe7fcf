"""Mininet's CLI on a fabric: on a terminal, for a list of commands, or on a file that grows."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from mininet.cli import CLI
from mininet.log import error, lg, setLogLevel

from emulator.mininet.iperf import IperfFailed
from emulator.mininet.net import FabricMininet
from emulator.mininet.nodes import FabricNode

PROMPT_MARK = "@groundwire prompt"
"""A line of output that says that the next command may be typed."""

_POLL_S = 0.05


class FabricCLI(CLI):
    """Mininet's CLI; `failures` counts what scripts want to know of: lost pings, failed tests,
    commands of nodes that exit with another status than 0, and those that do not exist."""

    def __init__(self, net: FabricMininet, **params: Any) -> None:
        self.failures = 0
        super().__init__(net, **params)

    def do_pingall(self, line: str) -> None:
        """Ping between all hosts."""
        self.failures += self.mn.pingAll(line) > 0

    def do_pingpair(self, _line: str) -> None:
        """Ping between the first two hosts."""
        self.failures += self.mn.pingPair() > 0

    def do_iperf(self, line: str) -> None:
        """Simple iperf TCP test between two (optionally specified) hosts: iperf node1 node2"""
        self._test(super().do_iperf, line)

    def do_iperfudp(self, line: str) -> None:
        """Simple iperf UDP test: iperfudp bw node1 node2"""
        self._test(super().do_iperfudp, line)

    def _test(self, command: Any, line: str) -> None:
        try:
            command(line)
        except IperfFailed as problem:
            error(f"{problem}\n")
            self.failures += 1

    def default(self, line: str) -> None:
        """A command for a node, or one that does not exist."""
        first, rest, _ = self.parseline(line)
        known = first in self.mn
        super().default(line)
        if not known or (rest and self._status_of(self.mn[first]) != "0"):
            self.failures += 1

    @staticmethod
    def _status_of(node: FabricNode) -> str:
        """The exit status of the last command of a node's shell."""
        return str(node.cmd("echo $?")).strip()


def _speak() -> None:
    """Mininet's messages go to standard output, its chatter nowhere."""
    setLogLevel("output")
    for handler in lg.handlers:
        handler.stream = sys.stdout


def run_commands(net: FabricMininet, commands: Sequence[str]) -> int:
    """Runs CLI commands in order; returns the number of failures."""
    _speak()
    with tempfile.NamedTemporaryFile("w", suffix=".cli") as script:
        script.write("".join(f"{command}\n" for command in commands))
        script.flush()
        # While a node's command runs, the CLI polls its standard input as well. One at its end is
        # always readable: the CLI would spin, and in the virtual kernel time would stand still.
        reading, writing = os.pipe()
        try:
            with os.fdopen(reading) as silent:
                return int(FabricCLI(net, script=script.name, stdin=silent).failures)
        finally:
            os.close(writing)


def interact(net: FabricMininet) -> int:
    """The CLI on this terminal, until its user leaves it; returns the number of failures."""
    _speak()
    return int(FabricCLI(net).failures)


def follow(net: FabricMininet, commands: Path) -> int:
    """The CLI on a file that somebody appends lines to, until `exit`.

    Before each command it prints a line `PROMPT_MARK`. Returns the number of failures.
    """
    _speak()
    reading, writing = os.pipe()
    threading.Thread(target=_forward, args=(commands, writing), daemon=True).start()
    with os.fdopen(reading) as stdin:
        return int(_FollowingCLI(net, stdin=stdin).failures)


class _FollowingCLI(FabricCLI):
    prompt = f"{PROMPT_MARK}\n"
    use_rawinput = False

    def __init__(self, net: FabricMininet, stdin: TextIO) -> None:
        super().__init__(net, stdin=stdin, stdout=sys.stdout)

    def precmd(self, line: str) -> str:
        """The steps of Cmd itself for lines that it reads by itself."""
        return str(super().precmd(line.rstrip("\n")))


def _forward(commands: Path, writing: int) -> None:
    with open(commands, "rb", buffering=0) as file:
        while True:
            data = file.read(4096)
            if data:
                os.write(writing, data)
            else:
                time.sleep(_POLL_S)
