"""The bandwidth of NVLS and NVLSTree in NCCL's model of time, which changed with 2.28.

Follows ncclTopoTuneModel and ncclTopoGetAlgoTime of src/graph/tuning.cc (2.27 and 2.30).
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.nccl.communicator import Communicator
from collectives.nccl.tuner_tables import TunerTables

_SHARE = 5 / 6
"""The share that NVLS reaches of its graph's bandwidth (2.27)."""


@dataclass(frozen=True, slots=True)
class NvlsModel:
    """That of one communicator, by the tables of a version."""

    communicator: Communicator
    tables: TunerTables

    @property
    def _each(self) -> float:
        """The GPUs of a server."""
        return self.communicator.size / self.communicator.nodes

    @property
    def of_data(self) -> float:
        """The part of an all-reduce's bandwidth that is of its data: later versions have that of
        the bus."""
        if not self.tables.nvls_share:
            return _SHARE
        ranks = self.communicator.size
        return ranks / (2 * (ranks - 1))

    @property
    def server_gbytes(self) -> float:
        """The bandwidth of an all-reduce by NVLS in a server, in GB/s of its data."""
        graph = self.communicator.nvls_graph
        if not self.tables.nvls_share:
            return graph.channels * graph.bw_intra * _SHARE
        return graph.channels * self._inside("AllReduce") * self._each / (2 * (self._each - 1))

    @property
    def corrects_trees(self) -> bool:
        """Whether trees of NVLS take longer for sizes in between, as trees do: on Blackwell beside
        processors of x86, which all are here."""
        return self.tables.corrects_nvls_tree and generation_of(self.communicator) >= 3

    def channel_gbytes(self, function: str, algorithm: str) -> float:
        """The bandwidth of a channel; 0 where it cannot be."""
        comm = self.communicator
        graph, tree = comm.nvls_graph, algorithm == "NVLSTree"
        if not self.tables.nvls_share:
            if tree:
                return min(graph.bw_intra, graph.bw_inter / (1 if comm.nodes <= 2 else 2))
            if function == "AllReduce":
                return min(graph.bw_intra, graph.bw_inter)
            return min(graph.bw_intra * (self._each - 1) / self._each, graph.bw_inter * 0.9)
        inter = graph.bw_inter * (2 if tree and comm.nodes <= 2 else 1)
        found = min(self._inside(function), inter)
        if not tree:
            return found
        most = self.tables.nvls_tree_most[generation_of(comm)]
        return min(found, most[min(comm.nodes, 3) - 1])

    def _inside(self, function: str) -> float:
        """The bus bandwidth of a channel in a server, since 2.28."""
        graph = self.communicator.nvls_graph
        if graph.channels < 2:
            return 0.0
        share = self.tables.nvls_share[generation_of(self.communicator)]
        found = graph.bw_intra * share * (graph.channels - 1) / graph.channels
        # An all-reduce goes up and down at once.
        return found * (2.0 if function == "AllReduce" else (self._each - 1) / self._each)


def generation_of(communicator: Communicator) -> int:
    """Volta, Ampere, Hopper, Blackwell: 0 to 3."""
    return sum(communicator.compute_capability >= least for least in (80, 90, 100))
