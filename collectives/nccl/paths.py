"""Ways between the devices of a server, and what is left of their links in a search.

Follows ncclTopoComputePaths of src/graph/paths.cc (2.27) for servers whose GPUs are on one NVLink
switch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from collectives.nccl.server import PathType, Server

_INTEL_OVERHEAD = 1.2
"""INTEL_P2P_OVERHEAD of src/graph/topo.h: what a GPU sends through an Intel root complex takes."""

LOCAL_GBYTES = 5000.0
"""LOC_BW of src/graph/topo.h."""

Device = tuple[str, int]
"""`("gpu", i)`, `("net", i)` or `("nvs", 0)`; i counts the devices that take part."""


@dataclass(frozen=True, slots=True)
class Path:
    """A way: the numbers of its links in order, its narrowest GB/s, its type, and for each link
    what it takes for each byte."""

    links: tuple[int, ...]
    gbytes: float
    type: PathType
    factors: tuple[float, ...] = ()


class Paths:
    """All ways of a server, and what is left of its links."""

    def __init__(self, server: Server, with_nics: bool) -> None:
        self.server = server
        self.gpus = range(len(server.gpus))
        self.nics = range(len(server.nics)) if with_nics else range(0)
        self.left: list[int] = []
        """MB/s that are left of each link: NCCL rounds to thousandths of GB/s."""
        self._numbers: dict[str, int] = {}
        self._pci: set[int] = set()
        self.nic_left = [server.nics[n].gbytes for n in self.nics]
        self._lay()
        self._paths: dict[tuple[Device, Device], Path] = {}
        for one in self._devices():
            for other in self._devices():
                path = self._found(one, other)
                if path is not None:
                    self._paths[one, other] = path

    def __call__(self, one: Device, other: Device) -> Path | None:
        """The way from a device to another one; None where NCCL looks for none."""
        return self._paths.get((one, other))

    def take(self, path: Path, gbytes: float) -> bool:
        """Take bandwidth of each link of a way; False, and nothing taken, where one has too
        little."""
        left = self.left
        for at, link in enumerate(path.links):
            need = round(gbytes * path.factors[at] * 1000)
            if left[link] < need:
                for before in range(at):
                    left[path.links[before]] += round(gbytes * path.factors[before] * 1000)
                return False
            left[link] -= need
        return True

    def give(self, path: Path, gbytes: float) -> None:
        """Give back what was taken."""
        for link, factor in zip(path.links, path.factors, strict=True):
            self.left[link] += round(gbytes * factor * 1000)

    def local_gpus(self, nic: int) -> list[int]:
        """The GPUs that are nearest to a NIC, by type and then by bandwidth."""
        paths = {g: self(("net", nic), ("gpu", g)) for g in self.gpus}
        known = {g: path for g, path in paths.items() if path is not None}
        if not known:
            return []
        best = min((path.type, -path.gbytes) for path in known.values())
        return [g for g, path in known.items() if (path.type, -path.gbytes) == best]

    def local_gpu(self, nic: int) -> int | None:
        """The GPU whose own NIC this is (ncclTopoGetLocalGpu)."""
        own = self.server.nics[nic].gpu
        if own in self.server.gpus:
            return self.server.gpus.index(own)
        near = self.local_gpus(nic)
        return near[0] if near else None

    def local_nics(self, gpu: int) -> list[int]:
        """The NICs of a GPU in the order of channels (ncclTopoGetLocalNet): its own first."""
        known = {n: self(("gpu", gpu), ("net", n)) for n in self.nics}
        near = {n: path for n, path in known.items() if path is not None}
        if not near:
            return []
        best = min((path.type, -path.gbytes) for path in near.values())
        found = [n for n, path in near.items() if (path.type, -path.gbytes) == best]
        own = [n for n in found if self.server.nics[n].gpu == self.server.gpus[gpu]]
        return [*own, *(n for n in found if n not in own)]

    def _lay(self) -> None:
        server = self.server
        pci = server.model.pci_gbytes
        for g in self.gpus:
            self._link("nvl", "gpu", g, "nvs", 0, server.nvlink_gbytes)
            switch = server.pci_switch(server.gpus[g])
            self._link("pci", "gpu", g, "pci", switch, pci)
            self._link("pci", "pci", switch, "cpu", server.socket(server.gpus[g]), pci)
        for n in self.nics:
            gpu = server.nics[n].gpu
            switch = server.pci_switch(gpu)
            self._link("pci", "net", n, "pci", switch, pci)
            self._link("net", "net", n, "port", n, server.nics[n].gbytes)
            self._link("pci", "pci", switch, "cpu", server.socket(gpu), pci)
        sockets = range(max((1, *server.sockets)) + 1)
        for one, other in itertools.combinations(sockets, 2):
            self._link("sys", "cpu", one, "cpu", other, server.socket_gbytes)

    def _link(self, kind: str, a: str, i: int, b: str, j: int, gbytes: float) -> None:
        for name in (f"{a}{i}>{b}{j}", f"{b}{j}>{a}{i}"):
            if name in self._numbers:
                continue
            self._numbers[name] = len(self.left)
            if kind == "pci":
                self._pci.add(len(self.left))
            self.left.append(round(gbytes * 1000))

    def _devices(self) -> list[Device]:
        return [
            *(("gpu", g) for g in self.gpus),
            *(("net", n) for n in self.nics),
            ("nvs", 0),
        ]

    def _found(self, one: Device, other: Device) -> Path | None:
        kinds = one[0], other[0]
        if one == other:
            return Path((), LOCAL_GBYTES, PathType.LOC)
        if kinds == ("gpu", "gpu"):
            return self._path(PathType.NVL, f"gpu{one[1]}", "nvs0", f"gpu{other[1]}")
        if kinds in (("gpu", "nvs"), ("nvs", "gpu")):
            return self._path(PathType.NVL, f"{one[0]}{one[1]}", f"{other[0]}{other[1]}")
        if kinds == ("gpu", "net"):
            return self._to_nic(one[1], other[1])
        if kinds == ("net", "gpu"):
            return self._by_pci(other[1], one[1], outwards=False)
        return None

    def _to_nic(self, gpu: int, nic: int) -> Path:
        direct = self._by_pci(gpu, nic, outwards=True)
        server = self.server
        own = server.nics[nic].gpu
        if not (server.pxn and server.gdr) or own not in server.gpus:
            return direct
        local = server.gpus.index(own)
        if local == gpu:
            return direct
        beyond = self._by_pci(local, nic, outwards=True)
        if beyond.type > PathType.PXB:
            return direct
        if beyond.gbytes > direct.gbytes or direct.type > PathType.PXN:
            inside = self._path(PathType.NVL, f"gpu{gpu}", "nvs0", f"gpu{local}")
            return Path(
                (*inside.links, *beyond.links),
                min(inside.gbytes, beyond.gbytes),
                PathType.PXN,
                (*inside.factors, *beyond.factors),
            )
        return direct

    def _by_pci(self, gpu: int, nic: int, outwards: bool) -> Path:
        """The way over PCI between a GPU and a NIC."""
        server = self.server
        here, there = server.gpus[gpu], server.nics[nic].gpu
        switches = server.pci_switch(here), server.pci_switch(there)
        names = [f"gpu{gpu}", f"pci{switches[0]}"]
        kind = server.path_type
        if switches[0] != switches[1] or not server.gdr:
            sockets = server.socket(here), server.socket(there)
            names.append(f"cpu{sockets[0]}")
            kind = PathType.PHB
            if sockets[0] != sockets[1]:
                names.append(f"cpu{sockets[1]}")
                kind = PathType.SYS
            names.append(f"pci{switches[1]}")
        names += [f"net{nic}", f"port{nic}"]
        if not outwards:
            names.reverse()
        factor = 1.0
        if kind is PathType.PHB and server.cpu == "intel" and outwards:
            factor = _INTEL_OVERHEAD
        return self._path(kind, *names, factor=factor)

    def _path(self, kind: PathType, *names: str, factor: float = 1.0) -> Path:
        """A way by the names of its devices; PCI links take `factor` for each byte."""
        ends = itertools.pairwise(names)
        links = tuple(self._numbers[f"{a}>{b}"] for a, b in ends)
        narrowest = min(self.left[link] for link in links) / 1000
        factors = tuple(factor if link in self._pci else 1.0 for link in links)
        return Path(links, narrowest, kind, factors)
