"""The tree keeps its rooms: imports go down only, and each room says what it holds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    *("groundwire", "emulator", "analysis", "simulation"),
    *("workloads", "collectives", "topologies"),
)


def _lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--cache-dir", directory / "read"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, with the contracts."""
    directory = tmp_path_factory.mktemp("house")
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, directory / room, ignore=lambda _, names: [n for n in names if "." in n
            and not n.endswith(".py")],
        )  # fmt: skip
    shutil.copy(ROOT / "pyproject.toml", directory)
    return directory


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("topologies/units.py", "import collectives.kinds", "Imports go down only"),
        ("analysis/metrics/link.py", "import emulator.progress", "Imports go down only"),
        ("analysis/runs/run.py", "import analysis.predict.interface", "Analysis has floors"),
        ("analysis/predict/interface.py", "import analysis.results.verdict", "Analysis has floors"),
        ("emulator/progress.py", "import analysis.runs.run", "Imports go down only"),
        (
            "emulator/ports/sampling.py",
            "import emulator.network.network",
            "The emulator has floors",
        ),
        ("emulator/virtual/boot.py", "import emulator.ranks.server", "The emulator has floors"),
        ("groundwire/pipeline.py", "import groundwire.labs.lab", "The core names no extensions"),
        (
            "groundwire/pipeline.py",
            "import workloads.models.partition.split",
            "The core names no reproductions",
        ),
        ("collectives/kinds.py", "import torch", "No torch below what runs"),
        ("analysis/runs/run.py", "import workloads.execution.clock", "Analysis knows of workloads"),
        ("analysis/runs/run.py", "import pyroute2", "No code that needs root outside of emulator"),
    ],
)
def test_a_broken_contract_is_found(copied: Path, module: str, line: str, contract: str) -> None:
    path = copied / module
    whole = path.read_text()
    path.write_text(f"{whole}\n{line}\n")
    try:
        done = _lint_imports(copied)
    finally:
        path.write_text(whole)
    assert done.returncode == 1
    broken = [said for said in done.stdout.splitlines() if said.endswith("BROKEN")]
    assert any(said.startswith(contract) for said in broken), done.stdout


def test_the_contracts_hold(copied: Path) -> None:
    done = _lint_imports(copied)
    assert done.returncode == 0, done.stdout


def circles(imports: nx.DiGraph[str]) -> list[list[str]]:
    """Modules that import each other, also by others, also within functions."""
    found = nx.strongly_connected_components(imports)
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def test_no_module_imports_itself_by_others() -> None:
    graph = grimp.build_graph(*ROOMS, cache_dir=None, exclude_type_checking_imports=True)
    imports: nx.DiGraph[str] = nx.DiGraph(
        (module, other)
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    )
    assert len(imports) > 800
    assert circles(imports) == []
    imports.add_edge("topologies.units", "groundwire.pipeline")
    assert circles(imports)


def test_every_room_says_what_it_holds() -> None:
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            assert init.read_text().startswith('"""'), init


def test_the_names_to_know_of_a_room_are_there() -> None:
    """A room's page names what a stranger looks for; a name that is gone leads nowhere."""
    known = 0
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            page = " ".join(init.read_text().split('"""')[1].split())
            _, told, after = page.partition("names to know")
            names = re.findall(r"`(\w+)`", after)
            assert not told or len(names) >= 3, init
            source = "\n".join(path.read_text() for path in init.parent.rglob("*.py"))
            for name in names:
                assert re.search(rf"(class|def) {name}\b|^{name}\b.* = ", source, re.MULTILINE), (
                    init,
                    name,
                )
            known += len(names)
    assert known > 40


def test_rooms_that_the_docs_list_name_what_to_know() -> None:
    """Each package of the first column of docs/rooms.md; those behind a first one are beside it."""
    page = (ROOT / "docs" / "rooms.md").read_text().partition("## Packages")[0]
    listed = [
        folder if folder.partition("/")[0] in ROOMS else str(Path(paths[0]).parent / folder)
        for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        for paths in [re.findall(r"`([\w/]+)/`", row)]
        for folder in paths
    ]
    rooms = [ROOT / folder / "__init__.py" for folder in listed]
    rooms = [init for init in rooms if init.is_file() and init.relative_to(ROOT).parts[0] in ROOMS]
    assert len(rooms) > 30
    for init in rooms:
        page = " ".join(init.read_text().split('"""')[1].split())
        assert "hree names to know" in page, init


def test_somebody_elses_package_in_place_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "__init__.py").write_text("")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import groundwire"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"needs its own package analysis, {ROOT / 'analysis'}" in done.stderr
    assert str(tmp_path) in done.stderr


def test_nothing_strays_at_the_top() -> None:
    """Specs have rooms (topologies, studies, labs): one that is committed at the top is somebody's
    trial."""
    asked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip("this is no clone")
    top = [name for name in asked.stdout.splitlines() if "/" not in name and name[0] != "."]
    strays = [name for name in top if name.endswith((".yaml", ".py", ".txt", ".log"))]
    assert strays == ["constraints.txt"]
