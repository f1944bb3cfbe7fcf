"""A message with blanks, and the layout of a message that is read: what `formats.py` is made of."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

_ALIGNED = 4  # every attribute begins at a multiple of so many bytes


class Blank(NamedTuple):
    """A value of fixed size, at `offset` of the template, packed as `form` says (`struct`)."""

    offset: int
    form: str


class OpenBlank(NamedTuple):
    """Bytes of any length, in place of `sample_bytes` that stand at `offset`, and of `terminator`
    zero bytes after them. The 16-bit lengths at `exact` count the value itself, those at `padded`
    the value filled up to the next attribute."""

    offset: int
    sample_bytes: int
    terminator: int
    exact: tuple[int, ...]
    padded: tuple[int, ...]


class Template:
    """A message of one shape. `flags` is without NLM_F_REQUEST; `blanks` are in order of place."""

    def __init__(
        self, type: int, flags: int, payload: bytes, blanks: Sequence[Blank | OpenBlank] = ()
    ) -> None:
        self.type = type
        self.flags = flags
        self._payload = payload
        self._blanks = blanks
        self._open = [i for i, blank in enumerate(blanks) if isinstance(blank, OpenBlank)]
        self._forms: dict[tuple[int, ...], tuple[struct.Struct, list[Any]]] = {}

    def fill(self, *values: int | bytes) -> bytes:
        """The message without its netlink header. Raises struct.error for a value that does not fit
        its blank, ValueError for another number of values."""
        lengths = tuple([len(values[i]) for i in self._open])  # type: ignore[arg-type]
        form, row = self._forms.get(lengths) or self._form(lengths)
        row = row.copy()
        row[1::2] = values
        return form.pack(*row)

    def _form(self, lengths: tuple[int, ...]) -> tuple[struct.Struct, list[Any]]:
        """The message's constant and given parts, in turns, where the open blanks hold so many
        bytes."""
        payload = bytearray(self._payload)
        sizes = dict(zip(self._open, lengths, strict=True))
        for position, length in sizes.items():
            blank = self._blanks[position]
            assert isinstance(blank, OpenBlank)
            for at in blank.exact:
                _add(payload, at, length - blank.sample_bytes)
            for at in blank.padded:
                _add(payload, at, _filled(blank, length) - _filled(blank, blank.sample_bytes))
        codes, row, end = ["="], [], 0
        for position, blank in enumerate(self._blanks):
            codes.append(f"{blank.offset - end}s")
            row += [bytes(payload[end : blank.offset]), None]
            if isinstance(blank, OpenBlank):
                codes.append(f"{_filled(blank, sizes[position])}s")
                end = blank.offset + _filled(blank, blank.sample_bytes)
            else:
                codes.append(blank.form)
                end = blank.offset + struct.calcsize("=" + blank.form)
        codes.append(f"{len(payload) - end}s")
        row.append(bytes(payload[end:]))
        made = self._forms[lengths] = (struct.Struct("".join(codes)), row)
        return made


def _filled(blank: OpenBlank, length: int) -> int:
    used = length + blank.terminator
    return used + -used % _ALIGNED


def _add(payload: bytearray, at: int, more: int) -> None:
    payload[at : at + 2] = (int.from_bytes(payload[at : at + 2], "little") + more).to_bytes(
        2, "little"
    )


class Layout:
    """The fields of a struct, in order: pairs of a name and how `struct` writes it. `size` is in
    bytes."""

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.fields = fields
        self._struct = struct.Struct("=" + "".join(form for _, form in fields))
        self.size = self._struct.size
        self.pack: Callable[..., bytes] = self._struct.pack
        self.unpack: Callable[..., tuple[Any, ...]] = self._struct.unpack_from

    def reader(self, *names: str) -> Callable[..., tuple[Any, ...]]:
        """A reader of the fields `names` from (data, offset), in the struct's order. The data may
        end after the last of them, as an older kernel's does."""
        known = [name for name, _ in self.fields]
        wanted = [known.index(name) for name in names]
        if sorted(wanted) != wanted:
            raise ValueError(f"{names} are not in the struct's order: {known}")
        form = "="
        for name, code in self.fields[: wanted[-1] + 1]:
            form += code if name in names else f"{struct.calcsize('=' + code)}x"
        return struct.Struct(form).unpack_from

    def read(self, data: bytes) -> dict[str, Any]:
        """Name -> value of each field; a tuple where the field is an array. Raises struct.error for
        data that is too short."""
        values = iter(self.unpack(data))
        return {
            name: next(values) if len(form) == 1 else tuple(islice(values, int(form[:-1])))
            for name, form in self.fields
        }
