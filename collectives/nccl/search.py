"""NCCL's search of rings and trees over the devices of one server.

Follows ncclTopoCompute and what it calls in src/graph/search.cc (2.27): a depth-first search that
takes bandwidth from links, at one speed after the other, within bounds on its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectives.nccl.graph import Graph, Pattern
from collectives.nccl.paths import LOCAL_GBYTES, Path, Paths
from collectives.nccl.server import PathType, Server

_GLOBAL_STEPS = 1 << 19
_STEPS = 1 << 14
_STEPS_SAME_CHANNELS = 1 << 8
"""NCCL_SEARCH_GLOBAL_TIMEOUT, NCCL_SEARCH_TIMEOUT and NCCL_SEARCH_TIMEOUT_SAMECHANNELS."""

_INSIDE = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_OUTSIDE = (
    *(48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    *(2.4, 1.2, 0.24, 0.12),
)
_INSIDE_90 = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
_OUTSIDE_90 = (
    *(48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4),
    *(1.2, 0.24, 0.12),
)
_INSIDE_100 = (90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0)
_OUTSIDE_100 = (96.0, 48.0, 45.1, *_OUTSIDE_90[2:])
"""Speeds that are tried: speedArrayIntra, speedArrayInter, and those of sm90 and sm100."""

_MAX_NVLS_HEADS = 32
"""NCCL_MAX_NVLS_ARITY of src/include/device.h."""

MAX_DIRECT_GPUS = 8
"""NCCL_MAX_DIRECT_ARITY + 1: GPUs of a server that CollNetDirect has at most."""


def search(server: Server, with_nics: bool, graph: Graph, cross_nic: int = 2) -> None:
    """Fill in the channels of a graph. Without a way that is wide enough it gets the GPUs in their
    order at 0.1 GB/s, as NCCL has it."""
    _Search(server, with_nics, cross_nic).compute(graph)


@dataclass(slots=True)
class _Clock:
    """The steps that are left; -1: the best that there can be is found."""

    left: int


class _Search:
    def __init__(self, server: Server, with_nics: bool, cross_nic: int) -> None:
        self.server = server
        self.paths = Paths(server, with_nics)
        self.gpus = len(server.gpus)
        self.nics = len(self.paths.nics)
        self.cross_nic = cross_nic
        self.used: list[set[int]] = []
        self.compute_capability = server.model.compute_capability
        self._known: dict[tuple[object, ...], int] = {}
        self._best_so_far = 0.0
        self._orders: dict[tuple[PathType, int | None], list[int]] = {}

    # ------------------------------------------------------------------ speeds and passes

    def compute(self, graph: Graph) -> None:
        """All passes of the search, from the best that could be downwards."""
        cross = self.cross_nic if self.nics > 1 and graph.pattern in _CROSSING else 0
        graph.cross_nic = 1 if cross == 1 else 0
        intra_types = self._types("gpu")
        inter_types = self._types("net")
        least_intra = min(intra_types, default=PathType.LOC)
        most_intra = max(intra_types, default=PathType.SYS)
        least_inter = min(inter_types, default=PathType.PIX)
        most_inter = max(inter_types, default=PathType.SYS)
        if self.nics:
            most_intra = most_inter
        graph.type_intra, graph.type_inter = least_intra, least_inter
        try_same = graph.pattern is not Pattern.NVLS
        graph.same_channels = try_same
        if graph.pattern is Pattern.NVLS:
            if self.compute_capability < 90 or self.gpus < 2:
                return
            graph.max_channels = min(_MAX_NVLS_HEADS, self.gpus)
            if not self.nics:
                graph.min_channels = graph.max_channels
        if graph.pattern is Pattern.COLLNET_DIRECT:
            graph.max_channels = min(MAX_DIRECT_GPUS, self.gpus)
        if self.gpus == 1 and graph.pattern is not Pattern.RING:
            graph.pattern = Pattern.TREE
        now = graph.copy()
        speeds = self._speeds()
        widest, total = self._widest(), self._total(graph.pattern)
        at = 0
        while at < len(speeds) - 1 and (
            speeds[at] > widest or speeds[at] * graph.min_channels > total
        ):
            at += 1
        now.bw_intra = now.bw_inter = speeds[at]
        left_in_all = _GLOBAL_STEPS
        first_pass = True
        while True:
            steps = _STEPS_SAME_CHANNELS if now.same_channels else _STEPS
            clock = _Clock(steps)
            now.intra, now.inter, now.hops = [], [], 0
            left_in_all -= steps
            self._one_search(now, graph, clock)
            ended = clock.left == -1 or graph.channels * graph.bw_inter >= self._server_total()
            if first_pass and not ended:
                if now.same_channels and not self._through_amd(now):
                    now.same_channels = False
                    continue
                now.same_channels = try_same
                left_in_all = left_in_all + clock.left if clock.left != -1 else _GLOBAL_STEPS
                if not (left_in_all < 0 and graph.channels):
                    if self.compute_capability >= 90 and now.pattern is Pattern.BALANCED_TREE:
                        now.pattern = Pattern.TREE
                        continue
                    now.pattern = graph.pattern
                    farthest = now.type_inter if self.nics else most_intra
                    if now.type_intra < farthest and (
                        not graph.channels or now.type_intra < graph.type_intra
                    ):
                        now.type_intra = PathType(_next(now.type_intra))
                        continue
                    now.type_intra = least_intra
                    if (
                        self.nics
                        and now.type_inter < most_inter
                        and (
                            not graph.channels
                            or now.type_inter < graph.type_inter
                            or now.type_inter < PathType.PXN
                        )
                    ):
                        now.type_inter = PathType(_next(now.type_inter))
                        continue
                    now.type_inter = least_inter
                    if (
                        cross == 2
                        and now.cross_nic == 0
                        and graph.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
                    ):
                        now.cross_nic = 2
                        continue
                    now.cross_nic = 1 if cross == 1 else 0
                    if at < len(speeds) - 1 and (
                        not graph.channels or speeds[at + 1] / graph.bw_inter > 0.49
                    ):
                        at += 1
                        now.bw_intra = now.bw_inter = speeds[at]
                        continue
            if first_pass:
                clock.left = -1
                self._duplicate(graph)
                now = graph.copy()
                at = 0
                while at < len(speeds) - 1 and speeds[at] > graph.bw_inter:
                    at += 1
                now.bw_intra = now.bw_inter = speeds[at]
                now.min_channels = graph.channels
                first_pass = False
            if clock.left != 0 and at > 0 and self._faster(now, graph, speeds, at):
                at -= 1
                continue
            break
        if not graph.channels and not graph.collnet and graph.pattern is not Pattern.NVLS:
            graph.intra = [list(range(self.gpus))]
            graph.inter = [[0, 0]] if self.nics else []
            graph.bw_intra = graph.bw_inter = 0.1
            graph.type_intra = graph.type_inter = PathType.SYS

    def _one_search(self, now: Graph, best: Graph, clock: _Clock) -> None:
        """A search from its start. One that differs from an earlier one only in types that no way
        has, and found nothing better, is not made again: it would end as that one did."""
        if best.channels * best.bw_intra != self._best_so_far:
            self._known.clear()
            self._best_so_far = best.channels * best.bw_intra
        key = (
            *(now.bw_intra, now.bw_inter, now.pattern, now.same_channels, now.cross_nic),
            *(now.min_channels, now.max_channels),
            max((one for one in self._types("gpu") if one <= now.type_intra), default=None),
            max((one for one in self._types("net") if one <= now.type_inter), default=None),
        )
        if key in self._known:
            clock.left = self._known[key]
            return
        before = best.copy()
        self._from_the_start(now, best, clock)
        if best == before:
            self._known[key] = clock.left

    def _faster(self, now: Graph, graph: Graph, speeds: Sequence[float], at: int) -> bool:
        """Set the next higher speed of the second pass; False where there is none to try."""
        if graph.pattern is Pattern.RING:
            now.bw_intra = now.bw_inter = speeds[at - 1]
        elif graph.pattern is Pattern.NVLS:
            if not (now.bw_inter == graph.bw_inter and now.bw_inter < now.bw_intra * 2):
                return False
            now.min_channels = now.max_channels = graph.channels
            now.bw_inter = speeds[at - 1]
        elif now.bw_intra == graph.bw_intra and now.bw_intra < now.bw_inter * 2:
            now.bw_intra = speeds[at - 1]
        else:
            return False
        return True

    def _speeds(self) -> Sequence[float]:
        if self.compute_capability >= 100:
            return _OUTSIDE_100 if self.nics else _INSIDE_100
        if self.compute_capability >= 90:
            return _OUTSIDE_90 if self.nics else _INSIDE_90
        return _OUTSIDE if self.nics else _INSIDE

    def _types(self, kind: str) -> list[PathType]:
        others = self.paths.gpus if kind == "gpu" else self.paths.nics
        found = []
        for g in self.paths.gpus:
            for other in others:
                if (kind, other) == ("gpu", g):
                    continue
                path = self.paths(("gpu", g), (kind, other))
                if path is not None:
                    found.append(path.type)
        return found

    def _widest(self) -> float:
        kind = "net" if self.nics else "gpu"
        others = self.paths.nics if self.nics else self.paths.gpus
        found = 0.0
        for g in self.paths.gpus:
            for other in others:
                path = self.paths(("gpu", g), (kind, other))
                if path is not None and path.links:
                    found = max(found, path.gbytes)
        return found

    def _server_total(self) -> float:
        if not self.nics and self.gpus == 1:
            return LOCAL_GBYTES
        return max(self.server.nvlink_gbytes, self.server.model.pci_gbytes)

    def _total(self, pattern: Pattern) -> float:
        total = self._server_total()
        if self.gpus > 1 and pattern is not Pattern.RING:
            total *= self.gpus / (self.gpus - 1)
        return total

    def _through_amd(self, now: Graph) -> bool:
        return self.server.cpu == "amd" and now.type_intra is PathType.SYS

    def _duplicate(self, graph: Graph) -> None:
        """Twice as many channels at half the speed, where one has enough (ncclTopoDupChannels)."""
        if not graph.channels or graph.pattern is Pattern.NVLS or graph.bw_intra < 25.0:
            return
        if self.compute_capability > 80 and graph.bw_intra < 50.0 and graph.channels > 4:
            return
        before = graph.channels
        after = min(before * 2, graph.max_channels)
        graph.intra += [list(one) for one in graph.intra[: after - before]]
        graph.inter += [list(one) for one in graph.inter[: after - before]]
        share = -(-after // before)
        graph.bw_intra /= share
        graph.bw_inter /= share

    # ------------------------------------------------------------------ the search itself

    def _from_the_start(self, now: Graph, best: Graph, clock: _Clock) -> None:
        """One more channel."""
        if self.nics:
            self._from_nics(now, best, clock)
            return
        channel = now.channels
        if now.pattern is Pattern.NVLS:
            if channel < self.gpus:
                self._start(now, best, channel, [], "", clock)
            return
        if channel == 0:
            self._start(now, best, 0, [], "pci", clock)
        else:
            self._start(now, best, now.intra[channel - 1][0], [], "replay", clock)
        if not now.same_channels or channel == 0:
            for g in range(self.gpus):
                self._start(now, best, g, [], "", clock)

    def _ends(self, pattern: Pattern) -> tuple[int, int]:
        last = self.gpus - 1
        if self.nics:
            if pattern is Pattern.RING:
                return last, -1
            return (1 if pattern is Pattern.SPLIT_TREE else 0), -1
        return -1, last if pattern is Pattern.RING else -1

    def _from_nics(self, now: Graph, best: Graph, clock: _Clock) -> None:
        gbytes = int(now.bw_inter)
        nics = self._nics_in_order(now.type_inter, None)
        channel = now.channels
        ring_across = now.pattern is Pattern.RING and now.cross_nic == 2 and channel & 1
        for i in range(len(nics)):
            n = nics[(channel + i) % len(nics)]
            if self.paths.nic_left[n] < gbytes:
                continue
            if ring_across and n != now.inter[channel - 1][1]:
                continue
            if clock.left <= 0:
                return
            self.paths.nic_left[n] -= gbytes
            local = self.paths.local_gpu(n)
            found = False
            if now.pattern in _OF_HEADS:
                heads = [one[0] for one in now.intra]
                if channel < len(nics) and local is not None and local not in heads:
                    self._start(now, best, local, [n, n], "", clock)
                    found = True
            elif channel > 0 and now.same_channels:
                self._start(now, best, now.intra[channel - 1][0], [n, n], "replay", clock)
            else:
                if local is not None:
                    self._start(now, best, local, [n, n], "", clock)
                for g in self.paths.local_gpus(n):
                    if g != local:
                        self._start(now, best, g, [n, n], "", clock)
            self.paths.nic_left[n] += gbytes
            if found:
                return

    def _start(
        self, now: Graph, best: Graph, g: int, inter: list[int], order: str, clock: _Clock
    ) -> None:
        """Begin a channel at a GPU, to which data comes from a NIC, or from nowhere."""
        path = None
        if inter:
            path = self._open(now, ("net", inter[0]), ("gpu", g), now.bw_inter)
            if path is None:
                return
        now.intra.append([g])
        now.inter.append(list(inter))
        self.used.append({g})
        back_to_net, back_to_first = self._ends(now.pattern)
        self._go_on(now, best, g, 0, back_to_net, back_to_first, order, clock)
        now.intra.pop()
        now.inter.pop()
        self.used.pop()
        if path is not None:
            self._close(now, path, now.bw_inter)

    def _go_on(
        self,
        now: Graph,
        best: Graph,
        g: int,
        step: int,
        back_to_net: int,
        back_to_first: int,
        order: str,
        clock: _Clock,
    ) -> None:
        if clock.left <= 0:
            return
        clock.left -= 1
        if step == self.gpus:
            self._complete(now, best, clock)
        elif step == back_to_net:
            self._to_net(now, best, g, step, back_to_first, order, clock)
        elif now.pattern is Pattern.NVLS:
            self._heads(now, best, g, clock)
        elif now.pattern is Pattern.COLLNET_DIRECT:
            self._direct_head(now, best, g, clock)
        elif step < self.gpus - 1:
            for to in self._next_gpus(now, g, step, back_to_net, order):
                path = self._open(now, ("gpu", g), ("gpu", to), now.bw_intra)
                if path is None:
                    continue
                self.used[-1].add(to)
                now.intra[-1].append(to)
                self._go_on(now, best, to, step + 1, back_to_net, back_to_first, order, clock)
                now.intra[-1].pop()
                self.used[-1].remove(to)
                self._close(now, path, now.bw_intra)
        elif step == back_to_first:
            first = now.intra[-1][0]
            path = self._open(now, ("gpu", g), ("gpu", first), now.bw_intra)
            if path is not None:
                self._go_on(now, best, first, self.gpus, back_to_net, -1, order, clock)
                self._close(now, path, now.bw_intra)
        else:
            self._go_on(now, best, g, self.gpus, -1, -1, order, clock)

    def _to_net(
        self,
        now: Graph,
        best: Graph,
        g: int,
        step: int,
        back_to_first: int,
        order: str,
        clock: _Clock,
    ) -> None:
        channel = now.channels - 1
        start = now.inter[-1][0]
        balanced = now.pattern is Pattern.BALANCED_TREE
        for n in self._nics_in_order(now.type_inter, g):
            if now.pattern is Pattern.TREE and n != start:
                continue
            if now.pattern is Pattern.RING and now.cross_nic == 2:
                if channel & 1 and n != now.inter[channel - 1][0]:
                    continue
            elif now.cross_nic == 0 and n != start:
                continue
            after, gbytes = -1, now.bw_inter
            if balanced:
                if step == 0:
                    after = 1
                elif n != now.inter[-1][1]:
                    continue
                gbytes /= 2
            path = self._open(now, ("gpu", g), ("net", n), gbytes)
            if path is None:
                continue
            kept = now.inter[-1][1]
            now.inter[-1][1] = n
            self._go_on(now, best, g, step, after, back_to_first, order, clock)
            now.inter[-1][1] = kept
            self._close(now, path, gbytes)

    def _heads(self, now: Graph, best: Graph, g: int, clock: _Clock) -> None:
        """Whether the switch can read from and write to all GPUs for one more head."""
        taken: list[tuple[tuple[str, int], tuple[str, int], float]] = []
        for to_gpu in (True, False):
            for d in range(self.gpus):
                ends = (("nvs", 0), ("gpu", d)) if to_gpu else (("gpu", d), ("nvs", 0))
                gbytes = now.bw_intra * (2 if d == g else 1)
                path = self.paths(*ends)
                assert path is not None
                if path.type > now.type_intra or not self.paths.take(path, gbytes):
                    break
                taken.append((*ends, gbytes))
        if len(taken) == 2 * self.gpus:
            self._go_on(now, best, g, self.gpus, -1, -1, "", clock)
        self._give_back(taken)

    def _direct_head(self, now: Graph, best: Graph, g: int, clock: _Clock) -> None:
        """Whether one more head can send to and receive from all GPUs, each with its share
        (ncclTopoSearchTryCollnetDirect)."""
        taken: list[tuple[tuple[str, int], tuple[str, int], float]] = []
        share = now.bw_intra / (self.gpus - 1)
        others = [d for d in range(self.gpus) if d != g]
        for start, end in (*((g, d) for d in others), *((d, g) for d in others)):
            path = self.paths(("gpu", start), ("gpu", end))
            if path is None or path.type > now.type_intra or not self.paths.take(path, share):
                break
            taken.append((("gpu", start), ("gpu", end), share))
        if len(taken) == 2 * len(others):
            now.intra[-1] += others
            self._go_on(now, best, g, self.gpus, -1, -1, "", clock)
            now.intra[-1] = [g]
        self._give_back(taken)

    def _give_back(self, taken: list[tuple[tuple[str, int], tuple[str, int], float]]) -> None:
        for one, other, gbytes in reversed(taken):
            path = self.paths(one, other)
            assert path is not None
            self.paths.give(path, gbytes)

    def _open(
        self, now: Graph, start: tuple[str, int], end: tuple[str, int], gbytes: float
    ) -> Path | None:
        """A way, taken, if it is near and wide enough (ncclTopoFollowPath)."""
        path = self.paths(start, end)
        if path is None:
            return None
        farthest = now.type_intra if start[0] == end[0] else now.type_inter
        if path.type > farthest:
            return None
        if now.pattern in _BOTH_WAYS:
            back = self.paths(end, start)
            if back is None or back.type > farthest:
                return None
        if not self.paths.take(path, gbytes):
            return None
        now.hops += len(path.links)
        return path

    def _close(self, now: Graph, path: Path, gbytes: float) -> None:
        now.hops -= len(path.links)
        self.paths.give(path, gbytes)

    def _next_gpus(
        self, now: Graph, g: int, step: int, back_to_net: int, order: str
    ) -> Sequence[int]:
        """The GPUs to go to, in the order in which they are tried: with an NVLink switch only the
        neighbours by number (ncclTopoSearchNextGpuSort)."""
        if order == "pci":
            return (step + 1,)
        if order == "replay":
            return (now.intra[-2][step + 1],)
        free = [one for one in range(self.gpus) if one not in self.used[-1] and one != g]
        after, before = (g + 1) % self.gpus, (g - 1) % self.gpus
        if now.pattern is Pattern.RING:
            wanted = [after, before]
        elif now.pattern in (Pattern.SPLIT_TREE, Pattern.BALANCED_TREE):
            wanted = [before, after]
        else:
            wanted = [after]
        if len(wanted) == 2 and wanted[0] == wanted[1]:
            wanted.pop()
        # Each of them is moved to the front: the last one that is free is tried first.
        return [one for one in reversed(wanted) if one in free]

    def _nics_in_order(self, type_inter: PathType, gpu: int | None) -> list[int]:
        """NICs of a GPU, or of all: their own first, then those that are near enough
        (ncclTopoSelectNets)."""
        if (type_inter, gpu) in self._orders:
            return self._orders[type_inter, gpu]
        gpus = self.paths.gpus if gpu is None else (gpu,)
        found: list[int] = []
        for g in gpus:
            found += [n for n in self.paths.local_nics(g) if n not in found]
        for kind in range(type_inter + 1):
            for g in gpus:
                for n in self.paths.nics:
                    path = self.paths(("gpu", g), ("net", n))
                    if path is not None and path.type == kind and n not in found:
                        found.append(n)
        self._orders[type_inter, gpu] = found
        return found

    def _complete(self, now: Graph, best: Graph, clock: _Clock) -> None:
        if _is_better(now, best, self.gpus):
            limits = best.min_channels, best.max_channels
            best.takes(now)
            best.min_channels, best.max_channels = limits
            if now.channels == now.max_channels:
                clock.left = -1
        if now.channels < now.max_channels:
            self._from_the_start(now, best, clock)


_OF_HEADS = (Pattern.NVLS, Pattern.COLLNET_DIRECT)
_CROSSING = (Pattern.RING, Pattern.BALANCED_TREE, Pattern.SPLIT_TREE)
_BOTH_WAYS = (Pattern.BALANCED_TREE, Pattern.TREE, Pattern.SPLIT_TREE)


def _next(kind: PathType) -> int:
    """The type after one; DIS has none."""
    return min(one for one in PathType if one > kind)


def _is_better(now: Graph, best: Graph, gpus: int) -> bool:
    """ncclTopoCompareGraphs."""
    if now.channels < now.min_channels:
        return False
    if now.pattern is Pattern.NVLS:
        more = now.channels > best.channels and now.channels <= gpus
        return more or now.channels * now.bw_inter > best.channels * best.bw_inter
    mine, theirs = now.channels * now.bw_intra, best.channels * best.bw_intra
    if mine != theirs:
        return mine > theirs
    return now.pattern is best.pattern and now.cross_nic == best.cross_nic and now.hops < best.hops
