"""Mininet's nodes over namespaces that stand already. A shell starts when it is first used."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from mininet.node import Node

from emulator.linux import namespaces
from emulator.network.network import Network


class FabricNode(Node):
    """A node of a live network. Stock Mininet forks a shell per node and takes its namespace from
    it; here the namespace is the network's, and the shell joins it when first needed."""

    def __init__(
        self, name: str, network: Network, place: namespaces.HostPlace, **params: Any
    ) -> None:
        self._network = network
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        self._output: Any = None
        super().__init__(name, **params)

    @classmethod
    def checkSetup(cls) -> None:
        """Nothing to check: nodes need no program of Mininet's."""

    # -- the shell ---------------------------------------------------------------------------------

    @property
    def shell(self) -> subprocess.Popen[bytes] | None:
        """The node's shell; reading this starts it. None while the network is down."""
        if self._process is None and not self._starting and self._network.session is not None:
            self._starting = True
            try:
                super().startShell()
            finally:
                self._starting = False
        return self._process

    @shell.setter
    def shell(self, process: subprocess.Popen[bytes] | None) -> None:
        self._process = process

    @property
    def pid(self) -> int | None:
        """The shell's process; reading this starts it, as it does of the files to the shell."""
        return self.shell.pid if self.shell is not None else None

    @pid.setter
    def pid(self, pid: int | None) -> None:
        """Mininet sets it when the shell starts; it is the shell's own."""

    @property
    def stdout(self) -> Any:
        """The output of the shell."""
        return self._output if self._starting or self.shell is not None else None

    @stdout.setter
    def stdout(self, file: Any) -> None:
        self._output = file

    @property
    def started(self) -> bool:
        """Whether the node's shell runs."""
        return self._process is not None

    def startShell(self, mnopts: str | None = None) -> None:
        """Mininet calls this when a node is made. Not yet: see `shell`."""

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[bytes]:
        """Starts a process in the node's namespace. Mininet writes `mnexec OPTIONS` in front of a
        command to get there; a child of ours goes there by itself."""
        if cmd and cmd[0] == "mnexec":
            cmd = cmd[2:]

        def join() -> None:
            os.setsid()
            namespaces.become_host(self.name, self._place)

        process: subprocess.Popen[bytes] = subprocess.Popen(cmd, preexec_fn=join, **params)
        session = self._network.session
        if session is not None:
            session.record_process(process.pid)
        return process

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """As Mininet's: a Popen in the node's namespace; it needs no shell of the node."""
        return super().popen(*args, **({"mncmd": ["mnexec", "-da"]} | kwargs))

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        """As Mininet's, but for `printPid`, which needs mnexec."""
        kwargs.pop("printPid", None)
        if not self.shell:
            raise RuntimeError(f"{self.name} has no shell: the network is down")
        super().sendCmd(*args, **kwargs)

    def terminate(self) -> None:
        """Ends the shell, if it was ever started."""
        if self._process is None:
            return
        super().terminate()

    def cleanup(self) -> None:
        """Closes the shell's terminal and waits for its end."""
        if self._process is None:
            return
        super().cleanup()
        self._process = None

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing is left to configure: addresses and routes are the fabric's."""
        return {}


class FabricHost(FabricNode):
    """A node that runs ranks."""


class FabricSwitch(FabricNode):
    """A router of the fabric. Mininet starts and stops switches; ours run as the kernel does."""

    def start(self, _controllers: list[Any]) -> None:
        """Routers forward from the moment they are up."""

    def connected(self) -> bool:
        """There is no controller to wait for."""
        return True
