"""The process groups of this rank, and whether all that they do is seen.

A group counts its operations. One that is posted past torch's dispatcher, as by a call of the
backend itself, shows as a gap in that count. `observer.py` beside this file loads it; it imports
nothing but the standard library and the program's own torch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

_MESH = "mesh_"
"""How torch begins the description of a mesh dimension's group (its distributed/device_mesh.py)."""


class Group:
    """A group by its name in the log, its ranks of the run, and its dimension of a mesh."""

    __slots__ = ("counted", "is_new", "iteration", "label", "mesh", "posting", "ranks", "torchs")

    def __init__(self, label: str, ranks: list[int], mesh: str | None, torchs: Any) -> None:
        self.label, self.ranks, self.mesh = label, ranks, mesh
        self.torchs = torchs
        """torch's own, as long as it is in use."""
        self.counted: int | None = None
        """How many operations it had counted when it was last seen to do one."""
        self.iteration = 0
        """That of the last operation."""
        self.posting = 0
        """Threads that are posting now: with several, nobody knows whose a count is."""
        self.is_new = True


class Groups:
    """Groups by torch's names."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._lock = threading.Lock()

    def of(self, boxed: Any) -> Group:
        """The group that an operation of `c10d` was given."""
        from torch._C._distributed_c10d import ProcessGroup
        from torch.distributed import distributed_c10d as c10d

        group = ProcessGroup.unbox(boxed)
        name = str(group.group_name)
        with self._lock:
            known = self._groups.get(name)
            if known is not None and known.torchs is not None:
                return known
        ranks = list(c10d.get_process_group_ranks(group))
        world = c10d.GroupMember.WORLD
        is_world = world is not None and name == world.group_name
        label = "default" if is_world else f"group.{name}"
        description = str(getattr(group, "group_desc", None) or "")
        mesh = description.removeprefix(_MESH) if description.startswith(_MESH) else None
        found = Group(label, ranks, None if is_world else mesh, group)
        if known is not None:
            found.is_new = known.ranks != ranks
        with self._lock:
            self._groups[name] = found
        return found

    def begin(self, group: Group, iteration: int) -> dict[str, Any] | None:
        """An operation of a group is about to be posted: what was posted unseen before it, and in
        which iterations that can have been."""
        with self._lock:
            group.posting += 1
            now, before = _count(group.torchs), group.counted
            since, group.iteration = group.iteration, iteration
            if group.posting > 1:
                group.counted = None
                return None
        if now is None or before is None or now <= before:
            return None
        return {"operations": now - before, "iterations": sorted({since, iteration})}

    def end(self, group: Group) -> None:
        """It has been posted."""
        with self._lock:
            group.posting -= 1
            group.counted = None if group.posting else _count(group.torchs)

    def finish(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The groups are about to end: what each has posted unseen since it was last seen."""
        with self._lock:
            groups = list(self._groups.values())
        for group in groups:
            now = None if group.torchs is None else _count(group.torchs)
            if now is not None and group.counted is not None and now > group.counted:
                unseen = now - group.counted
                yield group.label, {"operations": unseen, "iterations": [group.iteration]}
            group.torchs = group.counted = None


def _count(group: Any) -> int | None:
    try:
        return int(group._get_sequence_number_for_group())
    except (RuntimeError, AttributeError):
        return None
