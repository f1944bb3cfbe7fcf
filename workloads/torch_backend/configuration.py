"""What the backend runs: the `collectives` section of a spec, from the environment.

GROUNDWIRE_COLLECTIVES is a path of a YAML file, or YAML itself where it begins with a brace. The
file is a section or has one under `collectives`, as specs have. Without it all is Gloo's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from pydantic import ValidationError

from topologies.spec.collectives_section import CollectivesSection

VARIABLE = "GROUNDWIRE_COLLECTIVES"


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
        text = Path(value).read_text()
    except OSError as error:
        raise ConfigurationError(
            f"{VARIABLE}: found {value}: {error.strerror}; allowed: a YAML file, or {{...}}"
        ) from error
    return read(text, value)


def read(text: str, source: str) -> CollectivesSection:
    """A section of YAML text; `backend` is programs where it does not say. Raises
    ConfigurationError."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{source}: {error}") from error
    if isinstance(found, dict) and "collectives" in found:
        found = found["collectives"]
    if not isinstance(found, dict):
        raise ConfigurationError(f"{source}: found {found!r}, allowed: keys of `collectives`")
    try:
        return CollectivesSection.model_validate({"backend": "programs"} | found)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        shown = f"found {first.get('input')!r}; {first['msg']}"
        raise ConfigurationError(f"{source}: {key}: {shown}") from error
