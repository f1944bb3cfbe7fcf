"""ASTRA-sim's communicator groups (JSON): {"1": [0, 2, 4], ...}."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from topologies.spec.document import read_json
from topologies.spec.errors import SpecError


@dataclass(frozen=True, slots=True)
class CommunicatorGroup:
    """A communicator group; `ranks` in the file's order, which is the ring's order."""

    id: int
    ranks: tuple[int, ...]


def read_groups(path: Path | str, npus: int) -> dict[int, CommunicatorGroup]:
    """Read a groups file for a network of `npus` ranks. Raises ChakraError."""
    try:
        document = read_json(read_bytes(path), str(path))
    except SpecError as error:
        raise ChakraError(path, None, f"is not JSON: {error.problems[0]}") from None
    if not isinstance(document, dict):
        raise ChakraError(path, None, "must be a JSON object")
    groups = {}
    for name, ranks in document.items():
        if not name.isdecimal() or int(name) == 0:
            raise ChakraError(
                path,
                None,
                f"{name}: a group's name must be a whole number above 0 (0 means all ranks)",
            )
        if not isinstance(ranks, list) or not ranks:
            raise ChakraError(path, None, f"{name}: found {ranks!r}, needs a list of ranks")
        for rank in ranks:
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < npus:
                raise ChakraError(
                    path, None, f"{name}: found rank {rank!r}, allowed 0 to {npus - 1}"
                )
        if len(set(ranks)) != len(ranks):
            raise ChakraError(path, None, f"{name}: names a rank twice")
        groups[int(name)] = CommunicatorGroup(int(name), tuple(ranks))
    return groups


def render_groups(groups: Iterable[CommunicatorGroup]) -> str:
    """The file's text."""
    return json.dumps({str(group.id): list(group.ranks) for group in groups}, indent=4) + "\n"
