"""From a run directory to its result and report: what follows when the ranks are done."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from analysis.decode.found_collectives import add_found_collectives
from analysis.decode.mpi.messages import add_mpi_messages
from analysis.report.finish import figures_read_ahead, finish_run
from analysis.results.result import write_result
from analysis.runs.run import Run, load_run
from emulator.linux.signals import end_with_parent
from emulator.progress import Progress, Report


def finish(directory: Path, progress: Report, *, pages: bool) -> Run:
    """Write result.json of a run, and with `pages` report.html and trace.json. Raises RunError and
    what else a damaged run directory raises."""
    progress(Progress("predict", "comparing with the predictions"))
    made = load_run(directory)
    if _find_collectives(made):
        made = load_run(directory)
    if not pages:
        write_result(made)
    elif len(os.sched_getaffinity(0)) == 1:
        write_result(made)
        progress(Progress("report", "writing the report"))
        finish_run(made)
    else:
        with _PageProcess(made) as pages_process:
            write_result(made)
            progress(Progress("report", "writing the report"))
            if not pages_process.finishes():
                finish_run(made)  # which raises what was in its way
    return made


class _PageProcess(AbstractContextManager["_PageProcess"]):
    """A fork of this process that reads the captures while this one predicts, and makes the pages
    when the result is there. It ends with the context."""

    def __init__(self, run: Run) -> None:
        done, told = os.pipe()
        ordered, order = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                end_with_parent()
                os.close(order)
                figures = figures_read_ahead(run)
                if os.read(ordered, 1):
                    finish_run(run, figures)
                    os.write(told, b"d")
            finally:
                os._exit(0)
        os.close(ordered)
        os.close(told)
        self._done, self._order = done, order

    def finishes(self) -> bool:
        """Let it make the pages, and wait for that; whether it did."""
        with suppress(BrokenPipeError):  # it has failed before
            os.write(self._order, b"g")
        return os.read(self._done, 1) == b"d"

    def __exit__(self, *exception: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._done)
        os.close(self._order)


def _find_collectives(run: Run) -> bool:
    """Add to the logs of programs what only the captures tell; whether there was any."""
    found = []
    for _, each in run.parts:
        program = each.spec.workload.program
        if program is not None:
            by_mpi = program.per == "job" and add_mpi_messages(each)
            found.append(by_mpi or add_found_collectives(each))
    return any(found)
