"""Several runs: found in a directory, and told apart by their names or by what their specs differ
in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from analysis.runs.run import RunError

_GIVEN_BY_US = re.compile(r"\d+|[0-9a-f]{12,}|.+-\d{8}-\d{6}(-\d+)?")
"""A sweep's number, a study's digest, NAME-TIME: names that say nothing of a run."""
_MOST_KEYS = 4


def run_directories(path: Path) -> list[Path]:
    """The directory itself where it is a run, else the runs up to three levels below it.

    Raises RunError when there is none.
    """
    known = any((path / file).exists() for file in ("result.json", "spec.yaml"))
    if known or not path.is_dir():  # whoever loads it says what is wrong
        return [path]
    for pattern in ("*/result.json", "*/*/result.json", "*/*/*/result.json"):
        found = sorted(each.parent for each in path.glob(pattern))
        if found:
            return found
    raise RunError(
        f"{path}: found no run; expected a directory with result.json, or one that has such "
        "directories in it"
    )


def labels_of(directories: Sequence[Path]) -> list[str]:
    """A label for each run, all different.

    Runs whose directories Groundwire named (a sweep's 001, NAME-TIME) are told by the keys in which
    their specs differ, `fabric.link.rate=10Gbps`, where these are few. Others have the names of
    their directories, with as many parents as tell them apart; numbered where nothing does.
    """
    paths = [directory.resolve() for directory in directories]
    if len(paths) > 1 and all(_GIVEN_BY_US.fullmatch(path.name) for path in paths):
        by_keys = _by_differing_keys(paths)
        if by_keys is not None:
            return by_keys
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        labels = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{path.name} ({number})" for number, path in enumerate(paths, start=1)]


def flat_keys(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every value of a spec by its dotted key, for telling two specs apart."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat_keys(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        for number, inner in enumerate(value):
            yield from flat_keys(inner, f"{key}.{number}")
    else:
        yield key, str(value)


def differing_keys(specs: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The values of each spec (`flat_keys`) in which not all agree; their names do not count."""
    keys = [
        key
        for key in dict.fromkeys(key for spec in specs for key in spec)
        if key != "name" and len({spec.get(key) for spec in specs}) > 1
    ]
    return [{key: spec[key] for key in keys if key in spec} for spec in specs]


def in_words(values: Mapping[str, str]) -> str:
    """As after `--set`: `fabric.hosts=4, workload.ranks=4`."""
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _by_differing_keys(paths: Sequence[Path]) -> list[str] | None:
    """None where specs cannot be read, do not differ, or differ in many keys."""
    try:
        specs = [dict(flat_keys(yaml.safe_load((p / "spec.yaml").read_text()))) for p in paths]
    except (OSError, ValueError, yaml.YAMLError):  # whoever loads the run says what is wrong
        return None
    values = differing_keys(specs)
    labels = [in_words(each) for each in values]
    few = max(len(each) for each in values) <= _MOST_KEYS
    return labels if few and all(labels) and len(set(labels)) == len(labels) else None
