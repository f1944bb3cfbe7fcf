"""Claims of the insides of servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import Above

_SERVERS = """
name: io-bus
fabric:
  kind: rails
  servers: 2
  hosts_per_server: 8
  bus: {{preset: zionex, nics: {nics}}}
  links: {{scale-up: {{rate: 1920Gbps, delay: 100ns}}, nic: {{rate: 200Gbps, delay: 1us}}}}
workload: {{kind: collectives, ranks: 16, operations: [{{kind: {kind}, size: 32MB}}]}}
capture: {{points: []}}
predict: []
"""
_NICS = {
    "beside": "[0, 0, 1, 1, 2, 2, 3, 3]",
    "switch": "[1, 1, 0, 0, 3, 3, 2, 2]",
    "root": "[2, 2, 3, 3, 0, 0, 1, 1]",
    "on_root": "[root0, root0, root0, root0, root1, root1, root1, root1]",
}


def _io_bus(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of a shift to the other server and of an all-to-all, by where NICs are."""
    found: dict[str, Any] = {}
    for name, kind in (("shift", "permutation, shift: 8"), ("all_to_all", "all_to_all")):
        found[name] = {
            where: bench.iteration(_SERVERS.format(nics=nics, kind=kind))[0].duration_ns / 1000
            for where, nics in _NICS.items()
        }
        found[f"{name}_ratio"] = found[name]["root"] / found[name]["beside"]
    return found


_IO_BUS = Experiment("io-bus", "the packet engine", _io_bus)

CLAIMS = (
    Claim(
        "zionex-root-complex",
        "NICs beside their accelerators on a PCIe switch lift the limit that hosts set to "
        "scale-out",
        "Mudigere et al., ISCA 2022 (ZionEX)",
        "in words",
        derived="on the other root complex four accelerators share a link with as many NICs",
        setting="2 servers of 8 accelerators, four PCIe switches and two root complexes "
        "(`zionex`), NICs of 200 Gb/s, 32 MB a rank over TCP",
        experiment=_IO_BUS,
        shows="a shift to the other server: {shift[beside]:.0f} us beside, {shift[root]:.0f} us on "
        "the other root complex ({shift_ratio:.2f} times), {shift[on_root]:.0f} us on the root "
        "complex; an all-to-all {all_to_all[beside]:.0f} and {all_to_all[root]:.0f} us "
        "({all_to_all_ratio:.2f} times)",
        conditions="links inside are modelled, the one between root complexes has an assumed rate",
        rules=(Above("shift.root", "shift.beside"), Above("all_to_all.root", "all_to_all.beside")),
    ),
)
