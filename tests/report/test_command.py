from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from analysis.runs.run import load_run
from groundwire.commands.app import app


def groundwire(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_one_run_gets_its_page_beside_it(run_directory: Path) -> None:
    done = groundwire(run_directory)
    assert done.exit_code == 0
    assert done.stdout.strip() == str(run_directory / "report.html")
    assert (run_directory / "report.html").read_text().startswith("<!doctype html>")


def test_an_invalid_run_is_reported_and_exits_3(
    run_directory: Path, slower_directory: Path, tmp_path: Path
) -> None:
    done = groundwire(run_directory, slower_directory, "--out", tmp_path / "deep" / "both.html")
    assert done.exit_code == 3
    assert "slower: the run is not valid" in done.stderr
    assert (tmp_path / "deep" / "both.html").exists()


def test_json_holds_every_table_of_every_run(run_directory: Path) -> None:
    done = groundwire(run_directory, "--json")
    content = json.loads(done.stdout)
    assert len(content["fat-tree"]["ports"]) == 96
    assert content["fat-tree"]["collectives"][0]["kind"] == "all_to_all"


def test_pictures_are_whole_documents_with_a_title_and_a_legend(
    run_directory: Path, slower_directory: Path, tmp_path: Path
) -> None:
    done = groundwire(run_directory, "--format", "svg")
    assert done.exit_code == 0
    files = [Path(line) for line in done.stdout.split()]
    assert run_directory / "pictures" / "timeline-iteration-0.svg" in files
    for file in files:
        text = file.read_text()
        root = ElementTree.fromstring(text)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        assert root.attrib["viewBox"] == f"0 0 {width:.0f} {height:.0f}"
        assert root.attrib["aria-label"]
        assert f"{load_run(run_directory).spec.name}: " in text
        assert ' data-tip="' not in text
        assert not re.search(r"(?:href|src)=|url\(|@import", text)
        for key in root.iter("{http://www.w3.org/2000/svg}text"):
            if key.get("class") == "key":
                assert float(key.attrib["y"]) < height
    both = groundwire(run_directory, slower_directory, "--format", "svg", "--out", tmp_path / "p")
    assert {path.name for path in (tmp_path / "p").iterdir()} >= {
        "timeline-iteration-0-fat-tree.svg",
        "timeline-iteration-0-slower.svg",
    }
    assert both.exit_code == 3


def test_csv_names_the_files_it_wrote(run_directory: Path, tmp_path: Path) -> None:
    done = groundwire(run_directory, "--format", "csv", "--out", tmp_path / "tables")
    written = done.stdout.splitlines()
    assert str(tmp_path / "tables" / "collectives.csv") in written
    assert all(Path(path).exists() for path in written)


def test_markdown_and_nccl_style_go_to_standard_output(run_directory: Path) -> None:
    assert groundwire(run_directory, "--format", "md").stdout.startswith("# Groundwire report")
    assert "out-of-place" in groundwire(run_directory, "--style", "nccl-tests").stdout


@pytest.mark.parametrize(
    ("damaged", "content", "message"),
    [
        ("links.jsonl", "{]\n", "links.jsonl: line 1: Invalid JSON"),
        ("links.jsonl", "", "links.jsonl: 96 of the fabric's 96 ports are not in it"),
        ("ranks/003.jsonl", "{]\n", "003.jsonl: line 1: Invalid JSON"),
        ("ranks/003.jsonl", None, "ranks: expected ranks 0 to 15, found [0, 1, 2, 4,"),
        ("result.json", "{]\n", "result.json: not JSON"),
        ("result.json", "{}\n", "result.json: expected an object with schema 2"),
        ("result.json", None, "result.json: No such file or directory"),
        ("environment.json", "", "environment.json: Invalid JSON"),
        ("spec.yaml", "{]\n", "spec.yaml"),
    ],
)
def test_a_damaged_run_is_bad_input(
    tmp_path: Path, damaged: str, content: str | None, message: str
) -> None:
    from tests.report.synthetic_run import make_run

    path = make_run(tmp_path / "run", iterations=1) / damaged
    path.unlink() if content is None else path.write_text(content)
    done = groundwire(tmp_path / "run")
    assert done.exit_code == 2
    assert message in done.stderr


def test_no_run_directory_is_bad_input(tmp_path: Path) -> None:
    done = groundwire(tmp_path / "nowhere")
    assert done.exit_code == 2 and "not a directory" in done.stderr
