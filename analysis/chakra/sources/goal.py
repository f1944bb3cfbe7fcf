"""LogGOPSim's GOAL texts as graphs: calculations, sends and receives with their dependencies.

The format is that of txt2bin (spcl/LogGOPSim, src/LogGOPSim/txt2bin.re; Hoefler, Siebert and
Lumsdaine, "Group Operation Assembly Language", ICPP 2009), which ATLAHS writes as well:

    num_ranks 2
    rank 0 {
    a: calc 1000 cpu 0
    b: send 4096b to 1 tag 7
    b requires a
    }

A calculation is in nanoseconds. `requires` has an operation begin when another is over, `irequires`
when it has begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import ComputeNode, Graph, GraphNode, ReceiveNode, SendNode
from analysis.chakra.limits import MOST_RANKS

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|//[^\n]*)|(?P<comment>/\*.*?\*/)|(?P<line>\n)"
    r"|(?P<number>-?[0-9]+)(?P<bytes>b(?![a-zA-Z0-9_]))?"
    r"|(?P<word>[a-zA-Z][a-zA-Z0-9_]*)|(?P<mark>[{}:])",
    re.DOTALL,
)
_OPERATIONS = ("send", "recv", "calc")
_OPTIONS = ("tag", "cpu", "nic")


@dataclass(slots=True)
class GoalOperation:
    """One operation of a rank. `after` and `with_` are the places, in the rank's list, of what must
    be over, or begun; `line` is where it stands in a text."""

    line: int
    name: str
    kind: str
    size: int
    peer: int
    options: dict[str, int]
    after: list[int] = field(default_factory=list)
    with_: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int
    is_number: bool = False
    in_bytes: bool = False


def read_goal(path: Path) -> tuple[tuple[Graph, ...], tuple[tuple[int, str], ...]]:
    """Every rank's graph, and notes on what is read otherwise, each with its rank. Raises
    ChakraError naming the file and the line."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ChakraError(path, error.start, "is no text (UTF-8)") from None
    return _Reader(path, text).read()


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._tokens = _tokens(text, self._fail)
        self._now = next(self._tokens)
        self._ranks = 0

    def read(self) -> tuple[tuple[Graph, ...], tuple[tuple[int, str], ...]]:
        self._expect("num_ranks")
        self._ranks = self._number(1, MOST_RANKS)
        graphs: dict[int, Graph] = {}
        notes: list[tuple[int, str]] = []
        while self._now.text:
            line = self._now.line
            self._expect("rank")
            rank = self._number(0, self._ranks - 1)
            if rank in graphs:
                self._fail(line, f"rank {rank} is there twice")
            self._expect("{")
            operations = self._block()
            graphs[rank] = goal_graph(operations, self._fail)
            notes += [(rank, note) for note in goal_notes(operations)]
        return tuple(graphs.get(rank, ()) for rank in range(self._ranks)), tuple(notes)

    def _block(self) -> list[GoalOperation]:
        operations: list[GoalOperation] = []
        labels: dict[str, int] = {}
        waits: list[tuple[_Token, str, _Token]] = []
        while self._now.text != "}":
            token = self._take()
            if token.text in _OPERATIONS:
                operations.append(self._operation(token, token.text, f"op{len(operations)}"))
                continue
            if not token.text or token.is_number or token.text in ("{", ":"):
                self._fail(
                    token.line, f"found {_shown(token)}, allowed an operation, a label or }}"
                )
            follows = self._take()
            if follows.text == ":":
                if token.text in labels:
                    self._fail(token.line, f"label {token.text} is there twice")
                labels[token.text] = len(operations)
                kind = self._take()
                if kind.text not in _OPERATIONS:
                    self._fail(kind.line, f"found {_shown(kind)}, allowed {', '.join(_OPERATIONS)}")
                operations.append(self._operation(kind, kind.text, token.text))
            elif follows.text in ("requires", "irequires"):
                waits.append((token, follows.text, self._take()))
            else:
                self._fail(
                    follows.line, f"found {_shown(follows)}, allowed :, requires or irequires"
                )
        self._take()
        for label, how, other in waits:
            for each in (label, other):
                if each.text not in labels:
                    self._fail(each.line, f"nothing has the label {each.text or 'that is missing'}")
            operation = operations[labels[label.text]]
            known = operation.after if how == "requires" else operation.with_
            known.append(labels[other.text])
        return operations

    def _operation(self, token: _Token, kind: str, name: str) -> GoalOperation:
        size, peer = self._number(0, 1 << 62, in_bytes=kind != "calc"), -1
        if kind != "calc":
            self._expect("to" if kind == "send" else "from")
            if self._now.text == "-1":
                self._fail(
                    token.line, f"{name}: receives from any rank (-1), which is not replayed"
                )
            peer = self._number(0, self._ranks - 1)
        options: dict[str, int] = {}
        while self._now.text in _OPTIONS:
            option = self._take().text
            if option == "tag" and self._now.text == "-1":
                self._fail(token.line, f"{name}: receives any tag (-1): not replayed")
            if option in options:
                self._fail(token.line, f"{name}: {option} is there twice")
            options[option] = self._number(0, (1 << 32) - 1)
        return GoalOperation(token.line, name, kind, size, peer, options)

    def _take(self) -> _Token:
        token, self._now = self._now, next(self._tokens, self._now)
        return token

    def _expect(self, word: str) -> None:
        token = self._take()
        if token.text != word:
            self._fail(token.line, f"found {_shown(token)}, allowed {word}")

    def _number(self, least: int, most: int, *, in_bytes: bool = False) -> int:
        token = self._take()
        if not token.is_number or (token.in_bytes and not in_bytes):
            self._fail(token.line, f"found {_shown(token)}, allowed a whole number")
        # No number within reach has more digits; Python refuses to read some of those that have.
        value = int(token.text) if len(token.text) < 25 else most + 1
        if not least <= value <= most:
            self._fail(token.line, f"found {_shown(token)}, allowed {least} to {most}")
        return value

    def _fail(self, line: int, what: str) -> NoReturn:
        raise ChakraError(self._path, None, f"line {line}: {what}")


def goal_graph(operations: list[GoalOperation], fail: Callable[[int, str], NoReturn]) -> Graph:
    """A rank's graph; `fail` refuses an operation by its line."""
    begun = _begun_after(operations, fail)
    host = _host_of(operations)
    nodes: list[GraphNode] = []
    for id, each in enumerate(operations):
        after = tuple(sorted(begun[id]))
        size, tag = max(each.size, 1), each.options.get("tag", 0)
        if each.kind == "calc":
            on_host = each.options.get("cpu", 0) in host
            nodes.append(
                ComputeNode(
                    id=id, name=each.name, after=after, duration_ns=each.size, on_host=on_host
                )
            )
        else:
            made = SendNode if each.kind == "send" else ReceiveNode
            nodes.append(
                made(id=id, name=each.name, after=after, peer=each.peer, size_bytes=size, tag=tag)
            )
    return tuple(nodes)


def _tokens(text: str, fail: Callable[[int, str], NoReturn]) -> Iterator[_Token]:
    """The tokens of a text, and at last one without text, again and again."""
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            fail(line, f"found {text[place]!r}, allowed GOAL's words, numbers and marks")
        place = match.end()
        if match["number"] is not None:
            yield _Token(match["number"], line, True, match["bytes"] is not None)
        elif match["word"] is not None or match["mark"] is not None:
            yield _Token(match[0], line)
        line += match[0].count("\n")
    while True:
        yield _Token("", line)


def _shown(token: _Token) -> str:
    if not token.text:
        return "the end of the file"
    return repr(token.text[:40])


def _begun_after(
    operations: list[GoalOperation], fail: Callable[[int, str], NoReturn]
) -> list[set[int]]:
    """By operation, those that are over when it begins: its own, and those of what begins before
    it. An operation that has nothing to wait for begins at once, and so has begun."""
    found: list[set[int] | None] = [None] * len(operations)
    for start in range(len(operations)):
        stack = [start]
        waiting: set[int] = set()
        while stack:
            id = stack[-1]
            if found[id] is not None:
                stack.pop()
                continue
            others = operations[id].with_
            left = [other for other in others if found[other] is None]
            if not left:
                own = set(operations[id].after)
                found[id] = own.union(*(found[other] or () for other in others))
                stack.pop()
                continue
            if id in waiting:
                fail(operations[id].line, f"{operations[id].name}: irequires leads in a circle")
            waiting.add(id)
            stack += left
    return [each or set() for each in found]


def _host_of(operations: list[GoalOperation]) -> set[int]:
    """The CPUs whose calculations run beside those of the first one: all others."""
    cpus = {each.options.get("cpu", 0) for each in operations if each.kind == "calc"}
    return cpus - {min(cpus, default=0)}


def goal_notes(operations: list[GoalOperation]) -> Iterator[str]:
    """Notes on parts that are read otherwise than they stand there."""
    empty = sum(each.kind != "calc" and not each.size for each in operations)
    if empty:
        yield f"{empty} messages have no bytes, and are sent with 1"
    many = len(_host_of(operations)) + 1
    if many > 2:
        yield (
            f"its calculations are on {many} CPUs; here those of the first run beside those of all "
            "others, which run one at a time"
        )
    behind = sum(operations[place].kind == "calc" for each in operations for place in each.with_)
    if behind:
        yield (
            f"{behind} operations begin with a calculation (irequires): here they begin when it "
            "may, though it may have to wait for its CPU"
        )
