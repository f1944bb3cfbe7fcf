"""README and every page of docs/howto work from their first block to the last, and take out what
they add."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.howto.workplace import (
    NOT_RUN,
    ROOT,
    FreshClone,
    Workplace,
    blocks_of,
    changes_groundwire,
)
from tests.remote.ssh_host import SshHost, User, missing
from tests.remote.system import system_root
from tests.remote.wheelhouse import make_wheels

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs" / "howto").glob("*.md"))]
_WITH_LEAST_FIRST = sorted(PAGES, key=lambda page: "pip install" in page.read_text())
"""Pages that install something come last, so that others do without it."""
_SCRIPT = next(
    block.text
    for block in blocks_of(ROOT / "docs" / "howto" / "exec.md")
    if block.file == "train.py"
)
"""A program of the reader's own, which README's last step runs."""


def _follow(workplace: Workplace, page: Path) -> None:
    if page != README:
        workplace.follow(page)
        return
    workplace.write("train.py", _SCRIPT)
    workplace.follow(page)
    workplace.remove("train.py", "mine.yaml", "packet-time")


def test_there_are_pages_and_each_has_something_to_run() -> None:
    assert len(PAGES) > 1
    assert all(any(b.language != NOT_RUN for b in blocks_of(page)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_works_from_its_start_to_its_end(page: Path, tmp_path: Path) -> None:
    workplace = Workplace(tmp_path, own_code=changes_groundwire(page))
    _follow(workplace, page)
    assert workplace.left() == ""


@pytest.fixture(scope="module")
def fresh_clone(tmp_path_factory: pytest.TempPathFactory) -> FreshClone:
    return FreshClone(tmp_path_factory.mktemp("fresh"))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", _WITH_LEAST_FIRST, ids=lambda page: page.stem)
def test_a_page_works_after_make_demo_alone(page: Path, fresh_clone: FreshClone) -> None:
    """With what is installed then and no more; pages name the line that adds what they need."""
    _follow(fresh_clone, page)
    assert fresh_clone.left() == ""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_benchmarks_and_claims_need_nothing_more(fresh_clone: FreshClone) -> None:
    """The modules that `make bench`, `make study` and `make claims` start can be imported; their
    runs take hours."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    ]
    fresh_clone.run(f".venv/bin/python -c 'import {', '.join(modules)}'")
    fresh_clone.run(".venv/bin/python -m benchmarks.claims --list")
    fresh_clone.run(".venv/bin/groundwire validate studies/*.yaml")


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_runs_on_other_machines_need_nothing_more(fresh_clone: FreshClone, tmp_path: Path) -> None:
    """The commands of docs/remote.md, in the order of its table, for a clean Debian 12."""
    (tmp_path / "host").mkdir()
    user = User("worker", 1234, "free")
    host = SshHost(tmp_path / "host", user=user, bare=True, system=system_root("bookworm"))
    try:
        entry = {**host.entry(), "groundwire_wheels": str(make_wheels(tmp_path / "wheels"))}
        fresh_clone.write("hosts.yml", yaml.safe_dump({"all": {"hosts": {"first": entry}}}))
        page = (ROOT / "docs" / "remote.md").read_text()
        commands = re.findall(r"^\| `groundwire (remote .*?)` \|", page, re.M)
        assert len(commands) == 5
        for command in commands:
            named = command.replace("SPEC", "topologies/two-hosts.yaml --out came")
            fresh_clone.run(f".venv/bin/groundwire {named.replace('DIR', 'came')}")
        fresh_clone.run("ls came/first/result.json came/first/report.html")
        fresh_clone.remove("hosts.yml", "came")
    finally:
        host.die()
