"""Options that commands on traces share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from topologies.spec.memory_section import MemorySpec, read_remote_memory


class DeviceChoice(StrEnum):
    """Devices whose rooflines time what a trace has no duration for."""

    V100 = "v100"
    A100 = "a100"
    H100 = "h100"
    NONE = "none"


DeviceOption = Annotated[
    DeviceChoice,
    typer.Option(
        metavar="NAME",
        help="Roofline that times what has operations and no duration: v100, a100, h100 or none.",
    ),
]
GroupsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="ASTRA-sim's communicator groups (JSON), which traces name (pg_name)."
    ),
]
MemoryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="ASTRA-sim's configuration of remote memory (JSON), behind MEM_LOAD and MEM_STORE. A "
        "MEMORY_POOL is hosts of the fabric, which serve by messages.",
    ),
]
MemoryHostsOption = Annotated[
    int, typer.Option(min=1, max=4096, metavar="N", help="Hosts of the memory pool.")
]


def memory_of(file: Path | None, hosts: int) -> MemorySpec | None:
    """The memory that a file configures. Raises SpecError."""
    return None if file is None else MemorySpec.model_validate(read_remote_memory(file, hosts))
