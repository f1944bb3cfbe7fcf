"""Whether this machine's processor can run the virtual kernel."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from emulator.virtual.failure import VirtualKernelError

_CPUINFO = Path("/proc/cpuinfo")


def refuse_processor() -> None:
    """Raises VirtualKernelError when the processor cannot run the virtual kernel, and says why.

    It saves user code's registers with XSAVE, also where user code is run by ptrace (patches 0004
    and 0008). Virtual machines often lack it whose processor is not the host's: QEMU's qemu64 and
    kvm64, which some managers of virtual machines still choose by themselves.
    """
    if platform.machine() != "x86_64":
        raise VirtualKernelError(
            "the virtual kernel is User-Mode Linux, which there is for x86-64 only, and this "
            f"machine is {platform.machine()}; the native kernel remains (--kernel native, as root)"
        )
    text = _CPUINFO.read_text()
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    if flags is not None and "xsave" not in flags[1].split():
        model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
        raise VirtualKernelError(
            "the virtual kernel needs a processor with XSAVE (Intel's and AMD's since 2011), and "
            f"{model[1] if model else 'this one'} has none. To a virtual machine give its host's "
            "processor (QEMU: -cpu host); the native kernel remains (--kernel native, as root)"
        )
