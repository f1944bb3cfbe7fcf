"""A Mininet Topo as a fabric.

Switches become routers and get routes, so a Topo with loops (a fat-tree, a torus) works as it is:
stock Mininet would need a spanning tree or a controller for it.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from typing import Any

from mininet.topo import LinearTopo, MinimalTopo, SingleSwitchReversedTopo, SingleSwitchTopo
from mininet.topolib import TorusTopo, TreeTopo
from mininet.util import buildTopo
from pydantic import ValidationError

from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.spec.fabric_section import GraphSpec, LinkSpec
from topologies.units import format_size, format_time

_LINK = LinkSpec.model_validate({"rate": "1Gbps", "delay": 0, "mtu": 1500})
"""The settings of a Topo's link without options; stock Mininet's links have no rate at all."""

STOCK_TOPOLOGIES: Mapping[str, Callable[..., Any]] = {
    "minimal": MinimalTopo,
    "linear": LinearTopo,
    "reversed": SingleSwitchReversedTopo,
    "single": SingleSwitchTopo,
    "tree": TreeTopo,
    "torus": TorusTopo,
}
"""The names that `mn --topo` knows."""

_LINK_OPTIONS = ("bw", "delay", "max_queue_size")
_BOOKKEEPING = ("node1", "node2", "port1", "port2")
_ANYTHING: tuple[object, ...] = ()
_WITHOUT_EFFECT: Mapping[str, tuple[object, ...]] = {
    "loss": (None, 0),
    "jitter": (None, 0, "0", "0ms", "0us", "0s"),
    "speedup": (None, 0),
    "enable_ecn": (None, False),
    "enable_red": (None, False),
    "latency_ms": (None,),
    "use_htb": _ANYTHING,
    "use_tbf": _ANYTHING,
    "use_hfsc": _ANYTHING,
    "gro": _ANYTHING,
    "txo": _ANYTHING,
    "rxo": _ANYTHING,
    "fast": _ANYTHING,
}
"""Options of TCLink -> the values that change nothing. Which of Linux's disciplines shapes a port,
and what a veth hands over, is not asked: ports are the fabric's own."""
_FULL_FRAME_BYTES = 1514
_NS_PER_US = 1000


class TopoError(ValueError):
    """A Topo, or a file of them, that cannot be made a fabric; the message says what and why."""


def load_topo(name: str, custom: str | None = None) -> Any:
    """The Topo `name` (`tree,depth=2,fanout=3`: with arguments), as `mn --custom FILE --topo NAME`.

    `custom` is a Python file whose `topos` maps names to callables. It is run. Raises TopoError.
    """
    known = dict(STOCK_TOPOLOGIES)
    if custom is not None:
        try:
            found = runpy.run_path(custom)
        except OSError as problem:
            raise TopoError(f"{custom}: {problem.strerror}") from problem
        except Exception as problem:
            raise TopoError(f"{custom}: {type(problem).__name__}: {problem}") from problem
        topos = found.get("topos")
        if not isinstance(topos, dict):
            raise TopoError(f"{custom}: expected a dictionary `topos` of names and callables")
        known |= topos
    plain = name.split(",")[0]
    if plain not in known:
        raise TopoError(f"no topology {plain!r}: expected one of {', '.join(sorted(known))}")
    try:
        return buildTopo(known, name)
    except Exception as problem:
        raise TopoError(f"topology {name!r}: {type(problem).__name__}: {problem}") from problem


def fabric_of_topo(topo: Any, defaults: Mapping[str, Any] | None = None) -> Fabric:
    """The fabric of a Mininet Topo; see `section_of_topo`. Raises TopoError."""
    try:
        return build_fabric(section_of_topo(topo, defaults))
    except TopoError:
        raise
    except ValueError as problem:
        raise TopoError(f"topology: {problem}") from problem


def section_of_topo(topo: Any, defaults: Mapping[str, Any] | None = None) -> GraphSpec:
    """A Mininet Topo as the `fabric` section of a spec; `defaults` are options of links that do not
    say otherwise.

    Understood are TCLink's `bw` (Mb/s, of any size), `delay` and `max_queue_size` (packets).
    Addresses are the fabric's own: a host's `ip` is not used. Raises TopoError.
    """
    links = []
    for a, b, own in topo.links(sort=True, withInfo=True):
        where = f"link {a} - {b}"
        options = dict(defaults or {}) | _of_class(where, own.get("cls")) | own
        options.pop("cls", None)
        for option in sorted(set(options) - set(_LINK_OPTIONS) - set(_BOOKKEEPING)):
            _refuse(where, option, options[option])
        links.append({"ends": [a, b], **_link_options(where, options)})
    nodes = [{"name": name, "kind": "host"} for name in topo.hosts()]
    nodes += [{"name": name, "kind": "switch"} for name in topo.switches()]
    section = {"kind": "graph", "nodes": nodes, "links": links, "link": _LINK}
    try:
        return GraphSpec.model_validate(section)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise TopoError(f"topology: {key}: {first['msg']} (found {first['input']!r})") from problem


def _refuse(where: str, option: str, value: object) -> None:
    """Raises TopoError for an option that would change something."""
    neutral = _WITHOUT_EFFECT.get(option)
    if neutral is None:
        raise TopoError(
            f"{where}: option {option!r} is not supported: expected {', '.join(_LINK_OPTIONS)}"
        )
    if neutral and value not in neutral:
        raise TopoError(
            f"{where}: option {option}={value!r} is not supported: expected {neutral[-1]!r} (loss "
            "and jitter are faults, ECN is a port's: see a spec's `faults` and `queue`)"
        )


def _of_class(where: str, link: Any) -> dict[str, Any]:
    """The options that a link's own class brings, as in `addLink(cls=partial(TCLink, bw=10))`."""
    from emulator.mininet.options import UnsupportedOption, link_defaults

    try:
        return link_defaults(link)
    except UnsupportedOption as problem:
        raise TopoError(f"{where}: {problem}") from problem


def _link_options(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.get("bw") is not None:
        bandwidth = options["bw"]
        if not isinstance(bandwidth, int | float) or bandwidth <= 0:
            raise TopoError(f"{where}: bw {bandwidth!r}: expected a number of Mb/s above 0")
        found["rate"] = f"{round(bandwidth * 10**6)}bps"
    if options.get("delay") is not None:
        found["delay"] = _delay(where, options["delay"])
    if options.get("max_queue_size") is not None:
        packets = options["max_queue_size"]
        if not isinstance(packets, int) or packets <= 0:
            raise TopoError(f"{where}: max_queue_size {packets!r}: expected a number of packets")
        buffer = format_size(packets * _FULL_FRAME_BYTES)
        found["queue"] = {"kind": "droptail", "buffer": buffer}
    return found


def _delay(where: str, delay: object) -> str:
    """A delay as `tc` reads it: a bare number is microseconds."""
    text = str(delay).strip()
    try:
        return format_time(round(float(text) * _NS_PER_US))
    except ValueError:
        pass
    aliases = {"sec": "s", "secs": "s", "msec": "ms", "msecs": "ms", "usec": "us", "usecs": "us"}
    for alias, unit in sorted(aliases.items(), key=lambda pair: -len(pair[0])):
        if text.endswith(alias):
            return text.removesuffix(alias) + unit
    if not text.endswith(("s", "ms", "us", "ns")):
        raise TopoError(f"{where}: delay {delay!r}: expected a time such as 5ms")
    return text
