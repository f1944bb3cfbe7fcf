"""Errors of Chakra execution traces."""

from pathlib import Path


class ChakraError(ValueError):
    """A trace that cannot be used, with the file, the byte offset of the record, and what is wrong.

    `offset` is the position of the record's length prefix in the file, or None when the
    complaint is about the trace as a whole (a missing file, a cycle).
    """

    def __init__(self, path: Path | str, offset: int | None, what: str) -> None:
        self.place = None if offset is None else f"byte {offset}"
        super().__init__(f"{path}: {what}" if offset is None else f"{path}: {self.place}: {what}")
        self.path = Path(path)
        self.offset = offset
        self.what = what
