"""Finds out that a run hangs, and tells which ranks wait for which.

A run hangs when a rank waits for one operation for longer than a bound; or when no port has sent
anything for so long, where nothing is known of what ranks wait for. Without a bound somebody else
finds out that nothing can happen any more, and asks by a signal (emulator/virtual/guest.py).
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from emulator.network.network import Network
from emulator.ranks.failures.calls import read_calls
from emulator.ranks.failures.different_collectives import different_collectives
from emulator.ranks.failures.hang import find_hang
from emulator.ranks.failures.stacks import doings
from emulator.ranks.launcher import Launcher
from emulator.ranks.rank_process import set_name
from emulator.virtual.guest import WATCHING_THREAD

HANG_FILE = "hang.json"
"""The file of a run that hangs, in the run directory: a part for each job."""
_LOOKS = 4
"""So often a bound is looked for while it lasts."""


class RunHangs(RuntimeError):
    """The ranks of a run wait, and do not go on."""


class HangWatch:
    """Watches a run while its ranks run. A context manager.

    `places` are the jobs, by name, with the folder of their ranks' logs and how many ranks they
    have. `on_hang` is called from a thread when the run hangs for `bound_ns` (None: it is not
    looked for). `before_end` is called when somebody else has found out, as a kernel that ends then
    takes with it what is not in files.
    """

    def __init__(
        self,
        network: Network,
        launcher: Launcher,
        run_directory: Path,
        places: Sequence[tuple[str, Path, int]],
        bound_ns: int | None,
        on_hang: Callable[[RunHangs], None],
        before_end: Callable[[], None],
        *,
        real_time: bool,
    ) -> None:
        self._network, self._launcher, self._directory = network, launcher, run_directory
        self._places, self._bound_ns, self._on_hang = places, bound_ns, on_hang
        self._before_end, self._real_time = before_end, real_time
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hang-watch", daemon=True)

    def __enter__(self) -> HangWatch:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, lambda number, frame: self._tell_at_end())
        if self._bound_ns is not None:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)

    def tell(self) -> str:
        """Find out which ranks wait for which now, and write it to `HANG_FILE`; returns that in
        words."""
        at_ns = time.monotonic_ns()
        found: list[dict[str, object]] = []
        said = []
        for job, ranks, many in self._places:
            pids = {
                running.process.rank: pid
                for pid, running in list(self._launcher.running.items())
                if running.job == job
            }
            doing = doings(ranks, pids, self._real_time)
            hang = find_hang(read_calls(ranks), range(many), doing, at_ns, job)
            words = f"{hang}{different_collectives(ranks)}".strip()
            said.append(words)
            found.append(hang.as_dict() | {"said": words})
        (self._directory / HANG_FILE).write_text(json.dumps(found, indent=1) + "\n")
        return "\n".join(filter(None, said))

    def _tell_at_end(self) -> None:
        self.tell()
        self._before_end()

    def _watch(self) -> None:
        assert self._bound_ns is not None
        set_name(WATCHING_THREAD)
        sent, since_ns = -1, time.monotonic_ns()
        while not self._done.wait(self._bound_ns / _LOOKS / 1e9):
            now_ns = time.monotonic_ns()
            if not self._launcher.running:
                continue
            now_sent = sum(port.bytes for port in self._network.port_counters())
            if now_sent != sent:
                sent, since_ns = now_sent, now_ns
            reason = self._reason(now_ns, since_ns)
            if reason is not None:
                self._on_hang(RunHangs(f"the run hangs: {reason}\n{self.tell()}".strip()))
                return

    def _reason(self, now_ns: int, silent_since_ns: int) -> str | None:
        assert self._bound_ns is not None
        bound = f"{self._bound_ns / 1e9:g} s"
        if now_ns - silent_since_ns >= self._bound_ns:
            return f"no port has sent anything for {bound}"
        for job, ranks, _ in self._places:
            for rank, calls in read_calls(ranks).by_rank.items():
                for call in calls:
                    if call.state == "waits" and now_ns - call.at_ns >= self._bound_ns:
                        whose = f"rank {rank}" + (f" of job {job}" if job else "")
                        return f"{whose} has waited for {bound} in {call}"
        return None
