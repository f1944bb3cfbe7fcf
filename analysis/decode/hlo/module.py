"""The collectives of a compiled module of XLA, in the order in which every process runs them.

Read are `module_NNNN.NAME.cpu_after_optimizations.txt` and what lies beside it, as
`XLA_FLAGS=--xla_dump_to=FOLDER` writes them (jaxlib 0.10). Devices are those of
`compile_options.textproto`: a process has 2,048 numbers (xla/pjrt/cpu, kMaxCpuDevicesPerProcess).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from collectives.kinds import Kind

_COMPILED: Final = ".cpu_after_optimizations.txt"
_DEVICES_PER_PROCESS: Final = 2_048
_KINDS: Final = {
    "all-reduce": Kind.ALL_REDUCE,
    "all-gather": Kind.ALL_GATHER,
    "reduce-scatter": Kind.REDUCE_SCATTER,
    "all-to-all": Kind.ALL_TO_ALL,
    "collective-permute": Kind.EXCHANGE,
}
_BITS: Final = {"pred": 8, "token": 0}
_COMPUTATION: Final = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>[\w.\-]+) \(.*\{$")
_INSTRUCTION: Final = re.compile(
    r"^\s+(?:ROOT )?%(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) "
    r"(?P<opcode>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|while|call)"
    r"(?:-start)?\("
)
_AXES: Final = re.compile(
    r"replica_groups=mesh\[(.*?)\]"
    r"(?:, device_ids=\((?:\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d, ]+))\))? ?\{(.*?)\}"
)
"""The axes of a mesh, of which devices in what order, and along which of them groups are."""
_ARRAY: Final = re.compile(r"(?P<element>[a-z]\w*)\[(?P<dims>[\d,]*)\]")
_MOST_MODULES: Final = 10_000


@dataclass(frozen=True, slots=True)
class HloCollective:
    """A collective as every process calls it. `groups` has the ranks of each; those of a permute
    are pairs of source and destination. `op_name` is where the program asks for it, its named
    scopes included."""

    name: str
    kind: Kind
    size_bytes: int
    groups: tuple[tuple[int, ...], ...]
    op_name: str

    def group_of(self, rank: int) -> tuple[int, ...] | None:
        """The ranks that a rank is in it with; None where it exchanges nothing with others."""
        found = next((group for group in self.groups if rank in group), None)
        return None if found is None or len(found) < 2 else found

    def pairs_of(self, rank: int) -> frozenset[tuple[int, int]]:
        """The pairs of a permute that a rank is in."""
        return frozenset((a, b) for a, b in self.groups if rank in (a, b) and a != b)


@dataclass(frozen=True, slots=True)
class Repeat:
    """The body of a loop; `times` is None where the compiler does not know."""

    body: tuple[HloCollective | Repeat, ...]
    times: int | None


Sequenced = HloCollective | Repeat


@dataclass(frozen=True, slots=True)
class Mesh:
    """The axes of a mesh by name, in order, and the rank at each place."""

    axes: tuple[tuple[str, int], ...]
    ranks: tuple[int, ...]

    def groups(self, axes: Sequence[str]) -> dict[tuple[int, ...], str]:
        """The groups of ranks that differ in these axes only, each with its name: the axes, and
        where it lies in the others."""
        shape = [size for _, size in self.axes]
        table = np.array(self.ranks).reshape(shape)
        others = [n for n, (name, size) in enumerate(self.axes) if name not in axes and size > 1]
        found = {}
        for place in product(*(range(shape[number]) for number in others)):
            index: list[int | slice] = [slice(None)] * len(shape)
            for number, at in zip(others, place, strict=True):
                index[number] = at
            members = tuple(int(rank) for rank in np.ravel(table[tuple(index)]))
            where = ",".join(str(at) for at in place)
            found[members] = "+".join(axes) + (f"@{where}" if place else "")
        return found


@dataclass(frozen=True, slots=True)
class HloModule:
    """A compiled function: its collectives in order, and the meshes that it names."""

    name: str
    sequence: tuple[Sequenced, ...]
    meshes: tuple[Mesh, ...]


def read_modules(folder: Path) -> list[HloModule]:
    """The modules that a folder has dumps of, in the order in which they were compiled; without
    those that exchange nothing. Raises OSError."""
    paths = sorted(folder.glob(f"module_*{_COMPILED}"))[:_MOST_MODULES]
    found = [_read(path) for path in paths]
    return [module for module in found if module.sequence]


def _read(path: Path) -> HloModule:
    stem = path.name.removesuffix(_COMPILED)
    ranks = _ranks_of(path.with_name(stem) / "compile_options.textproto")
    before = path.with_name(f"{stem}.before_optimizations.txt")
    meshes = _meshes(before.read_text(errors="replace"), ranks) if before.exists() else ()
    computations, entry = _computations(path.read_text(errors="replace"))
    sequence = _Computations(computations, ranks).sequence(entry) if entry is not None else ()
    return HloModule(stem.split(".", 1)[-1], sequence, meshes)


def _ranks_of(path: Path) -> list[int]:
    """The rank of each number of a device in the module; nothing where the numbers are ranks."""
    if not path.exists():
        return []
    assigned = re.findall(
        r"computation_devices \{\s*replica_device_ids: (\d+)\s*\}", path.read_text(errors="replace")
    )
    return [int(number) // _DEVICES_PER_PROCESS for number in assigned]


def _meshes(text: str, ranks: Sequence[int]) -> tuple[Mesh, ...]:
    found = []
    for axes, ids in re.findall(r"#sdy\.mesh<\[(.*?)\](?:, device_ids=\[([\d, ]*)\])?>", text):
        named = tuple((name, int(size)) for name, size in re.findall(r'"(\w+)"=(\d+)', axes))
        count = int(np.prod([size for _, size in named], dtype=np.int64))
        order = [int(n) for n in ids.split(",")] if ids else list(range(count))
        if named and all(n < len(ranks) for n in order):
            found.append(Mesh(named, tuple(ranks[n] for n in order)))
    return tuple(found)


def _computations(text: str) -> tuple[dict[str, list[str]], str | None]:
    """The lines of each computation, and the name of that which is run."""
    found: dict[str, list[str]] = {}
    entry = None
    lines: list[str] = []
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head is not None:
            lines = found.setdefault(head["name"], [])
            entry = head["name"] if head["entry"] else entry
        else:
            lines.append(line)
    return found, entry


class _Computations:
    """The sequence of each computation, made once. One that calls itself, which HLO has not, has
    nothing where it does."""

    def __init__(self, lines: Mapping[str, Sequence[str]], ranks: Sequence[int]) -> None:
        self._lines = lines
        self._ranks = ranks
        self._found: dict[str, tuple[Sequenced, ...]] = {}

    def sequence(self, name: str) -> tuple[Sequenced, ...]:
        if name not in self._found:
            self._found[name] = ()
            self._found[name] = tuple(self._of(self._lines.get(name, ())))
        return self._found[name]

    def _of(self, lines: Sequence[str]) -> Iterator[Sequenced]:
        for line in lines:
            found = _INSTRUCTION.match(line)
            if found is None:
                continue
            opcode = found["opcode"]
            if opcode in ("while", "call"):
                inner = re.search(r"(?:body|to_apply)=%([\w.\-]+)", line)
                count = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
                body = self.sequence(inner[1]) if inner else ()
                once = opcode == "call"
                if body:
                    yield Repeat(body, 1 if once else int(count[1]) if count else None)
                continue
            parts = _parts(found["name"], lines) if found["type"].startswith("(") else {}
            kind = _KINDS[opcode]
            yield from _collectives(found["name"], kind, found["type"], line, self._ranks, parts)


def _parts(name: str, lines: Sequence[str]) -> dict[int, str]:
    """Array of an instruction that the compiler combined -> the operation that asks for it."""
    taken = re.compile(rf'get-tuple-element\(%{re.escape(name)}\), index=(\d+).*op_name="([^"]*)"')
    return {int(m[1]): m[2] for line in lines if (m := taken.search(line)) is not None}


def _collectives(
    name: str,
    kind: Kind,
    result: str,
    line: str,
    ranks: Sequence[int],
    parts: Mapping[int, str],
) -> Iterator[HloCollective]:
    """The calls of an instruction: one for each array. An all-to-all is one call, whose arrays go
    to different ranks."""
    sizes = [_size_bytes(one["element"], one["dims"]) for one in _ARRAY.finditer(result)]
    groups = _groups(line, kind, ranks)
    scope = re.search(r'op_name="([^"]*)"', line)
    op_name = scope[1] if scope else ""
    if kind is Kind.ALL_TO_ALL:
        sizes = [sum(sizes)]
    if kind is Kind.REDUCE_SCATTER:
        sizes = [size * max((len(group) for group in groups), default=1) for size in sizes]
    for number, size in enumerate(sizes):
        own = name if len(sizes) == 1 else f"{name}:{number}"
        yield HloCollective(own, kind, size, groups, parts.get(number, op_name))


def _size_bytes(element: str, dims: str) -> int:
    bits = _BITS.get(element)
    if bits is None:
        digits = re.search(r"\d+", element)
        bits = int(digits[0]) if digits else 0
    count = int(np.prod([int(n) for n in dims.split(",") if n], dtype=np.int64))
    return count * max(1, bits // 8) if bits else 0


def _groups(line: str, kind: Kind, ranks: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The groups, or pairs, of ranks; all of them where an instruction names none, and none where
    its groups make no sense."""
    try:
        numbers = _numbers(line, kind, len(ranks))
    except ValueError:  # dimensions that do not fit each other
        return ()
    if not ranks:
        return tuple(tuple(group) for group in numbers)
    if any(n >= len(ranks) for group in numbers for n in group):
        return ()
    return tuple(tuple(ranks[n] for n in group) for group in numbers)


def _numbers(line: str, kind: Kind, devices: int) -> list[list[int]]:
    """The groups, or pairs, of devices by their numbers in the module."""
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{(\{[\d,{}]*\})?\}", line)
    iota = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    axes = _AXES.search(line)
    numbers: list[list[int]]
    if iota is not None:
        shape, dims = ([int(n) for n in text.split(",")] for text in iota.group(1, 2))
        table = np.arange(np.prod(dims, dtype=np.int64)).reshape(dims)
        if iota[3]:
            table = table.transpose([int(n) for n in iota[3].split(",")])
        numbers = table.reshape(shape).tolist()
    elif axes is not None:
        named = re.findall(r"'(\w+)'=(\d+)", axes[1])
        along = re.findall(r"'(\w+)'", axes[5])
        order = [int(n) for n in re.findall(r"\d+", axes[4] or "")]
        if axes[2]:
            table = np.arange(np.prod([int(n) for _, n in named], dtype=np.int64))
            table = table.reshape([int(n) for n in axes[2].split(",")])
            turned = [int(n) for n in axes[3].split(",")] if axes[3] else range(table.ndim)
            order = table.transpose(turned).ravel().tolist()
        count = int(np.prod([int(n) for _, n in named], dtype=np.int64))
        table = np.array(order or range(count)).reshape([int(size) for _, size in named])
        chosen = [n for n, (name, _) in enumerate(named) if name in along]
        rest = [n for n in range(len(named)) if n not in chosen]
        many = int(np.prod([int(named[n][1]) for n in chosen], dtype=np.int64))
        numbers = table.transpose(rest + chosen).reshape(-1, many).tolist()
    elif listed is not None and listed[1]:
        numbers = [[int(n) for n in g.split(",")] for g in re.findall(r"\{([\d,]+)\}", listed[1])]
    else:
        numbers = [] if kind is Kind.EXCHANGE else [list(range(devices))]
    return numbers
