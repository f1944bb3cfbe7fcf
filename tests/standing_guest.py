"""A guest that has booted and stands still, for the tests of one worker of pytest.

A guest boots and imports for longer than most runs of tests take. Copies of one that stands do the
same, bit for bit (tests/session/test_prepared_guest.py). It boots when the first of them is asked
for. Where none is to be had, a run boots a guest of its own.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from emulator.virtual.building.image import KernelImage
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.memory.host_memory import memory_directory
from emulator.virtual.standing import bound_socket
from emulator.virtual.starting import GuestSpec, control_directory, guest_process, write_control

_OUTPUTS = ("status", "console", "stdout", "stderr")


class StandingGuest:
    """The guest, and the socket at which copies of it are asked for."""

    def __init__(self, kernel: KernelImage, guest: GuestSpec) -> None:
        """Raises VirtualKernelError: there is no room for its memory."""
        self._kernel, self._guest = kernel, guest
        self._memory = memory_directory(guest.memory_bytes)
        self._end_read, self._end_write = os.pipe()
        self._bound = threading.Event()
        self._socket: Path | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._bound.wait()

    @property
    def socket(self) -> Path | None:
        """None where it cannot be bound."""
        return self._socket

    def end(self) -> None:
        """End the guest and its copies."""
        os.close(self._end_write)
        self._thread.join()
        os.close(self._end_read)

    def _serve(self) -> None:
        # One thread for all of it: the host ends the guest with the thread that has started it.
        with ExitStack() as stack, suppress(VirtualKernelError):
            try:
                control = stack.enter_context(control_directory(self._memory))
                requests = stack.enter_context(bound_socket(control))
                self._socket = control / "requests"
            finally:
                self._bound.set()
            if self._end_read in select.select([requests.fileno(), self._end_read], [], [])[0]:
                return
            write_control(control, self._guest, requests)
            for name in _OUTPUTS:
                (control / name).touch()
            stack.enter_context(
                guest_process(self._kernel, self._guest, control, self._memory, requests)
            )
            requests.close()  # so that it refuses when the guest has ended
            select.select([self._end_read], [], [])
