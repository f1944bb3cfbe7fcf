"""Transports in a kernel: what each needs there, by the names that `topologies.spec.transports`
registers.

TCP's own settings are sysctls and routes of every host (`emulator/network/`), whatever ranks send
over. It is not where ranks send: `workloads/execution/transports` is. Three names to know:
`EmulatedTransport` (what each declares), `EMULATED_TRANSPORTS`, and `emulated`, that of a spec.
"""

from emulator.transports.interface import EmulatedTransport
from topologies.registration import parts
from topologies.spec.sections import Sections
from topologies.spec.transports import TRANSPORTS

EMULATED_TRANSPORTS = parts(TRANSPORTS, "emulator.transports.{}", EmulatedTransport)
"""By kind."""


def emulated(spec: Sections) -> EmulatedTransport:
    """The transport of a spec."""
    return EMULATED_TRANSPORTS[spec.transport.kind]
