"""The operations that a rank has called last and how far each is, in a file that outlives the rank.

Ranks that call different collectives fail by what Gloo happens to meet first, or wait for ever. A
reader of all ranks' files can name the calls, and the ranks that wait for each other. The file is
memory that is shared with whoever reads it: a rank makes no system call to write there.
`observer.py` beside this file loads it, and ranks of Groundwire's own do; it imports nothing but
the standard library.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Sequence

SLOT_BYTES = 160
SLOTS = 64
GROUPS = ".groups"
"""The end of the name of the file with a rank's groups: a line has a name, and ranks."""
ANY = -1
"""A size that differs between ranks by right or is not known, and a sender that may be anybody."""


class Post:
    """One operation: where its line is, how the line begins and ends, and when it was posted."""

    __slots__ = ("counted", "head", "number", "over", "posted_ns", "since_ns", "tail")

    def __init__(self, number: int, head: str, tail: str, counted: bool) -> None:
        self.number, self.head, self.tail, self.counted = number, head, tail, counted
        self.over, self.since_ns, self.posted_ns = False, 0, 0


class Posts:
    """A ring of lines: number in the group, group, kind, size in bytes, root, state, time, tag, and
    the time of the post. A line behind them counts: `posted`, and how many were, and are over, but
    for those that are said not to count.

    The kind of a message is `send` or `recv`, its root the other end, a rank of the run, and the
    number counts those of one group, direction, peer and tag. The state is `posted`, `queued` on a
    stream of a virtual GPU, `waits` when a thread of the rank waits for it, `over` or `failed`; the
    time is that of the last change, of what failed the one before, on the monotonic clock (ns). A
    group's name may go on with `/` and the name of an operation, and one of two ranks ends with
    `:A-B`. `left` is what a thread waited for until an error came, though it was not over.
    """

    def __init__(self, path: str, slots: int = SLOTS) -> None:
        self._path = path
        self._slots = slots
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(file, (slots + 1) * SLOT_BYTES)
            self._lines = mmap.mmap(file, (slots + 1) * SLOT_BYTES)
        finally:
            os.close(file)
        self._lock = threading.Lock()
        self._counts: dict[tuple[object, ...], int] = {}
        self._groups: set[str] = set()
        self._written = self._posted = self._over = 0

    def group(self, label: str, ranks: Sequence[int]) -> None:
        """The ranks of a group that operations are posted to; only the first time counts."""
        with self._lock:
            if label in self._groups:
                return
            self._groups.add(label)
            with open(self._path + GROUPS, "a") as file:
                file.write(f"{label} {','.join(map(str, ranks))}\n")

    def collective(
        self, label: str, kind: str, size_bytes: int, root: int, counted: bool = True
    ) -> Post:
        """A collective is about to be posted to a group."""
        return self._add((label,), label, kind, size_bytes, root, 0, counted)

    def message(self, label: str, kind: str, size_bytes: int, peer: int, tag: int) -> Post:
        """A message is about to be sent or received."""
        return self._add((label, kind, peer, tag), label, kind, size_bytes, peer, tag)

    def _add(
        self,
        key: tuple[object, ...],
        label: str,
        kind: str,
        size_bytes: int,
        root: int,
        tag: int,
        counted: bool = True,
    ) -> Post:
        with self._lock:
            number = self._counts.get(key, 0)
            self._counts[key] = number + 1
            head = f"{number} {label} {kind} {size_bytes} {root}"
            post = Post(self._written, head, str(tag), counted)
            self._written += 1
            self._posted += counted
            self._write(post, "posted")
        return post

    def mark(self, post: Post, state: str) -> None:
        """An operation is in this state now; what is over stays so."""
        with self._lock:
            if post.over:
                return
            post.over = state in ("over", "failed")
            self._over += state == "over" and post.counted
            if self._written - post.number <= self._slots:
                self._write(post, state)

    def _write(self, post: Post, state: str) -> None:
        if state not in ("failed", "left"):
            post.since_ns = time.monotonic_ns()
            post.posted_ns = post.posted_ns or post.since_ns
        line = f"{post.head} {state} {post.since_ns} {post.tail} {post.posted_ns}"
        self._put(post.number % self._slots, line)
        self._put(self._slots, f"posted {self._posted} {self._over}")

    def _put(self, slot: int, line: str) -> None:
        at, text = slot * SLOT_BYTES, line.encode()[: SLOT_BYTES - 1]
        self._lines[at : at + SLOT_BYTES] = text.ljust(SLOT_BYTES - 1) + b"\n"
