"""The backend's algorithms and transport, from the environment.

GROUNDWIRE_COLLECTIVES is a path of a YAML file, or YAML itself where it begins with a brace. The
file is a section or has one under `collectives`, as specs have. Without it all is Gloo's own.

GROUNDWIRE_TRANSPORT is what messages of programs go over, by the kind of a transport. Runs with
RoCE have it as roce, with the place of the rank's devices beside it; elsewhere it is tcp.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from topologies.spec.collectives_section import CollectivesOfRun, CollectivesSection
from topologies.spec.document import read_document
from topologies.spec.errors import SpecError
from workloads.execution.transports import RANK_TRANSPORTS
from workloads.execution.transports.interface import TRANSPORT_VARIABLE, Place, place_variable
from workloads.observer import COLLECTIVES_VARIABLE

VARIABLE = COLLECTIVES_VARIABLE


class ConfigurationError(ValueError):
    """A wrong configuration: names the file or the variable, the key, what was found and what is
    allowed."""


def from_environment() -> CollectivesSection:
    """The section of this process. Raises ConfigurationError."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        return CollectivesSection()
    if value.lstrip().startswith("{"):
        return read(value, VARIABLE)
    try:
        text = Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise ConfigurationError(
            f"{VARIABLE}: found {value}: {why}; allowed: a YAML file, or {{...}}"
        ) from error
    return read(text, value)


def place_of(environment: Mapping[str, str]) -> Place | None:
    """The place of the ends of this process's transport; None where messages of programs go
    through sockets. Raises ConfigurationError."""
    kind = environment.get(TRANSPORT_VARIABLE, "") or "tcp"
    if kind not in RANK_TRANSPORTS:
        allowed = ", ".join(RANK_TRANSPORTS)
        raise ConfigurationError(f"{TRANSPORT_VARIABLE}: found {kind!r}, allowed: {allowed}")
    variable = place_variable(kind)
    text = environment.get(variable)
    try:
        return RANK_TRANSPORTS[kind].place(text)
    except (ValueError, TypeError, LookupError) as error:
        if text is None:
            what = f"found {kind} where {error.args[0]}"
            raise ConfigurationError(f"{TRANSPORT_VARIABLE}: {what}") from error
        raise ConfigurationError(
            f"{variable}: found {text!r}, allowed: the value that the run set ({error!r})"
        ) from error


def read(text: str, source: str) -> CollectivesSection:
    """A section of YAML text; `backend` is programs where it does not say. Raises
    ConfigurationError."""
    try:
        found = read_document(text, source).data
    except SpecError as error:
        raise ConfigurationError(str(error)) from error
    if isinstance(found, dict) and "collectives" in found:
        found = found["collectives"]
    if not isinstance(found, dict):
        raise ConfigurationError(f"{source}: found {found!r}, allowed: keys of `collectives`")
    # A run tells its programs which servers they are on; a file of one's own cannot.
    model = CollectivesOfRun if "servers" in found else CollectivesSection
    try:
        return model.model_validate({"backend": "programs"} | found)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        shown = f"found {first.get('input')!r}; {first['msg']}"
        raise ConfigurationError(f"{source}: {key}: {shown}") from error
