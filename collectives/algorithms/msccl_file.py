"""An algorithm from an MSCCL file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from collectives.algorithms.base import Algorithm, DoesNotFit
from collectives.kinds import Kind
from collectives.msccl.read import read_file
from collectives.program import Program


@dataclass(frozen=True, kw_only=True)
class MscclFile(Algorithm):
    """The program of an MSCCL XML file, for its collective and its number of ranks. Raises
    MscclError when the file is wrong."""

    name = "msccl"
    parts = frozenset()

    file: str

    def __post_init__(self) -> None:
        if not Path(self.file).is_file():
            raise DoesNotFit("file", self.file, "an MSCCL XML file")

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset({self._program.kind})

    @property
    def equal_pieces(self) -> int:
        return self._program.pieces

    @property
    def _program(self) -> Program:
        return _read(Path(self.file), Path(self.file).stat().st_mtime_ns)

    def check(self, ranks: int) -> None:
        if ranks != self._program.ranks:
            raise DoesNotFit("ranks", str(ranks), f"{self._program.ranks}, as in {self.file}")

    def program(self, kind: Kind, ranks: int, root: int = 0) -> Program:
        program = self._program
        if kind not in self.kinds:
            raise DoesNotFit("", f"{self.file} for {kind}", str(program.kind))
        self.check(ranks)
        if root != program.root:
            raise DoesNotFit("root", str(root), f"{program.root}, as in {self.file}")
        return program


@lru_cache(maxsize=16)
def _read(path: Path, changed_ns: int) -> Program:
    return read_file(path)
