from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.chromium import Page, find_chromium
from tests.report.synthetic_run import make_run


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "fat-tree", queues=True)


@pytest.fixture(scope="session")
def slower_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(
        tmp_path_factory.mktemp("runs") / "slower", slower=2.0, invalid=("a <b>hog</b> ran",)
    )


@pytest.fixture
def page() -> Iterator[Page]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("chromium is not installed")
    with Page(executable) as opened:
        yield opened
