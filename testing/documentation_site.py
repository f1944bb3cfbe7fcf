"""The documentation as a site of files that loads nothing from elsewhere.

    .venv/bin/python -m testing.documentation_site

writes build/site. Pages keep their places of the tree, so that links between them hold; mkdocs.yml
says how they look, and docs/README.md in which order they are listed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
_PAGES = ("*.md", "*.svg", "*.png", "benchmarks/results/*")
_LEFT_OUT = ("tests/", ".github/", "labs/")  # labs have solutions, and pages of their own
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")  # zensical has them in a pipe, too
_ROW = re.compile(r"\[([^\]]+)\]\(([\w/.-]+\.md)\)")


def build_site(tree: Path, out: Path) -> None:
    """Write the site of the tree's pages into the directory `out` / site.

    Raises RuntimeError with what was said when a page links to nothing.
    """
    pages = out / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for name in _files(tree):
        place = pages / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / name, place)
    settings = yaml.safe_load((tree / "mkdocs.yml").read_text())
    settings |= {"docs_dir": "pages", "site_dir": "site", "nav": navigation(tree)}
    (out / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False))
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--clean", "-f", "mkdocs.yml"]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=out, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = _COLOURS.sub("", (done.stdout + done.stderr).partition("Traceback")[0])
        raise RuntimeError(f"the site was not built:\n{said}")


def navigation(tree: Path) -> list[dict[str, Any]]:
    """The list of pages beside each page: docs/README.md's tables, a section for each heading."""
    sections: list[dict[str, Any]] = [{"Groundwire": "README.md"}]
    for part in (tree / "docs" / "README.md").read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        rows = [
            row for line in text.splitlines() if line.startswith("|") for row in _ROW.findall(line)
        ]
        if rows:
            entries = [{name.removesuffix(".md"): f"docs/{path}"} for name, path in rows]
            sections.append({title: entries})
    results = {"Measurements": "benchmarks/results/README.md"}
    return [*sections, results, {"Changes": "CHANGELOG.md"}, {"Contributing": "CONTRIBUTING.md"}]


def _files(tree: Path) -> set[str]:
    """The pages that git has, and the files that they link to."""
    tracked = set(_tracked(tree))
    pages = {name for name in _tracked(tree, *_PAGES) if not name.startswith(_LEFT_OUT)}
    linked = set()
    for page in (name for name in pages if name.endswith(".md")):
        for target in _LINK.findall((tree / page).read_text()):
            linked.add(os.path.normpath(Path(page).parent / target))
    return pages | (linked & tracked)


def _tracked(tree: Path, *patterns: str) -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=tree, capture_output=True, text=True, check=True
    )
    return (name for name in listed.stdout.split("\0") if name)


if __name__ == "__main__":
    build_site(ROOT, ROOT / "build")
    print(ROOT / "build" / "site" / "index.html")
