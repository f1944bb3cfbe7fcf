"""A server as a file of NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE has it.

The file is XML: a `system` of processors (`cpu`), below them PCI devices (`pci`), which hold a
`gpu` with its `nvlink`s, or a `nic` with its ports (`net`). Names of nodes and attributes, and what
they mean, follow ncclTopoAddCpu, ncclTopoAddPci, ncclTopoAddGpu, ncclTopoAddNet and
ncclTopoAddNvLinks of src/graph/topo.cc (2.27).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

from collectives.algorithms.base import DoesNotFit
from collectives.nccl.server import GPU_MODELS, GpuModel, PathType, Server
from collectives.nccl.server import Nic as Port
from topologies.spec.fabric_section import NIC, SCALE_UP

MOST_BYTES = 16 << 20
"""Longer files are refused: a server's has some kilobytes."""

_MODELS = MappingProxyType({70: "v100", 80: "a100", 90: "h100", 100: "b200"})
"""The model that stands for a compute capability (the attribute `sm`)."""

_LANE_100MBPS: Mapping[str, int] = MappingProxyType(
    {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}
)
"""The rate of a lane by its GT/s, in units of 100 Mb/s (kvDictPciGen)."""

_VENDORS = MappingProxyType({"GenuineIntel": "intel", "AuthenticAMD": "amd"})

_SWITCH_CLASS = "0x068000"
"""The PCI class of an NVLink switch (PCI_NVSWITCH_CLASS of src/graph/topo.h)."""

_DEFAULT_MBPS = 10_000
"""The speed of a port that tells none (ncclTopoAddNet)."""


@dataclass(frozen=True)
class XmlNode:
    """A node of a file of NCCL's, with its place there, as `system/cpu[0]/pci[1]`. `key` is the
    variable that names the file. Raises DoesNotFit with file, node and attribute."""

    path: str
    key: str
    place: str
    element: ElementTree.Element

    @classmethod
    def read(cls, path: str, variable: str, root: str) -> XmlNode:
        """The root of a file, which has this name."""
        key = f"env.{variable}"
        expected = f"an XML file of NCCL, whose root is {root}"
        try:
            with Path(path).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            raise DoesNotFit(key, f"{path}: {error}", expected) from None
        if len(text) > MOST_BYTES:
            raise DoesNotFit(key, f"{path}: more than {MOST_BYTES} bytes", expected)
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise DoesNotFit(key, f"{path}: a document type", "none: NCCL writes none")
        try:
            element = ElementTree.fromstring(text)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise DoesNotFit(key, f"{path}: {error}", expected) from None
        if element.tag != root:
            raise DoesNotFit(key, f"{path}: {element.tag}", expected)
        return cls(path, key, root, element)

    def below(self, name: str | None = None) -> Iterator[XmlNode]:
        """The nodes right below it, or those of one name, in order."""
        for number, element in enumerate(self.element):
            if name is None or element.tag == name:
                place = f"{self.place}/{element.tag}[{number}]"
                yield XmlNode(self.path, self.key, place, element)

    def text(self, attribute: str, default: str | None = None) -> str:
        """An attribute."""
        found = self.element.get(attribute, default)
        if found is None:
            raise self.wrong(attribute, "nothing", "this attribute is required")
        return found

    def whole(self, attribute: str, low: int, high: int, default: int | None = None) -> int:
        """An attribute that is a whole number, decimal or hexadecimal."""
        text = self.text(attribute, None if default is None else str(default))
        try:
            value = int(text, 0) if text.lower().startswith("0x") else int(text)
        except ValueError:
            raise self.wrong(attribute, text, "a whole number") from None
        if not low <= value <= high:
            raise self.wrong(attribute, text, f"{low} to {high}")
        return value

    def number(self, attribute: str, high: float, default: str | None = None) -> float:
        """An attribute that is a number from 0."""
        text = self.text(attribute, default)
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(attribute, text, "a number") from None
        if not 0 <= value <= high:
            raise self.wrong(attribute, text, f"0 to {high:g}")
        return value

    def named(self, attribute: str, names: Mapping[str, object]) -> str:
        """An attribute that is one of these names."""
        text = self.text(attribute)
        if text not in names:
            raise self.wrong(attribute, text, ", ".join(names))
        return text

    def wrong(self, attribute: str, found: str, allowed: str) -> DoesNotFit:
        """The refusal of an attribute."""
        return DoesNotFit(self.key, f"{self.path}: {self.place}: {attribute}={found}", allowed)

    def refused(self, found: str, allowed: str) -> DoesNotFit:
        """The refusal of a node."""
        return DoesNotFit(self.key, f"{self.path}: {self.place}: {found}", allowed)


@dataclass(frozen=True)
class _Device:
    """A GPU or a port of a NIC: its node, the processor that it hangs on, and the PCI switches on
    the way there, by place, the farthest from the processor last."""

    node: XmlNode
    cpu: int
    switches: tuple[str, ...]
    link: XmlNode


@lru_cache(maxsize=8)
def read_topology(path: str) -> Server:
    """The server of a file, with all its GPUs in the order of their numbers. Raises DoesNotFit for
    what is wrong, and for servers that are not searched here."""
    root = XmlNode.read(path, "NCCL_TOPO_FILE", "system")
    root.whole("version", 1, 1)
    cpus = list(root.below("cpu"))
    devices = [one for number, cpu in enumerate(cpus) for one in _devices(cpu, cpu, number, ())]
    gpus = sorted(
        (one for one in devices if one.node.element.tag == "gpu"),
        key=lambda one: one.node.whole("dev", 0, 1023),
    )
    if not gpus:
        raise root.refused("no gpu", "1 to 64")
    if len(gpus) > 64:
        raise root.refused(f"{len(gpus)} GPUs", "1 to 64")
    model, nvlink_gbytes = _gpu(gpus[0])
    for one in gpus[1:]:
        if _gpu(one) != (model, nvlink_gbytes):
            raise one.node.refused("another GPU than the first", "GPUs that are alike")
    ports = [one for one in devices if one.node.element.tag == "net"]
    ports.sort(key=lambda one: one.node.whole("dev", 0, 1023))
    nics, types = [], {PathType.PIX}
    taken: list[int] = []
    for number, port in enumerate(ports):
        gpu = _beside(port, gpus, taken)
        taken.append(gpu)
        mbps = port.node.whole("speed", -1, 10**8, _DEFAULT_MBPS)
        latency_us = port.node.number("latency", 1e6, "0")
        nics.append(Port(number, (mbps if mbps > 0 else _DEFAULT_MBPS) / 8000, gpu, latency_us))
        if port.switches[-1] != gpus[gpu].switches[-1]:
            types.add(PathType.PXB)
    vendors = {cpu.named("vendor", _VENDORS) for cpu in cpus}
    if len(vendors) > 1:
        raise root.refused(f"processors of {' and '.join(sorted(vendors))}", "one vendor")
    tops = list(dict.fromkeys(one.switches[0] for one in gpus))
    sockets = list(dict.fromkeys(one.cpu for one in gpus))
    return Server(
        model,
        tuple(range(len(gpus))),
        tuple(nics),
        nvlink_gbytes,
        _VENDORS[vendors.pop()],
        path_type=max(types),
        all_gpus=len(gpus),
        switches=tuple(tops.index(one.switches[0]) for one in gpus),
        sockets=tuple(sockets.index(one.cpu) for one in gpus),
    )


def _devices(node: XmlNode, link: XmlNode, cpu: int, above: tuple[str, ...]) -> Iterator[_Device]:
    """GPUs and ports below a node; `above` are the PCI devices on the way to it."""
    for below in node.below():
        match below.element.tag:
            case "pci":
                if len(above) > 16:
                    raise below.refused("more than 16 PCI devices in a row", "fewer")
                yield from _devices(below, below, cpu, (*above, below.place))
            case "nic":
                yield from _devices(below, link, cpu, above)
            case "gpu" | "net":
                if len(above) < 2:
                    allowed = "below a PCI switch: others are not searched"
                    raise below.refused("right below a processor", allowed)
                yield _Device(below, cpu, above[:-1], link)


def _gpu(device: _Device) -> tuple[GpuModel, float]:
    """A GPU's model, with the bandwidth of its PCI link, and its bandwidth over NVLink."""
    capability = device.node.whole("sm", 0, 999)
    if capability not in _MODELS:
        allowed = ", ".join(f"{sm} ({name})" for sm, name in _MODELS.items())
        raise device.node.wrong("sm", str(capability), allowed)
    model = GPU_MODELS[_MODELS[capability]]
    links = 0
    for link in device.node.below("nvlink"):
        if link.text("tclass") != _SWITCH_CLASS:
            allowed = f"{_SWITCH_CLASS}, an NVLink switch: GPUs joined directly are not searched"
            raise link.wrong("tclass", link.text("tclass"), allowed)
        links += link.whole("count", 1, 1024)
    if not links:
        raise device.node.refused("no nvlink", "some to a switch: PCI alone is not searched")
    width = device.link.whole("link_width", 0, 64) or 16
    speed = device.link.text("link_speed").split(" ")[0].removesuffix(".0")
    pci_gbytes = width * _LANE_100MBPS.get(speed, 60) / 80
    return replace(model, pci_gbytes=pci_gbytes), links * model.nvlink_gbytes


def _beside(port: _Device, gpus: list[_Device], taken: list[int]) -> int:
    """The GPU beside a port: of those with the nearest PCI switch in common the one that has the
    fewest ports so far."""
    shared = []
    for one in gpus:
        both = zip(port.switches, one.switches, strict=False)
        shared.append(sum(mine == theirs for mine, theirs in both))
    nearest = max(shared)
    if not nearest:
        raise port.node.refused("no GPU on its PCI switches", "NICs that are each beside a GPU")
    near = [gpu for gpu, count in enumerate(shared) if count == nearest]
    return min(near, key=lambda gpu: (taken.count(gpu), gpu))


def spec_of_topology(path: str, servers: int) -> dict[str, object]:
    """A spec of so many of a file's servers on rails, as plain data, with an all-reduce of all
    GPUs. Raises DoesNotFit, also for servers that do not have a NIC of one rate beside each GPU."""
    server = read_topology(path)
    root = XmlNode.read(path, "NCCL_TOPO_FILE", "system")
    rates = {nic.gbytes for nic in server.nics}
    if sorted(nic.gpu for nic in server.nics) != list(server.gpus) or len(rates) > 1:
        found = f"{len(server.nics)} NICs beside {server.all_gpus} GPUs"
        raise root.refused(found, "a NIC of one rate beside each GPU, as rails have")
    operations = [{"kind": "all_reduce", "size": "1MiB"}]
    links = {
        "scale-up": {"rate": f"{round(server.nvlink_gbytes * 8000)}Mbps", **SCALE_UP},
        "nic": {"rate": f"{round(rates.pop() * 8000)}Mbps", **NIC},
    }
    return {
        "name": Path(path).stem,
        "fabric": {
            "kind": "rails",
            "servers": servers,
            "hosts_per_server": server.all_gpus,
            "links": links,
        },
        "workload": {
            "kind": "collectives",
            "ranks": servers * server.all_gpus,
            "operations": operations,
        },
        "collectives": {"backend": "nccl", "env": {"NCCL_TOPO_FILE": path}},
        "payload": "timing",
    }
