"""Options that commands on traces share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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
