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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.failure import VirtualKernelError

ROOT = Path(__file__).resolve().parents[1]
_IN_GUEST = "GROUNDWIRE_TESTS_IN_GUEST"
_REPORT = "groundwire-report "
# All of them pass with 1 GB; a host should not be found too small for more than they need.
_MEMORY_BYTES = 1_500_000_000
# Without looking for garbage while it imports: that is a sixth of the time.
_PYTEST = (
    "import gc, sys; gc.disable(); import pytest, analysis.predict; gc.freeze(); gc.enable(); "
    "sys.exit(pytest.main(sys.argv[1:]))"
)
_ROOMS_OF_RUNS = ("howto", "labs", "remote", "session", "studies", "virtual")


# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("groundwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("groundwire")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background ignores it, and everything that tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "guest: runs as root inside the virtual kernel")


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


_REPORTS = pytest.StashKey[dict[str, list[pytest.TestReport]]]()


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

    guest = GuestSpec(
        argv=(
            sys.executable,
            "-c",
            _PYTEST,
            "-q",
            "--capture=sys",
            "-pno:cacheprovider",
            "-pno:timeout",  # its clock would be the guest's; ours bounds the guest as a whole
            "-m",
            "",  # what is named here has been selected, also where our own default leaves it out
            *(item.nodeid for item in items),
        ),
        environment={_IN_GUEST: "1", "PYTHONPATH": str(ROOT)},
        directory=ROOT,
        memory_bytes=_MEMORY_BYTES,
        time_travel=not real_time,
        stall_timeout_s=600,  # imports take no virtual time, and may take long on a busy machine
    )
    try:
        kernel = ensure_kernel(lambda line: print(line, file=sys.stderr))
        ended = run_guest(kernel, guest, on_line, said.append)
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
