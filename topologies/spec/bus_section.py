"""The `bus` of a server: which PCIe switch each accelerator and NIC is on, and which root complex
each switch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from topologies.spec.queue_section import SpecSection

Place = Annotated[int, Field(strict=True, ge=0, le=63)]

_GEN4 = {"rate": "230Gbps", "delay": "150ns"}
_GEN5 = {"rate": "460Gbps", "delay": "150ns"}
"""A link of 16 lanes: 16 GT/s (32 of the fifth generation) a lane, 128 of 130 bits, of which
packets of 256 bytes with 24 of header, check sum and framing leave 256/280 (PCI Express Base
Specification 4.0 and 5.0, 2.2 and 4.2). The delay is a switch's, as makers give it: 100 to 150 ns.
"""

LINKS: Mapping[str, Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "zionex": {"pcie": _GEN4, "root-port": _GEN4, "inter-root": _GEN5},
        "dgx-a100": {"pcie": _GEN4, "root-port": _GEN4, "inter-root": _GEN5},
        "dgx-h100": {"pcie": _GEN5, "root-port": _GEN5, "inter-root": _GEN5},
        "": {"pcie": _GEN4, "root-port": _GEN4, "inter-root": _GEN5},
    }
)
"""By preset, and without one, the links of a bus by class. No source gives what processors pass on
from one root complex to another: 460 Gb/s is an assumption, twice a link of the fourth generation.
"""

_PAIRS = {
    "roots": (0, 0, 1, 1),
    "accelerators": (0, 0, 1, 1, 2, 2, 3, 3),
    "nics": (0, 0, 1, 1, 2, 2, 3, 3),
}
_EACH = {"roots": (0, 0, 0, 0, 1, 1, 1, 1), "accelerators": range(8), "nics": range(8)}
PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "zionex": _PAIRS,
        "dgx-a100": _PAIRS,
        "dgx-h100": {name: tuple(places) for name, places in _EACH.items()},
    }
)
"""Servers by name. ZionEX (Mudigere et al., ISCA 2022) and DGX A100 (NVIDIA's user guide) have four
PCIe switches, each with two accelerators and their two NICs; two processors have two of them each.
In a DGX H100 each accelerator shares a switch with its NIC, that of a ConnectX-7."""

_ROOT = re.compile(r"root(\d{1,2})")


def _with_preset(value: object) -> object:
    """The section with what its `preset` stands for; given keys go before that."""
    if not isinstance(value, dict):
        return value
    preset = value.get("preset")
    known = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
    found = {**known, **value}
    if "accelerators" in found:
        found.setdefault("nics", found["accelerators"])
    return found


class BusSpec(SpecSection):
    """The inside of each server, as a tree of links for each root complex.

    `roots` has the root complex of each PCIe switch, `accelerators` the switch of each accelerator,
    `nics` that of each NIC (as many, on its accelerator's switch where nothing is said), or
    `root0`, `root1` where a NIC is on a root complex itself. `preset` is a known server, for the
    keys that are not given.
    """

    preset: Literal["zionex", "dgx-a100", "dgx-h100"] | None = None
    roots: tuple[Place, ...] = Field(min_length=1, max_length=64)
    accelerators: tuple[Place, ...] = Field(min_length=1, max_length=64)
    nics: tuple[Place | str, ...]

    _preset = model_validator(mode="before")(_with_preset)

    @property
    def root_complexes(self) -> int:
        """How many there are."""
        return max(self.roots) + 1

    def root_of_nic(self, nic: int) -> int | None:
        """The root complex that a NIC is on, where it is on no switch."""
        place = self.nics[nic]
        found = _ROOT.fullmatch(place) if isinstance(place, str) else None
        return None if found is None else int(found[1])

    @model_validator(mode="after")
    def _placed(self) -> Self:
        switches = len(self.roots)
        if set(self.roots) != set(range(self.root_complexes)):
            raise ValueError(
                f"expected roots to be 0 to {self.root_complexes - 1}, each once at least"
            )
        if len(self.nics) != len(self.accelerators):
            raise ValueError(
                f"expected as many nics as accelerators, which are {len(self.accelerators)}"
            )
        for place in (*self.accelerators, *(each for each in self.nics if isinstance(each, int))):
            if place >= switches:
                raise ValueError(
                    f"expected PCIe switches 0 to {switches - 1}, which roots has; found {place}"
                )
        for nic, on in enumerate(self.nics):
            root = self.root_of_nic(nic)
            if isinstance(on, str) and (root is None or root >= self.root_complexes):
                raise ValueError(
                    f"expected a PCIe switch, or root0 to root{self.root_complexes - 1}; found "
                    f"{on!r}"
                )
        return self
