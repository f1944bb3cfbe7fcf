"""The words of a run while it runs: which iteration, both clocks, and when it will end."""

from __future__ import annotations

import io
import re
from datetime import datetime, timedelta

import pytest
from rich.console import Console

from emulator.progress import Progress
from groundwire.commands.console.progress_display import ProgressDisplay
from groundwire.commands.console.time_left import TimeLeft
from groundwire.pipeline import told


class Wall:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(
            "groundwire.commands.console.progress_display.time.monotonic", lambda: self.now_s
        )


def test_an_event_survives_a_console_that_carries_other_lines() -> None:
    event = Progress("iteration", iteration=0, iterations=3, clock_ns=10_510_000_000)
    assert Progress.decode("[   10.5] " + event.encode()) == event
    assert Progress.decode("@groundwire {cut of") is None
    assert Progress.decode("anything") is None


def test_time_left_is_that_of_the_iterations_to_come() -> None:
    left = TimeLeft()
    assert left.estimate_s(0) is None
    left.begin(0, 5, now_s=10)
    assert left.estimate_s(11) is None
    left.begin(1, 5, now_s=14)
    assert left.estimate_s(14) == 16
    left.begin(2, 5, now_s=20)  # 5 s each by now
    assert left.estimate_s(20) == 15
    assert left.estimate_s(23) == 12
    assert left.estimate_s(99) == 0


def test_lines_tell_iteration_both_clocks_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, said = Wall(monkeypatch), io.StringIO()
    display = ProgressDisplay(Console(file=said, width=60))
    wall.now_s += 7
    display.report(Progress("iteration", iteration=0, iterations=3, clock_ns=10_510_000_000))
    wall.now_s += 60
    display.report(Progress("iteration", iteration=1, iterations=3, clock_ns=10_530_000_001))
    first, second = said.getvalue().splitlines()
    assert first == "   7.0 s  iteration 0 (1 of 3), 0.000000 s since the ranks began"
    found = re.fullmatch(
        r" +67\.0 s  iteration 1 \(2 of 3\), 0\.020000 s since the ranks began, about 120 s left "
        r"\(until (\d\d:\d\d:\d\d)\)",
        second,
    )
    assert found
    ends = datetime.now() + timedelta(seconds=120)
    near = {f"{ends - timedelta(seconds=back):%H:%M:%S}" for back in range(60)}
    assert found[1] in near


def test_a_long_iteration_shows_its_clock_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, said = Wall(monkeypatch), io.StringIO()
    display = ProgressDisplay(Console(file=said, width=100))
    display.report(Progress("clock", clock_ns=1))  # boot: no iteration yet
    display.report(Progress("iteration", iteration=0, iterations=2, clock_ns=10**10))
    for second in range(1, 41):
        wall.now_s += 1
        display.report(Progress("clock", clock_ns=10**10 + second * 1000))
    display.report(Progress("collect", "all ranks done"))
    display.report(Progress("clock", clock_ns=2 * 10**10))
    lines = [line.split("s  ", 1) for line in said.getvalue().splitlines()]
    assert [float(at) for at, _ in lines] == [0, 15, 30, 40]
    assert lines[1][1] == "iteration 0 (1 of 2), 0.000015 s since the ranks began"
    assert lines[-1][1] == "all ranks done"


def test_a_terminal_gets_a_bar_that_follows_the_clock() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with ProgressDisplay(console) as display:
        display.report(Progress("iteration", iteration=0, iterations=2, clock_ns=10**10))
        display.report(Progress("iteration", iteration=1, iterations=2, clock_ns=2 * 10**10))
        display.report(Progress("clock", clock_ns=3 * 10**10))
    assert "iteration 1, 20.000000 s since the ranks began" in screen.getvalue()
    assert "1/2" in screen.getvalue()


def test_a_narrow_terminal_tells_the_end_rather_than_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, screen = Wall(monkeypatch), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    with ProgressDisplay(console) as display:
        for iteration in range(120):
            display.report(
                Progress("iteration", iteration=iteration, iterations=128, clock_ns=10**10)
            )
            wall.now_s += 100
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert re.search(r"iteration 119, about 900 s left \(until \d\d:\d\d:\d\d\) ", shown)
    assert "119/128" in shown and "…" not in shown


def test_a_program_without_iterations_tells_its_clock_and_what_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, said = Wall(monkeypatch), io.StringIO()
    display = ProgressDisplay(Console(file=said, width=60))
    clock = Progress("clock", clock_ns=10_530_000_001, sent_bytes=5_240_000)
    wall.now_s += 9
    display.report(clock)
    assert said.getvalue() == ""
    wall.now_s += 1
    display.report(clock)
    display.report(clock)
    display.report(Progress("started", "2 processes started", clock_ns=10_500_000_000))
    wall.now_s += 10
    display.report(clock)
    assert said.getvalue().splitlines() == [
        "  10.0 s  10.530000 s of the kernel's clock, before any rank, 5.2 MB sent by all ports",
        "  10.0 s  2 processes started",
        "  20.0 s  0.030000 s since the ranks began, 5.2 MB sent by all ports",
    ]


def test_a_standstill_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, said = Wall(monkeypatch), io.StringIO()
    display = ProgressDisplay(Console(file=said, width=60))
    wall.now_s += 12
    display.report(Progress("standstill", "virtual time stands still: rank 3's process 71"))
    assert said.getvalue() == "  12.0 s  virtual time stands still: rank 3's process 71\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [_Terminal, io.StringIO])
def test_from_python_events_are_shown_on_a_terminal_alone(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = stream()
    monkeypatch.setattr("sys.stderr", screen)
    with told(None) as report:
        report(Progress("boot", "booting the virtual kernel"))
        report(Progress("stdout", "a line of the program"))
    shown = screen.getvalue()
    assert ("booting the virtual kernel" in shown) == isinstance(screen, _Terminal)
    assert ("a line of the program" in shown) == isinstance(screen, _Terminal)


def test_a_report_of_the_callers_own_is_told_and_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, events = _Terminal(), list[Progress]()
    monkeypatch.setattr("sys.stderr", screen)
    with told(events.append) as report:
        report(Progress("boot", "booting"))
    assert [event.detail for event in events] == ["booting"] and screen.getvalue() == ""
