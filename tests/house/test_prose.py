"""Docstrings, comments and pages name their subject: no sentence begins with "What" or "Of"."""

from __future__ import annotations

import ast
import inspect
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# "Where" may begin a condition, which a comma ends: "Where there is none, it is made."
_NO_SUBJECT = re.compile(r"(?:What|Who|Whose|Of)\b|Where\b(?!.*,)")
_ENDS = re.compile(r"(?<=[.!?])\s+|:\s+(?=[A-Z])|\n\s*\n")
_C_COMMENT = re.compile(r"/\*(.*?)\*/|((?://[^\n]*\n[ \t]*)+)", re.DOTALL)
_C = (".c", ".h", ".cpp", ".hpp", ".cc", ".js", ".css")
Passage = tuple[int, str]


def _without_subject(text: str) -> list[str]:
    """Sentences of a passage that begin with such a word. Questions do not count."""
    sentences = (" ".join(sentence.split()) for sentence in _ENDS.split(text.strip()))
    return [s for s in sentences if _NO_SUBJECT.match(s) and "?" not in s]


def _docstrings(source: str) -> Iterator[Passage]:
    """Those of modules, classes and functions, and those behind an attribute or a constant."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, inspect.cleandoc(text)


def _python_comments(source: str) -> Iterator[Passage]:
    """Comments; lines of their own that follow each other are one passage."""
    begin, last, words = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, text = token.start[0], token.string.lstrip("#").strip()
        if line == last + 1 and not token.line[: token.start[1]].strip():
            words += " " + text
        else:
            yield begin, words
            begin, words = line, text
        last = line
    yield begin, words


def _c_comments(source: str) -> Iterator[Passage]:
    for found in _C_COMMENT.finditer(source):
        text = re.sub(r"\n[ \t]*(?:\*|//)?", "\n", found[1] or found[2].lstrip("/ "))
        yield source.count("\n", 0, found.start()) + 1, text.lstrip("* ")


def _added(patch: str) -> str:
    """The lines that a patch adds, at their places in it."""
    lines = patch.split("\n")
    return "\n".join(line[1:] if re.match(r"\+(?!\+\+ )", line) else "" for line in lines)


def _prose_of_a_page(page: str) -> Iterator[Passage]:
    """Paragraphs of a Markdown page, without blocks of code, tables and headings."""
    page = re.sub(
        r"^```.*?^```", lambda found: "\n" * found[0].count("\n"), page, flags=re.M | re.S
    )
    line = 1
    for paragraph in page.split("\n\n"):
        for item in re.split(r"^\s*(?:[-*]|\d+\.) ", paragraph, flags=re.MULTILINE):
            if not re.match(r"\s*[|#<]", item):
                yield line, item
        line += paragraph.count("\n") + 2


def _passages(path: str) -> Iterator[Passage]:
    source = (ROOT / path).read_text(errors="replace")
    if path.endswith(".py"):
        yield from _docstrings(source)
        yield from _python_comments(source)
    elif path.endswith(".patch"):
        yield from _c_comments(_added(source))
    elif path.endswith(_C):
        yield from _c_comments(source)
    elif path.endswith(".md"):
        yield from _prose_of_a_page(source)


@pytest.mark.parametrize(
    ("passages", "found"),
    [
        (_docstrings('"""What is sent.\n\nIt is in order. Of two, one."""'), 2),
        (_docstrings('def f():\n    """Where there is none, it is made."""'), 0),
        (_docstrings('def f():\n    """Where a packet is."""'), 1),
        (_docstrings('X = 1\n"""What it is."""'), 1),
        (_python_comments("x = 1  # Who asks\n# A rank\n# Of many\n# is it. Whose is it?\n"), 1),
        (_c_comments("int x; /* What it is */\n// All is well. Of\n// them none.\nint Of;"), 2),
        (_c_comments(_added("--- a\n+++ b\n-/* Who reads */\n+/*\n+ * Who writes\n+ */")), 1),
        (_prose_of_a_page("# What is\n\nWhat is it?\n\n```\nWhat\n```\n\n- It.\n- Of two."), 1),
    ],
)  # fmt: skip
def test_sentences_without_a_subject_are_found(passages: Iterator[Passage], found: int) -> None:
    assert sum(len(_without_subject(text)) for _, text in passages) == found


def test_each_sentence_of_the_tree_has_its_subject() -> None:
    """Notes of results keep the words of their day. Programs of others stand in no file of ours."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    paths = [p for p in listed.stdout.split("\n") if p and not p.startswith("benchmarks/results/")]
    wrong = [
        f"{path}:{line}: {sentence[:90]}"
        for path in paths
        if (ROOT / path).exists()
        for line, text in _passages(path)
        for sentence in _without_subject(text)
    ]
    assert len(paths) > 1000
    assert not wrong, "\n".join(wrong)
