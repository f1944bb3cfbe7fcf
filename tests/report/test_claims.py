"""The page of claims, and the commands that it names."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import pytest

from benchmarks import claims
from benchmarks.claims import ROOT, Claim, ClaimsError, read_claims

ROW = "| a | a claim | a paper | `true` | 1 | holds |"
TEXT = "text\n\n| name | claim | source | command | here | verdict |\n|---|---|---|---|---|---|\n"
PAGE = read_claims((ROOT / "docs" / "claims.md").read_text())


class _Parsed(Exception):
    """A benchmark takes its options."""


def test_a_row_is_a_claim() -> None:
    (found,) = read_claims(TEXT + ROW)
    assert found == Claim("a", "a claim", "a paper", ("true",), "1", "holds")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "a table with the columns name, claim"),
        (ROW.replace("holds", "maybe"), "a: found 'maybe', allowed are holds, does not hold"),
        (ROW.replace(" 1 ", "  "), "a: 6 cells with text expected"),
        (ROW.replace("| holds |", "|"), "a: 6 cells with text expected"),
        (f"{ROW}\n{ROW}", "a: this name is there twice"),
    ],
)
def test_a_page_that_is_wrong_is_refused(rows: str, said: str) -> None:
    with pytest.raises(ClaimsError, match=re.escape(said)):
        read_claims(TEXT + rows)


@pytest.mark.parametrize("claim", PAGE, ids=lambda claim: claim.name)
def test_a_command_names_what_is_there(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A claim that was not tested says why, and every other has a command: a target of make, a
    spec, tests, or a benchmark that takes these options."""
    if not claim.command:
        assert claim.verdict == "not tested"
        return
    program, *rest = claim.command
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "python":
        module = importlib.import_module(rest[1])
        if hasattr(module, "__path__"):  # of a package, python -m runs this
            module = importlib.import_module(f"{rest[1]}.__main__")

        parse = argparse.ArgumentParser.parse_args

        def parse_and_leave(parser: argparse.ArgumentParser, *_: object) -> None:
            parse(parser, rest[2:])
            raise _Parsed

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_leave)
        try:
            module.main()
        except _Parsed:
            return
        except SystemExit:
            pytest.fail(capsys.readouterr().err)
        pytest.fail(f"{rest[1]} takes no options")
    else:
        assert program in ("pytest", "groundwire")
        assert (ROOT / rest[-1]).exists(), rest[-1]


def test_each_command_runs_once_and_one_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "claims.md"
    again, wrong = ROW.replace("| a |", "| b |"), ROW.replace("| a |", "| c |")
    wrong = wrong.replace("true", "sh -c 'echo no; exit 3'")
    page.write_text(f"{TEXT}{ROW}\n{again}\n{wrong}\n")
    monkeypatch.setattr(claims, "PAGE", page)
    assert claims.main(["--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert "1 of 2  true  (a, b)" in told.out and "failed (3)" in told.out
    assert "failed: sh -c 'echo no; exit 3'" in told.err
    assert (tmp_path / "out" / "c.txt").read_text() == "no\n"
    assert claims.main(["--only", "a", "--out", str(tmp_path / "out")]) == 0
    assert claims.main(["--only", "x"]) == 2
    assert "--only: found ['x'], allowed are a, b, c" in capsys.readouterr().err
