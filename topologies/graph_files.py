"""Fabrics that others describe as graphs: ns-3's topologies of HPCC and SimAI, GraphML, InfraGraph.

Each becomes the `nodes` and `links` of `fabric: {kind: graph, path: FILE}`.

ns-3 (alibaba-edu/High-Precision-Congestion-Control, simulation/mix/config_doc.txt and
scratch/third.cc): `NODES SWITCHES LINKS`, the switches' numbers, then a line for each link: two
ends, rate, delay, rate of errors. SimAI's first line is `NODES GPUS_PER_SERVER NVSWITCHES SWITCHES
LINKS GPU_TYPE`; its NVSwitches are numbered with the switches on the second line (aliyun/SimAI,
astra-sim-alibabacloud/inputs/topo/gen_Topo_Template.py). Errors are not kept, and are refused.

GraphML (graphml.graphdrawing.org): an undirected or directed graph. A node's `kind` or `type` is
host or switch; without one, a node of one link is a host. An edge's `rate` and `delay` are texts
with a unit, `bandwidth` or `capacity` bits per second; what it lacks is `fabric.link`'s.

InfraGraph (Keysight/infragraph, its schema): devices with components, instances of them, and edges
between components, `one2one` or `many2many`, over links of a bandwidth. An instance whose device
has an `xpu` is a host, every other one a switch: what is inside of a device is not part of the
fabric here. A link without a bandwidth is `fabric.link`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from topologies.spec.document import read_document
from topologies.spec.errors import SpecError
from topologies.spec.foreign_files import ForeignFileError, text_of
from topologies.units import format_rate, format_time, parse_rate_bps, parse_time_ns

_MOST_NODES = 65_536
_MOST_CHARACTERS = 10
"""The longest name of a node in a spec. Where a file has longer ones, hosts are h0, h1 and so on
by their places, switches s4, s5."""
_RATE = re.compile(r"(\d+(?:\.\d+)?)([GMk]?)bps")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)")
_SLICE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+?)(?:\[(?P<range>[0-9: -]*)\])?")


class GraphFileError(ForeignFileError):
    """A file of a graph that cannot be read."""


def read_graph_file(path: Path) -> dict[str, Any]:
    """`nodes` and `links` of a `graph` fabric. Raises GraphFileError."""
    return parse_graph(text_of(path, "a file of a graph", GraphFileError), str(path))


def parse_graph(text: str, name: str) -> dict[str, Any]:
    """See `read_graph_file`; `name` is the file's name in errors."""
    if re.match(r"\s*<", text):
        found = _graphml(text, name)
    elif re.match(r"\s*\d+ ", text):
        found = _ns3(text, name)
    else:
        found = _infragraph(text, name)
    if len(found["nodes"]) > _MOST_NODES:
        raise GraphFileError(name, f"{len(found['nodes'])} nodes", f"up to {_MOST_NODES}")
    return found


def _graph(
    kinds: Mapping[str, str], links: Sequence[tuple[str, str, str | None, str | None]]
) -> dict[str, Any]:
    short = {name: name for name in kinds}
    if any(len(name) > _MOST_CHARACTERS for name in kinds):
        short = {name: f"{kind[0]}{at}" for at, (name, kind) in enumerate(kinds.items())}
    nodes = [{"name": short[name], "kind": kind} for name, kind in kinds.items()]
    made = []
    for a, b, rate, delay in links:
        link: dict[str, Any] = {"ends": [short[a], short[b]]}
        link |= {} if rate is None else {"rate": rate}
        link |= {} if delay is None else {"delay": delay}
        made.append(link)
    return {"nodes": nodes, "links": made}


def _ns3(text: str, name: str) -> dict[str, Any]:
    rows = [(n, line.split()) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    line, first = rows[0]

    def fail(line: int, found: str, expected: str) -> NoReturn:
        raise GraphFileError(f"{name}, line {line}", found, expected)

    def whole(line: int, word: str, what: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) < 10):
            fail(line, word, what)
        return int(word)

    if len(first) not in (3, 6):
        fail(line, f"{len(first)} words", "NODES SWITCHES LINKS, or SimAI's 6 words")
    counts = [whole(line, word, "a whole number") for word in first[: 3 if len(first) == 3 else 5]]
    nodes, links = counts[0], counts[-1]
    if nodes > _MOST_NODES:
        fail(line, str(nodes), f"up to {_MOST_NODES} nodes")
    switches = counts[1] if len(first) == 3 else counts[2] + counts[3]
    listed = rows[1][1] if switches and len(rows) > 1 else []
    numbers = {whole(rows[1][0], word, "the switches' numbers") for word in listed}
    if len(numbers) != switches or any(number >= nodes for number in numbers):
        fail(
            rows[min(1, len(rows) - 1)][0], f"{len(numbers)} switches", f"{switches} below {nodes}"
        )
    kinds = {f"n{number}": "switch" if number in numbers else "host" for number in range(nodes)}
    body = rows[2 if switches else 1 :]
    if len(body) < links:
        fail(line, f"{links} links", f"as many lines, which are {len(body)}")
    made = []
    for line, words in body[:links]:
        if len(words) not in (4, 5):
            fail(line, f"{len(words)} words", "two ends, rate, delay, rate of errors")
        ends = [whole(line, word, "a node") for word in words[:2]]
        if max(ends) >= nodes:
            fail(line, str(max(ends)), f"a node below {nodes}")
        rate, delay = _RATE.fullmatch(words[2]), _DELAY.fullmatch(words[3])
        if rate is None or delay is None:
            fail(line, " ".join(words[2:4]), "a rate such as 100Gbps and a delay such as 0.001ms")
        if len(words) == 5 and words[4].strip("0.") != "":
            fail(line, words[4], "0: losses are faults here (faults: [{kind: loss, ...}])")
        made.append((f"n{ends[0]}", f"n{ends[1]}", _rate(*rate.groups()), _delay(*delay.groups())))
    return _graph(kinds, made)


def _rate(number: str, unit: str) -> str:
    scale = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[unit]
    return format_rate(max(round(float(number) * scale), 1))


def _delay(number: str, unit: str) -> str:
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    return format_time(round(float(number) * scale))


def _graphml(text: str, name: str) -> dict[str, Any]:
    import networkx as nx

    if re.search(r"<!(DOCTYPE|ENTITY)", text):
        raise GraphFileError(name, "a document type", "GraphML without entities")
    try:
        graph = nx.parse_graphml(text, force_multigraph=True)
    except Exception as error:  # networkx raises what its parser meets
        what = f"{type(error).__name__}: {error}"[:120]
        raise GraphFileError(name, what, "GraphML") from None
    ends = Counter(node for a, b in graph.edges() for node in (a, b))
    kinds = {}
    for node, about in graph.nodes(data=True):
        kind = str(about.get("kind", about.get("type", ""))).lower()
        if kind not in ("host", "switch", ""):
            raise GraphFileError(f"{name}, node {node}", f"kind {kind}", "host or switch")
        kinds[_name(node, name)] = kind or ("host" if ends[node] <= 1 else "switch")
    if len(kinds) != graph.number_of_nodes():
        raise GraphFileError(name, "two nodes of one name", "names that differ")
    links = []
    for a, b, about in graph.edges(data=True):
        place = f"{name}, edge {a} - {b}"
        rate = about.get("rate", about.get("bandwidth", about.get("capacity")))
        links.append(
            (
                _name(a, name),
                _name(b, name),
                _unit(place, "rate", rate, parse_rate_bps, format_rate),
                _unit(place, "delay", about.get("delay"), parse_time_ns, format_time),
            )
        )
    return _graph(kinds, links)


def _unit(
    place: str,
    key: str,
    value: object,
    parse: Callable[[object], int],
    form: Callable[[int], str],
) -> str | None:
    """A rate or delay with its unit; a number is in bits per second or nanoseconds."""
    if value is None:
        return None
    try:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        text = f"{value:.0f}{'bps' if key == 'rate' else 'ns'}" if number else str(value)
        return form(parse(text))
    except (ValueError, OverflowError):
        raise GraphFileError(f"{place}, {key}", str(value)[:40], "a value with its unit") from None


def _name(node: object, file: str) -> str:
    """A node's name in a spec: letters, digits and hyphens."""
    found = re.sub(r"[^a-z0-9-]+", "-", str(node).lower()).strip("-")
    if not found:
        raise GraphFileError(file, repr(node)[:40], "a node with letters or digits in its name")
    return found if found[0].isalpha() else f"n{found}"


def _infragraph(text: str, name: str) -> dict[str, Any]:
    try:
        document = read_document(text, name).data
    except SpecError as error:
        raise GraphFileError(name, str(error.problems[0])[:120], "YAML or JSON") from None
    about = document.get("infrastructure", document) if isinstance(document, dict) else None
    if not isinstance(about, dict) or "instances" not in about:
        raise GraphFileError(name, "no instances", "a graph of ns-3, GraphML or InfraGraph")
    if "edges" not in about:
        raise GraphFileError(name, "no edges", "InfraGraph with edges, as its schema has them")
    return _Infrastructure(about, name).graph()


class _Infrastructure:
    def __init__(self, about: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._devices = self._by_name(about, "devices")
        self._links = self._by_name(about, "links")
        self._instances = self._by_name(about, "instances")
        edges = about.get("edges")
        if not isinstance(edges, list):
            raise GraphFileError(f"{name}, edges", type(edges).__name__, "a list")
        self._edges = edges

    def graph(self) -> dict[str, Any]:
        kinds: dict[str, str] = {}
        for name, instance in self._instances.items():
            device = self._devices.get(str(instance.get("device")))
            if device is None:
                self._fail(f"instances.{name}.device", instance.get("device"), "a device")
            kind = "host" if self._computes(device) else "switch"
            count = self._count(f"instances.{name}.count", instance.get("count", 1))
            kinds |= {_name(f"{name}{number}", self._name): kind for number in range(count)}
        links = []
        for number, edge in enumerate(self._edges):
            place = f"edges[{number}]"
            if not isinstance(edge, dict):
                self._fail(place, edge, "an edge")
            ends = [list(self._ends(f"{place}.{key}", edge.get(key))) for key in ("ep1", "ep2")]
            rate = self._rate(place, edge.get("link"))
            for a, b in self._pairs(place, edge.get("scheme", "one2one"), *ends):
                if a != b:
                    links.append((a, b, rate, None))
        return _graph(kinds, links)

    def _computes(self, device: Mapping[str, Any]) -> bool:
        components = device.get("components")
        for component in components if isinstance(components, list) else ():
            if isinstance(component, dict):
                kind = component.get("choice", component.get("type"))
                inner = self._devices.get(str(component.get("name")))
                nested = kind == "device" and inner not in (None, device)
                if kind == "xpu" or (nested and inner is not None and self._computes(inner)):
                    return True
        return False

    def _ends(self, place: str, end: object) -> Iterator[str]:
        """The instances of an endpoint, once for each of its components."""
        if not isinstance(end, dict):
            self._fail(place, end, "an endpoint with instance and component")
        name, instances = self._slice(f"{place}.instance", end.get("instance"))
        if name not in self._instances:
            self._fail(f"{place}.instance", end.get("instance"), "an instance")
        instance = self._instances[name]
        count = self._count(f"instances.{name}.count", instance.get("count", 1))
        component, parts = self._slice(f"{place}.component", end.get("component"))
        device = self._devices.get(str(instance.get("device")), {})
        own = device.get("components")
        outer = component.partition(".")[0]
        known = next(
            (c for c in (own if isinstance(own, list) else ())
             if isinstance(c, dict) and c.get("name") == outer), None
        )  # fmt: skip
        if known is None:
            self._fail(f"{place}.component", end.get("component"), "a component of the device")
        many = self._count(f"{place}.component", known.get("count", 1))
        for number in range(count)[instances]:
            for _ in range(many)[parts]:
                yield _name(f"{name}{number}", self._name)

    def _slice(self, place: str, value: object) -> tuple[str, slice]:
        match = _SLICE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self._fail(place, value, "a name, perhaps with a range such as [0:4]")
        text = match["range"]
        if text is None or not text.strip():
            return match["name"], slice(None)
        try:
            numbers = [int(part) if part.strip() else None for part in text.split(":")]
        except ValueError:
            self._fail(place, value, "a range such as [0:4]")
        if len(numbers) > 3 or (len(numbers) == 3 and numbers[2] == 0):
            self._fail(place, value, "a range such as [0:4]")
        if len(numbers) == 1 and numbers[0] is not None:
            return match["name"], slice(numbers[0], numbers[0] + 1)
        return match["name"], slice(*numbers)

    def _pairs(
        self, place: str, scheme: object, ends: list[str], others: list[str]
    ) -> Iterator[tuple[str, str]]:
        if scheme == "one2one":
            if len(ends) != len(others):
                self._fail(place, f"{len(ends)} and {len(others)} ends", "as many on both sides")
            yield from zip(ends, others, strict=True)
        elif scheme == "many2many":
            if len(ends) * len(others) > _MOST_NODES * 16:
                self._fail(place, f"{len(ends)} times {len(others)} ends", "fewer")
            yield from ((a, b) for a in ends for b in others)
        else:
            self._fail(f"{place}.scheme", scheme, "one2one or many2many")

    def _rate(self, place: str, link: object) -> str | None:
        about = self._links.get(str(link))
        if about is None:
            self._fail(f"{place}.link", link, f"a link: {', '.join(list(self._links)[:8])}")
        physical = about.get("physical")
        bandwidth = (physical if isinstance(physical, dict) else about).get("bandwidth")
        if not isinstance(bandwidth, dict):
            return None
        scales = {"gigabits_per_second": 10**9, "gigabytes_per_second": 8 * 10**9}
        for key, scale in scales.items():
            value = bandwidth.get(key)
            if isinstance(value, (int, float)) and 0 < value < 10**6:
                return format_rate(max(round(value * scale), 1))
        found = ", ".join(map(str, bandwidth))
        return self._fail(f"links.{link}.bandwidth", found, f"one of {', '.join(scales)}")

    def _count(self, place: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST_NODES:
            self._fail(place, value, f"a whole number to {_MOST_NODES}")
        return value

    def _by_name(self, about: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
        entries = about.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            self._fail(key, type(entries).__name__, "a list of entries")
        return {str(each.get("name")): each for each in entries}

    def _fail(self, place: str, found: object, expected: str) -> NoReturn:
        raise GraphFileError(f"{self._name}, {place}", str(found)[:60], expected)
