"""The shell of a run that stands still: a line is a command on a host of the fabric."""

from __future__ import annotations

import sys

from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.standing import Standing
from topologies.units import format_time

_HELP = """\
COMMAND          run it on this host, as sh does
host NAME        the next commands are on this node of the fabric
go               the run goes on (so does the end of the input)
Each command runs in a copy of the whole fabric that ends with it: what it changes is gone then, and
what waits, such as tcpdump, lets time pass there. The run itself goes on as if nothing had been."""


class Shell:
    """Reads commands from standard input, and shows what they say on standard output."""

    def __init__(self, at_ns: int, host: str) -> None:
        """The run stands at `at_ns`; the first commands are for `host`."""
        self._at, self._host = format_time(at_ns), host

    def look(self, standing: Standing) -> None:
        """Until there are no more commands."""
        asks = sys.stdin.isatty()
        if asks:
            print(f"The run stands at {self._at}. `help` says what can be done.")
        while True:
            line = self._line(asks)
            if line is None or line == "go":
                return
            word, _, rest = line.partition(" ")
            if word == "host" and rest:
                self._host = rest.strip()
            elif line == "help":
                print(_HELP)
            elif line:
                try:
                    print(standing.run(self._host, line), end="", flush=True)
                except VirtualKernelError as error:
                    print(error, file=sys.stderr)

    def _line(self, asks: bool) -> str | None:
        try:
            line = input(f"{self._host} at {self._at}> ") if asks else sys.stdin.readline()
        except EOFError:
            return None
        return line.strip() if asks or line else None
