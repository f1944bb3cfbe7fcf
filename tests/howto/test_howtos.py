"""Every page of docs/howto works from its first block to its last, and takes out what it adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.howto.workplace import NOT_RUN, ROOT, Workplace, blocks_of

PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))


def test_there_are_pages_and_each_has_something_to_run() -> None:
    assert PAGES
    assert all(any(b.language != NOT_RUN for b in blocks_of(page)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_works_from_its_start_to_its_end(page: Path, tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    workplace.follow(page)
    assert workplace.left() == ""
