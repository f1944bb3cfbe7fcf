"""Tests marked `guest` run as root inside the virtual kernel, one boot per module.

The guest runs pytest on the module's selected tests and sends every report back as it is made, so
that failures, skips and durations look as if the tests had run here. Such tests take no fixtures
from outside of the guest's own run. `guest(real_time=True)` boots without time travel: a small
Linux machine with root and netem. Where no guest can be started they are skipped, but in CI (the
environment variable CI is set) they fail: it would be green without having tested anything.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel, find_kernel
from emulator.virtual.building.image import KernelImage
from emulator.virtual.ending import GuestResult
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.standing import NoCopy

if TYPE_CHECKING:
    from tests.standing_guest import StandingGuest

ROOT = Path(__file__).resolve().parents[1]
_IN_GUEST = "GROUNDWIRE_TESTS_IN_GUEST"
_REPORT = "groundwire-report "
# All of them pass with 1 GB; a host should not be found too small for more than they need.
_MEMORY_BYTES = 1_500_000_000
# Without looking for garbage while it imports: that is a sixth of the time. A guest of which copies
# run tests has their names when it goes on; files 3 and 4 are those of emulator/virtual/guest.py.
_PLACE = "/run/tests"
_ARGUMENTS = "arguments.json"
_PYTEST = f"""
import gc, json, os, sys
gc.disable()
import pytest, hypothesis, analysis.predict, testing.queue_lab
gc.freeze()
gc.enable()
os.write(3, b"p")
os.read(4, 1)
os.closerange(3, 5)
with open("{_PLACE}/{_ARGUMENTS}") as file:
    arguments = json.load(file)
sys.exit(pytest.main(arguments))
"""
_ROOMS_OF_RUNS = ("howto", "labs", "remote", "session", "studies", "virtual")
_ROOMS_OF_COPIES = (
    *("chakra", "collectives", "export", "howto", "labs", "partition", "ports", "predict", "ranks"),
    *("report", "routing", "serving", "simulation", "topologies", "trace"),
)
"""Tests of runs in which a copy of a guest that stands serves as well as one of their own. In the
others runs boot, or prepare guests themselves, but for modules with the mark `copies`."""
_RUN_BYTES = 2 * 10**9
_RUN_FILES = 1024


# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("groundwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("groundwire")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background ignores it, and everything that tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "guest: runs as root inside the virtual kernel")
    config.addinivalue_line(
        "markers", "copies: its runs may go on in copies of a guest that stands"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of whole runs come first, as one that begins last is waited for by all workers."""
    tests = ROOT / "tests"
    items.sort(key=lambda item: item.path.relative_to(tests).parts[0] not in _ROOMS_OF_RUNS)


if os.environ.get(_IN_GUEST):

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        data = _config.hook.pytest_report_to_serializable(config=_config, report=report)
        os.write(1, (f"\n{_REPORT}{json.dumps(data)}\n").encode())

    def pytest_sessionstart(session: pytest.Session) -> None:
        global _config
        _config = session.config

    _config: pytest.Config

else:

    def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if item.get_closest_marker("guest") is None:
            return None
        reports = item.session.stash.setdefault(_REPORTS, {})
        if item.nodeid not in reports:
            wanted = [
                other
                for other in item.session.items
                if other.path == item.path and other.get_closest_marker("guest")
            ]
            marker = item.get_closest_marker("guest")
            real_time = marker is not None and marker.kwargs.get("real_time", False)
            reports.update(_run_in_guest(item.config, wanted, real_time))
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports[item.nodeid]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # Things that tests before this one have set up for their module or package end here, as
        # they would had this one run in this process.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item: pytest.Item) -> None:
        stash = item.config.stash
        room = item.path.relative_to(ROOT / "tests").parts[0]
        copies = room in _ROOMS_OF_COPIES or item.get_closest_marker("copies")
        if not copies and _TOLD not in stash:
            return  # a test with a bound of seconds has no time for the import

        from emulator.prepared_guest import VARIABLE

        told = _runs_guest(stash) if copies else None
        if told is not None:
            os.environ[VARIABLE] = told
        elif os.environ.get(VARIABLE) == stash.get(_TOLD, None):  # it is no test's own
            os.environ.pop(VARIABLE, None)

    def pytest_unconfigure(config: pytest.Config) -> None:
        for guest in config.stash.get(_GUESTS, {}).values():
            if guest is not None:
                guest.end()


_REPORTS = pytest.StashKey[dict[str, list[pytest.TestReport]]]()
_GUESTS = pytest.StashKey[dict[str, "StandingGuest | None"]]()
_TOLD = pytest.StashKey["str | None"]()


def _runs_guest(stash: pytest.Stash) -> str | None:
    """The words by which runs find the guest that stands for them; None without."""
    if _TOLD not in stash:
        from emulator.prepared_guest import experiment_guest, telling

        kernel, told = find_kernel(), None
        if kernel is not None:
            guest = experiment_guest(None, _RUN_BYTES, _RUN_FILES, 1, prepares=True)
            socket = _standing(stash, "runs", kernel, guest)
            told = None if socket is None else telling(kernel, guest, socket)
        stash[_TOLD] = told
    return stash[_TOLD]


def _standing(stash: pytest.Stash, kind: str, kernel: KernelImage, guest: GuestSpec) -> Path | None:
    """The socket of this worker's guest of a kind; None where there is none."""
    from tests.standing_guest import StandingGuest

    guests = stash.setdefault(_GUESTS, {})
    if kind not in guests:
        try:
            guests[kind] = StandingGuest(kernel, guest)
        except VirtualKernelError:
            guests[kind] = None
    found = guests[kind]
    return None if found is None else found.socket


def _run_in_guest(
    config: pytest.Config, items: Iterable[pytest.Item], real_time: bool
) -> dict[str, list[pytest.TestReport]]:
    """The reports of every item; one that the guest did not get to fails with the guest's end."""
    items = list(items)
    found: dict[str, list[pytest.TestReport]] = {item.nodeid: [] for item in items}
    said: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith(_REPORT):
            data: dict[str, Any] = json.loads(line.removeprefix(_REPORT))
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            found[report.nodeid].append(report)
        else:
            said.append(line)

    arguments = [
        *("-q", "--capture=sys", "-pno:cacheprovider"),
        "-pno:timeout",  # its clock would be the guest's; ours bounds the guest as a whole
        # All that is named has been selected, also where our own default leaves it out.
        *("-m", "", *(item.nodeid for item in items)),
    ]
    try:
        kernel = ensure_kernel(lambda line: print(line, file=sys.stderr))
        with tempfile.TemporaryDirectory() as place:
            Path(place, _ARGUMENTS).write_text(json.dumps(arguments))
            guest = _tests_guest(real_time, Path(place))
            ended = _run_guest(config, kernel, guest, on_line, said.append)
        story = "\n".join(
            [f"the guest ended: {ended.reason} {ended.message}", *ended.console, *said[-40:]]
        )
        outcome = "failed"
    except VirtualKernelError as error:
        story = f"no virtual kernel: {error}"
        outcome = "failed" if os.environ.get("CI") else "skipped"
    except pytest.fail.Exception as error:  # pytest-timeout's
        story = "\n".join([f"the guest was ended: {error}", *said[-40:]])
        outcome = "failed"
    for item in items:
        if not any(
            report.when == "call" or report.outcome != "passed" for report in found[item.nodeid]
        ):
            found[item.nodeid] = [_unreached(item, outcome, story)]
    return found


def _tests_guest(real_time: bool, place: Path) -> GuestSpec:
    return GuestSpec(
        argv=(sys.executable, "-c", _PYTEST),
        environment={_IN_GUEST: "1", "PYTHONPATH": str(ROOT)},
        directory=ROOT,
        memory_bytes=_MEMORY_BYTES,
        time_travel=not real_time,
        stall_timeout_s=600,  # imports take no virtual time, and may take long on a busy machine
        prepares=True,
        places={place: _PLACE},
    )


def _run_guest(
    config: pytest.Config,
    kernel: KernelImage,
    guest: GuestSpec,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None],
) -> GuestResult:
    """In a copy of a guest that has imported pytest, where one is to be had: without time travel
    there is none."""
    socket = None
    if guest.time_travel:
        socket = _standing(config.stash, "tests", kernel, replace(guest, places={}))
    if socket is not None:
        with suppress(NoCopy):
            return run_guest(kernel, replace(guest, copy_of=socket), on_line, on_error_line)
    return run_guest(kernel, guest, on_line, on_error_line)


def _unreached(item: pytest.Item, outcome: Any, story: str) -> pytest.TestReport:
    where = (str(item.path), item.location[1] or 0, story)
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome=outcome,
        longrepr=where if outcome == "skipped" else story,
        when="call",
    )
