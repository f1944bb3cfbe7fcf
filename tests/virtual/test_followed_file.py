"""Following a file that grows while it is read."""

from __future__ import annotations

from pathlib import Path

from emulator.virtual.followed_file import FollowedFile


def test_a_file_that_grows_with_each_line_is_read_up_to_where_it_was(tmp_path: Path) -> None:
    path, lines = tmp_path / "console", list[str]()

    def answer(line: str) -> None:
        lines.append(line)
        if len(lines) < 1000:
            with path.open("a") as file:
                file.write(f"{len(lines)}\n")

    followed = FollowedFile(path, answer)
    path.write_text("0\nhalf")
    followed.poll()
    assert lines == ["0"]
    followed.poll()
    assert lines == ["0", "half1"]
    followed.close()
    assert lines == ["0", "half1", "2"]
