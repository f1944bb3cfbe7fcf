"""ASTRA-sim's analytical network file (YAML): one entry per dimension in each list."""

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from analysis.astra.errors import AstraInputError
from topologies.spec.document import read_document
from topologies.spec.errors import SpecError

_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
TOPOLOGIES = ("Ring", "FullyConnected", "Switch")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension: its shape, its size, and each link's rate and delay.

    `bandwidth_gbps` is in ASTRA-sim's GB/s, 2^30 bytes per second.
    """

    topology: str
    npus: int
    bandwidth_gbps: float
    latency_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """Bytes per nanosecond (NetworkFunction.cpp of the analytical backend)."""
        return self.bandwidth_gbps * (1 << 30) / 1_000_000_000


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The network, innermost dimension first: rank = address[0] + npus[0] * (address[1] + ...)."""

    dimensions: tuple[Dimension, ...]

    @property
    def npus(self) -> int:
        """Ranks altogether."""
        return prod(dimension.npus for dimension in self.dimensions)


def read_network(path: Path | str) -> NetworkConfig:
    """Read a network file. Raises AstraInputError."""
    try:
        document = read_document(Path(path).read_text(), str(path)).data
    except OSError as error:
        raise AstraInputError(path, None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AstraInputError(path, None, f"is not YAML: {error}") from None
    except SpecError as error:
        raise AstraInputError(path, None, f"is not YAML: {error.problems[0]}") from None
    if not isinstance(document, dict):
        raise AstraInputError(path, None, "must be a mapping with topology, npus_count, ...")
    topologies = _list(path, document, "topology")
    for name in topologies:
        if name not in TOPOLOGIES:
            raise AstraInputError(
                path, "topology", f"found {name!r}, allowed {', '.join(TOPOLOGIES)}"
            )
    columns = []
    for key, minimum, whole in (
        ("npus_count", 2, True),
        ("bandwidth", None, False),
        ("latency", 0, False),
    ):
        values = _list(path, document, key)
        if len(values) != len(topologies):
            raise AstraInputError(
                path, key, f"has {len(values)} entries, topology has {len(topologies)}"
            )
        columns.append([_number(path, key, value, minimum, whole) for value in values])
    return NetworkConfig(
        tuple(
            Dimension(topology, int(npus), float(bandwidth), float(latency))
            for topology, npus, bandwidth, latency in zip(topologies, *columns, strict=True)
        )
    )


def render_network(config: NetworkConfig) -> str:
    """The file's text."""
    rows = (
        ("topology", [d.topology for d in config.dimensions], ""),
        ("npus_count", [d.npus for d in config.dimensions], ""),
        ("bandwidth", [d.bandwidth_gbps for d in config.dimensions], "  # GB/s (2^30)"),
        ("latency", [d.latency_ns for d in config.dimensions], "  # ns"),
    )
    return "".join(
        f"{key}: [ {', '.join(str(value) for value in values)} ]{comment}\n"
        for key, values, comment in rows
    )


def _list(path: Path | str, document: dict[str, Any], key: str) -> list[Any]:
    values = document.get(key)
    if not isinstance(values, list) or not values:
        raise AstraInputError(path, key, f"found {values!r}, needs a list, one entry a dimension")
    return values


def _number(
    path: Path | str, key: str, value: Any, minimum: int | None, whole: bool
) -> int | float:
    allowed = "a whole number" if whole else "a number"
    allowed += " above 0" if minimum is None else f" of at least {minimum}"
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)  # YAML 1.1 takes 1e3 for text, the original's reader for a number
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise AstraInputError(path, key, f"found {value!r}, allowed {allowed}")
    if value != value or (value <= 0 if minimum is None else value < minimum):
        raise AstraInputError(path, key, f"found {value!r}, allowed {allowed}")
    return value
