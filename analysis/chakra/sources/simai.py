"""SimAI's workload files, which AICB writes, as graphs.

A first line names the loop and the degrees of parallelism, a second how many layers there are. A
layer is a line of 12 words: its name, a reserved number, a time, a collective and a size for each
of forward pass, input gradient and weight gradient, and the time of the update. Times are in
nanoseconds, sizes in bytes of the whole array.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 8
    1
    attention -1 556000 ALLREDUCE 16777216 1 NONE 0 1 NONE 0 1

A pass computes each layer and awaits its collective; then it goes back, input gradient and its
collective before weight gradient, whose collective nobody awaits within the pass. Forward
collectives have at least 4096 bytes. Forward pass and input gradient are among tensor-parallel
ranks, weight gradients among data-parallel ones; a collective's suffix _EP, _DP_EP names the
expert-parallel ranks, and those that hold the same experts. Ranks are numbered as Megatron does:
tensor, then data, then pipeline; experts are spread over neighbours in data parallelism.
Source: aliyun/SimAI, astra-sim-alibabacloud/astra-sim/workload/Workload.cc (initialize_workload,
iterate_hybrid_parallel_Transformer_fwd_in_bckwd, iterate_micro_benchmark).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from analysis.chakra.limits import MOST_NODES
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.layer_file import PASSES
from topologies.spec.workload_types import MAX_SIZE_BYTES

_LOOPS = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "MICRO")
_KINDS = {
    "ALLREDUCE": Kind.ALL_REDUCE,
    "ALLGATHER": Kind.ALL_GATHER,
    "REDUCESCATTER": Kind.REDUCE_SCATTER,
    "ALLTOALL": Kind.ALL_TO_ALL,
    "BROADCAST": Kind.BROADCAST,
}
KIND_NAMES = {kind: name for name, kind in _KINDS.items()}
_WORDS = 12
LEAST_FORWARD_BYTES = 4096
_LARGEST = 10**15
_KEYS = ("model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus", "pp_comm")


@dataclass(frozen=True, slots=True)
class _Part:
    """A pass at a layer; `group` is None for the loop's own."""

    duration_ns: int
    kind: Kind | None
    size_bytes: int
    group: str | None


@dataclass(frozen=True, slots=True)
class Degrees:
    """How many ranks there are, and degrees of parallelism of each kind."""

    ranks: int
    tensor: int
    pipeline: int
    expert: int

    def members(self, group: str, rank: int) -> tuple[int, ...]:
        """The ranks of a rank's group of a kind."""
        tensor, data = self.tensor, self.ranks // (self.tensor * self.pipeline)
        place, replica = rank % tensor, rank // tensor % data
        first = rank - rank % (tensor * data) + place
        if group == "TP":
            return tuple(range(rank - place, rank - place + tensor))
        if group == "EP":
            start = replica - replica % self.expert
            return tuple(first + tensor * (start + other) for other in range(self.expert))
        step = self.expert if group == "DP_EP" else 1
        start = replica % step
        return tuple(first + tensor * other for other in range(start, data, step))


def read_simai(path: Path) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    """Every rank's graph of one pass, and notes. Raises ChakraError naming the line and the
    word."""
    return _Reader(path).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            text = read_bytes(path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ChakraError(path, error.start, "is no text (UTF-8)") from None
        self._rows = [
            (n, line.split()) for n, line in enumerate(text.split("\n"), 1) if line.strip()
        ]

    def read(self) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
        line, header = self._rows[0]
        if header[0] not in _LOOPS:
            self._fail(line, f"found {header[0]!r}, allowed {', '.join(_LOOPS)}")
        about = self._header(line, header)
        if len(self._rows) < 2:
            self._fail(line, "found no second line, expected the number of layers")
        line, words = self._rows[1]
        count = self._number(line, words[0], "the number of layers")
        rows = self._rows[2:]
        if len(words) != 1 or len(rows) != count or not rows:
            self._fail(line, f"found {' '.join(words[:3])}, and {len(rows)} layers behind it")
        layers = [self._layer(line, words) for line, words in rows]
        degrees = self._degrees(about)
        if degrees.ranks * len(layers) * 6 > MOST_NODES:
            self._fail(
                self._rows[0][0],
                f"{degrees.ranks} ranks with {len(layers)} layers each are more than "
                f"{MOST_NODES:,} nodes",
            )
        micro = header[0] == "MICRO"
        graphs = tuple(tuple(self._rank(layers, degrees, r, micro)) for r in range(degrees.ranks))
        return graphs, tuple(self._notes(about, micro))

    def _notes(self, about: dict[str, int], micro: bool) -> Iterator[str]:
        if about.get("pp_comm"):
            yield (
                "pp_comm, the messages between stages of a pipeline, is priced by a formula in "
                "SimAI and no traffic there, nor here"
            )
        if micro:
            yield "MICRO: its lines run one after another; SimAI runs the first one alone"

    def _header(self, line: int, words: Sequence[str]) -> dict[str, int]:
        """The keys of the first line; lists of checkpoints must be empty."""
        about: dict[str, int] = {}
        place = 1
        while place < len(words):
            key = words[place].removesuffix(":")
            value = words[place + 1] if place + 1 < len(words) else ""
            if key in ("checkpoints", "checkpoint_initiates"):
                if self._number(line, value, key):
                    self._fail(line, f"{key}: found {value}, and checkpoints are not replayed")
            elif key in _KEYS:
                about[key] = self._number(line, value, key)
            else:
                self._fail(line, f"found {key!r}, allowed {', '.join(_KEYS)} and checkpoints")
            place += 2
        return about

    def _degrees(self, about: dict[str, int]) -> Degrees:
        line = self._rows[0][0]
        if "all_gpus" not in about:
            self._fail(line, "all_gpus: is not there: write `all_gpus: N`, the ranks, behind it")
        tensor = about.get("model_parallel_NPU_group", 1)
        pipeline, expert, ranks = about.get("pp", 1), about.get("ep", 1), about["all_gpus"]
        if min(tensor, pipeline, expert, ranks) < 1 or ranks % (tensor * pipeline * expert):
            self._fail(
                line,
                f"all_gpus: found {ranks}, expected a multiple of model_parallel_NPU_group x pp x "
                f"ep = {tensor * pipeline * expert}",
            )
        return Degrees(ranks, tensor, pipeline, expert)

    def _layer(self, line: int, words: Sequence[str]) -> tuple[str, tuple[_Part, ...]]:
        if len(words) != _WORDS:
            self._fail(line, f"found {len(words)} words, expected {_WORDS}")
        parts = []
        for index, name in enumerate(PASSES):
            time, collective, size = words[2 + 3 * index : 5 + 3 * index]
            what, _, group = collective.partition("_")
            if what not in (*_KINDS, "NONE") or group not in ("", "EP", "DP_EP"):
                self._fail(
                    line,
                    f"the collective of {name}: found {collective!r}, allowed NONE, "
                    f"{', '.join(_KINDS)}, with _EP or _DP_EP",
                )
            duration_ns = self._number(line, time, f"the time of {name}")
            size_bytes = self._number(line, size, f"the size of {name}")
            if name == "forward" and 0 < size_bytes < LEAST_FORWARD_BYTES:
                size_bytes = LEAST_FORWARD_BYTES
            if size_bytes > MAX_SIZE_BYTES:
                self._fail(line, f"the size of {name}: found {size}, allowed {MAX_SIZE_BYTES}")
            kind = _KINDS.get(what) if size_bytes else None
            parts.append(_Part(duration_ns, kind, size_bytes, group or None))
        self._number(line, words[11], "the time of the update")
        return words[0], tuple(parts)

    def _rank(
        self,
        layers: Sequence[tuple[str, tuple[_Part, ...]]],
        degrees: Degrees,
        rank: int,
        micro: bool,
    ) -> Iterator[GraphNode]:
        after: tuple[int, ...] = ()
        id = 0
        order = [(0, layer) for layer in layers]
        for layer in layers if micro else reversed(layers):
            order += [(1, layer), (2, layer)]
        if micro:
            order = [(index, layer) for layer in layers for index in range(3)]
        for index, (name, parts) in order:
            part = parts[index]
            if part.duration_ns:
                yield ComputeNode(
                    id=id,
                    name=f"{PASSES[index]}.{name}",
                    after=after,
                    duration_ns=part.duration_ns,
                )
                after, id = (id,), id + 1
            if part.kind is None:
                continue
            own = "DP" if index == 2 else "TP"
            ranks = degrees.members(part.group or own, rank)
            if micro:
                ranks = tuple(range(degrees.ranks))
            if len(ranks) == 1:
                continue
            yield CollectiveNode(
                id=id,
                name=f"{PASSES[index]}.{name}.{part.kind}",
                after=after,
                call=CollectiveCall(part.kind, part.size_bytes, ranks),
            )
            if index < 2 or micro:
                after = (id,)
            id += 1
        if not id:
            yield ComputeNode(id=0, name="nothing")

    def _number(self, line: int, word: str, what: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 16 and int(word) <= _LARGEST):
            self._fail(line, f"{what}: found {word!r}, expected a whole number")
        return int(word)

    def _fail(self, line: int, what: str) -> NoReturn:
        raise ChakraError(self._path, None, f"line {line}: {what}")
