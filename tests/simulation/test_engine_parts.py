"""Parts of the packet engine, against what the kernel itself and RFCs say of them."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from simulation.building import INCLUDES

_Ask = Callable[..., list[list[int]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> _Ask:
    """Asks the parts for something: the numbers of each line that they print."""
    program = tmp_path_factory.mktemp("engine") / "parts"
    source = Path(__file__).with_name("engine_parts.cpp")
    flags = ["-O1", "-std=c++20", *INCLUDES]
    subprocess.run(["g++", *flags, "-o", str(program), str(source)], check=True)

    def asked(*words: str | int) -> list[list[int]]:
        done = subprocess.run(
            [program, *map(str, words)], check=True, capture_output=True, text=True
        )
        return [[int(number) for number in line.split()] for line in done.stdout.splitlines()]

    return asked


def test_random_numbers_pass_the_kernel_s_own_test(ask: _Ask) -> None:
    """The results of test1 in lib/random32.c for the seeds 1 to 4."""
    expected = [3484351685, 2623130059, 3125133893, 984847254]
    assert ask("random", 1, 2, 3, 4) == [[number] for number in expected]


def test_cubic_roots_are_as_far_off_as_the_kernel_says(ask: _Ask) -> None:
    """0.2% in the mean (tcp_cubic.c), of whole numbers."""
    drawn = random.Random(1)
    values = [*range(1, 70), *(drawn.randrange(1, 2 ** drawn.randrange(1, 41)) for _ in range(500))]
    for value, (root,) in zip(values, ask("cubic-root", *values), strict=True):
        assert root == pytest.approx(value ** (1 / 3), rel=0.01, abs=1)


def test_red_marks_nothing_below_its_line_and_all_above_it(ask: _Ask) -> None:
    """From 20 KB on with a chance that rises to a half at 60 KB; a buffer of 100 KB, packets of
    1,000 bytes."""
    (marked,) = ask("red")
    assert len(marked) == 101  # the first one is on the line, and a hundred wait
    assert not any(marked[:21])
    assert all(marked[62:])
    assert 5 < sum(marked[21:62]) < 20


def test_virtual_output_queues_take_turns_by_link(ask: _Ask) -> None:
    """Packets by one link, then by another: in turns, once the first one is gone. The buffer is
    each link's own, of two packets."""
    left, dropped = ask("voq")
    assert left == [0, 10_000, 1000, 11_000, 2000]
    assert dropped == [2]


def test_codel_drops_at_the_head_what_waits_too_long(ask: _Ask) -> None:
    """RFC 8289: nothing for an interval after the wait has come to the target, then one, and the
    next ones an interval over the root of their number later."""
    left, dropped = ask("codel")
    frame_ns = 1038 * 8
    above = -(-50_000 // frame_ns)
    first = -(-(above * frame_ns + 200_000) // frame_ns)
    lost = [seq for seq in range(100) if seq not in left]
    assert lost[0] == first
    assert dropped == [len(lost)]
    waits = [(b - a - 1) * frame_ns for a, b in pairwise(lost[:4])]
    assert waits == pytest.approx([200_000, 200_000 / 2**0.5, 200_000 / 3**0.5], abs=frame_ns)
