"""Text that others have written, on a terminal: shown as it is, and obeyed by nobody."""

from __future__ import annotations

import unicodedata

from rich.markup import escape

_KEPT = "\n\t"
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode: controls, formats such as those that turn the direction of writing,
surrogates, and separators of lines."""


def visible(text: str) -> str:
    """`text` with every character that a terminal obeys, or that cannot be seen, as an escape such
    as \\x1b. Lines and tabs stay."""
    return "".join(
        each
        if each in _KEPT or unicodedata.category(each) not in _HIDDEN
        else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def one_line(text: str) -> str:
    """`visible`, with lines and tabs as escapes, too: a name in a table."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def unstyled(text: str) -> str:
    """`visible`, for a place where rich looks for its markup: brackets are shown, too."""
    return escape(visible(text))
