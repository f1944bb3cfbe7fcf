"""A playbook, run by ansible-runner, as a stream of what happens on each host."""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topologies.extras import install_line

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
_POLL_S = 0.2


class RemoteError(RuntimeError):
    """Remote hosts cannot be worked with from here; the message says why and what to do."""


class InventoryError(ValueError):
    """The inventory names no host that can be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something that happened on a host. `kind` is "task", "progress", "done", "failed" or
    "unreachable"; `result` is what the module returned."""

    host: str
    kind: str
    task: str
    result: Mapping[str, Any]

    def in_words(self) -> str:
        """The failure, as the module, the command or ssh put it. The words of a loop are its
        item's: its own are that all items were gone through."""
        items = [item for item in self.result.get("results", ()) if item.get("failed")]
        result = items[0] if items else self.result
        said = [result.get(key) for key in ("msg", "stderr", "stdout", "module_stderr")]
        why = "\n".join(str(text).strip() for text in said if text) or "it did not say why"
        what = "cannot be reached" if self.kind == "unreachable" else f"{self.task!r} failed"
        return f"{what}: {why}"


@dataclass(slots=True)
class PlaybookResult:
    """`results`: host -> task -> what its module returned, of tasks that were done. `failures`:
    host -> the event that ended its part."""

    results: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    failures: dict[str, HostEvent] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """All that took part, in the order of their names."""
        return sorted({*self.results, *self.failures})


Watch = Callable[[HostEvent], None]

_KINDS = {
    "runner_on_start": "task",
    "runner_retry": "progress",
    "runner_on_ok": "done",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}


def run_playbook(
    name: str,
    inventory: Path,
    variables: Mapping[str, object],
    watch: Watch,
    *,
    limit: str | None = None,
    options: tuple[str, ...] = (),
) -> PlaybookResult:
    """Run playbooks/NAME.yml on the inventory's hosts; `watch` is called here with every event.

    KeyboardInterrupt ends Ansible, not what it has started on hosts. Raises RemoteError when
    Ansible is missing or ends before it comes to a host, InventoryError when the file is none.
    """
    runner = _ansible_runner()
    if not inventory.is_file():
        raise InventoryError(f"{inventory}: no such file; it must be an inventory of Ansible")
    result = PlaybookResult()
    with tempfile.TemporaryDirectory(prefix="groundwire-remote-") as private:
        said: list[str] = []
        arguments = {
            "private_data_dir": private,
            "playbook": str(PLAYBOOKS / f"{name}.yml"),
            "inventory": str(inventory.resolve()),
            "extravars": {"groundwire_packed": f"{private}/packed", **variables},
            "limit": limit,
            "cmdline": " ".join(options) or None,
            "envvars": {
                # ansible-playbook of the environment that we run in, also where that is not active
                "PATH": os.pathsep.join(
                    [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
                ),
                "ANSIBLE_PIPELINING": "1",  # a round trip less for each task
                "ANSIBLE_RETRY_FILES_ENABLED": "0",
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_LOCALHOST_WARNING": "0",
            },
            "quiet": True,
        }
        for event in _events(runner, arguments):
            if event["event"] not in _KINDS:
                said.append(str(event.get("stdout", "")))
                continue
            told = _host_event(event)
            if told.kind == "failed" and event["event_data"].get("ignore_errors"):
                continue
            if told.kind in ("failed", "unreachable"):
                result.failures[told.host] = told
            elif told.kind == "done":
                result.results.setdefault(told.host, {})[told.task] = told.result
            watch(told)
    if not result.hosts:
        words = "\n".join([line for line in said if line.strip()][-5:]) or "it said nothing"
        raise InventoryError(f"{inventory}: Ansible found no host to work on: {words}")
    return result


def _host_event(event: Mapping[str, Any]) -> HostEvent:
    data = event["event_data"]
    return HostEvent(data["host"], _KINDS[event["event"]], data["task"], data.get("res") or {})


def _events(runner: Any, arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Ansible's events as they come. Left early, it is ended."""
    arrived: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    stopped = threading.Event()

    def take(event: dict[str, Any]) -> bool:
        arrived.put(event)
        return False  # it need not be written to a file

    thread = threading.Thread(
        target=runner.run,
        kwargs={
            **arguments,
            "event_handler": take,
            "cancel_callback": stopped.is_set,
        },
    )
    thread.start()
    try:
        while thread.is_alive() or not arrived.empty():
            try:
                yield arrived.get(timeout=_POLL_S)
            except queue.Empty:
                continue
    finally:
        stopped.set()
        thread.join()


def _ansible_runner() -> Any:
    try:
        import ansible_runner
    except ImportError as error:
        raise RemoteError(
            "remote hosts are reached with Ansible, which is not installed: "
            + install_line("remote")
        ) from error
    return ansible_runner
