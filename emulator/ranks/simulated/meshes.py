"""Which connections a process group has, of those that each two ranks have."""

from __future__ import annotations

from collections.abc import Sequence


class MeshesOfGroups:
    """Connections of two ranks are numbered: a mesh is those of one number. Groups with two ranks
    in common have meshes of their own, in the order in which they first post. Where there are more
    of these groups than meshes, they take turns."""

    def __init__(self, ranks: int, meshes: int) -> None:
        self._ranks, self._meshes = ranks, meshes
        self._members: list[list[frozenset[int]]] = [[] for _ in range(meshes)]
        self._ends: dict[str, tuple[int, ...]] = {}

    def ends(self, group: str, ranks: Sequence[int]) -> tuple[int, ...]:
        """The ends of these ranks' connections, as the engine numbers them."""
        if group not in self._ends:
            members = frozenset(ranks)
            free = (
                mesh
                for mesh, others in enumerate(self._members)
                if all(len(members & other) < 2 for other in others)
            )
            mesh = next(free, len(self._ends) % self._meshes)
            self._members[mesh].append(members)
            self._ends[group] = tuple(mesh * self._ranks + rank for rank in ranks)
        return self._ends[group]
