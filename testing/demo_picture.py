"""README's picture: the tables of the demo, as a terminal of 80 columns shows them.

    .venv/bin/python -m testing.demo_picture

runs the demo and writes docs/demo.svg.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator.doctor.doctor import MAIN_JOB
from groundwire.commands.console.figures import WIDTH_IN_FILES, OutputConsole
from groundwire.commands.console.result_table import print_result
from groundwire.pipeline import run
from topologies.spec.spec import load_spec

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "demo.svg"
_FONT_FACES = re.compile(r"\n\s*@font-face \{.*?\n\s*\}", re.S)
_PLACE = Path("runs")


def demo_result() -> dict[str, Any]:
    """Run the demo on the virtual kernel; returns its result. Raises what a run raises."""
    with tempfile.TemporaryDirectory() as directory:
        made = run(load_spec(MAIN_JOB), kernel="virtual", out=Path(directory) / "demo")
        software = made.environment
        versions = {"Linux": software.kernel_release} | dict(software.versions)
        return dict(made.result) | {"versions": versions}


def draw(result: Mapping[str, Any]) -> str:
    """The tables as an SVG, with the versions that they hang on in a comment, and without the wall
    time, which is this machine's."""
    console = OutputConsole(
        record=True, width=WIDTH_IN_FILES, file=io.StringIO(), force_terminal=True
    )
    shown = {key: value for key, value in result.items() if key != "wall_s"}
    print_result(shown, _PLACE / "nowhere", console)
    picture = console.export_svg(title="make demo", unique_id="demo")
    picture = _FONT_FACES.sub("", picture)  # nothing is to be loaded
    told = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return picture.replace("\n", f"\n    <!-- {told} -->\n", 1)


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(demo_result()))
    print(f"{PICTURE} is written")


if __name__ == "__main__":
    main()
