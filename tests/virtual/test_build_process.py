"""Programs that work on the kernel's tree."""

from pathlib import Path

import pytest

from emulator.virtual.building.build_process import build_process


def test_make_finds_itself_in_an_emptied_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Makefile").write_text("all:\n\t@$(MAKE) -s other\nother:\n\t@echo made\n")
    monkeypatch.delenv("PATH")
    with build_process(["make", "-s", "-C", str(tmp_path)]) as make:
        assert make.stdout is not None
        said = make.stdout.read()
    assert make.returncode == 0, said
    assert said.split()[-1] == "made"
