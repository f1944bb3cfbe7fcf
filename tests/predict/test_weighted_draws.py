"""Paths of flows whose ports are not known, where next hops have weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.predict.engines.paths import Paths
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import parse_spec

_HOSTS = 40
_SPEC = """
name: shares
seed: {seed}
fabric:
  kind: graph
  routing: {routing}
  nodes: [{hosts}, {{name: s, kind: switch}}, {{name: v, kind: switch}},
    {{name: t, kind: switch}}, {{name: u, kind: switch}}, {{name: w, kind: switch}}]
  links: [{ends},
    {{ends: [s, t], rate: {rates[0]}Gbps}}, {{ends: [s, u], rate: {rates[1]}Gbps}},
    {{ends: [s, w], rate: {rates[2]}Gbps}}, {{ends: [t, v], rate: 1000Gbps}},
    {{ends: [u, v], rate: 1000Gbps}}, {{ends: [w, v], rate: 1000Gbps}}]
workload: {{kind: collectives, ranks: {ranks}, operations: [{{kind: all_to_all, size: 1MB}}]}}
"""


def _shares(routing: str, rates: list[int], seed: int) -> list[float]:
    """The share that each of the three links has of the flows between the two switches' hosts."""
    sides = [("s", f"a{n}") for n in range(_HOSTS)] + [("v", f"b{n}") for n in range(_HOSTS)]
    text = _SPEC.format(
        seed=seed,
        routing=routing,
        rates=rates,
        ranks=2 * _HOSTS,
        hosts=", ".join(f"{{name: {host}, kind: host}}" for _, host in sides),
        ends=", ".join(f"{{ends: [{host}, {switch}]}}" for switch, host in sides),
    )
    setting = setting_of_spec(parse_spec(text))
    source, other = np.divmod(np.arange(_HOSTS * _HOSTS), _HOSTS)
    rows = Paths(setting).hashed(source, other + _HOSTS)
    fabric = setting.fabric
    between = [
        next(x.index for x in fabric.links if {x.a.node, x.b.node} == {"s", far}) for far in "tuw"
    ]
    return [float(np.any(rows // 2 == link, axis=1).mean()) for link in between]


@settings(deadline=None, max_examples=12)
@given(
    rates=st.lists(st.sampled_from([25, 50, 100, 200]), min_size=3, max_size=3),
    seed=st.integers(1, 9),
)
def test_flows_are_drawn_by_the_weights_of_next_hops(rates: list[int], seed: int) -> None:
    """Each of the three has its link's share of the rates, within five standard deviations of 1,600
    flows."""
    for found, rate in zip(_shares("weighted", rates, seed), rates, strict=True):
        share = rate / sum(rates)
        assert abs(found - share) < 5 * (share * (1 - share) / _HOSTS**2) ** 0.5


@pytest.mark.parametrize("seed", [1, 2])
def test_equal_weights_draw_as_a_plain_hash_does(seed: int) -> None:
    even = [100, 100, 100]
    assert _shares("weighted", even, seed) == _shares("ecmp", even, seed)
