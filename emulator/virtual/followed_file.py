"""Following a growing file, line by line."""

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

_CHUNK_BYTES = 1 << 20


class FollowedFile:
    """A file that another process appends to. Stays readable after it has been unlinked."""

    def __init__(self, path: Path, on_line: Callable[[str], None], keep: int = 0) -> None:
        """Create `path`; `on_line` gets each complete line, the last `keep` are remembered."""
        path.touch()
        self._fd = os.open(path, os.O_RDONLY)
        self._on_line = on_line
        self._partial = b""
        self.tail: deque[str] = deque(maxlen=keep)

    def poll(self) -> None:
        """Deliver what has been added since the last call, and not what is added meanwhile: a guest
        can write faster than its lines are dealt with."""
        left_bytes = os.fstat(self._fd).st_size - os.lseek(self._fd, 0, os.SEEK_CUR)
        while data := os.read(self._fd, min(left_bytes, _CHUNK_BYTES)):
            left_bytes -= len(data)
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._deliver(line)

    def close(self) -> None:
        """Deliver the rest, a last line without its end included, and let go of the file."""
        self.poll()
        if self._partial:
            self._deliver(self._partial)
            self._partial = b""
        os.close(self._fd)

    def _deliver(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self.tail.append(text)
        self._on_line(text)
