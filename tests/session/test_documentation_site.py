"""The documentation as a site: each page is listed, links hold, nothing comes from elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testing.documentation_site import ROOT, build_site, navigation

_LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="https?://', re.I)


def test_each_page_is_listed_once() -> None:
    listed = [
        page
        for section in navigation(ROOT)
        for entries in section.values()
        if isinstance(entries, list)
        for entry in entries
        for page in entry.values()
    ]
    there = {
        f"docs/{path.relative_to(ROOT / 'docs')}"
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "README.md"
    }
    assert sorted(listed) == sorted(there)


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    build_site(ROOT, tmp_path)
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "spec.html", "exec.html"} <= {page.name for page in pages}
    assert (tmp_path / "site" / "search.json").stat().st_size > 100_000
    for page in pages:
        assert not _LOADED.search(page.read_text()), page


def test_a_link_to_nothing_stops_the_build(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "docs").mkdir(parents=True)
    (tree / "docs" / "README.md").write_text("# Pages\n\n## One\n\n| [a](a.md) | it |\n")
    (tree / "docs" / "a.md").write_text("# A\n\n[gone](gone.md)\n")
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/results/README.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("# Page\n")
    (tree / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text())
    subprocess.run(["git", "init", "-q", "."], cwd=tree, check=True)
    subprocess.run(["git", "add", "."], cwd=tree, check=True)
    with pytest.raises(RuntimeError, match=r"docs/a\.md:3"):
        build_site(tree, tmp_path / "out")
