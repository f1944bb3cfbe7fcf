"""A spec run on hosts: pushed, started, watched, collected."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from analysis.runs.run import Run, load_run
from emulator.output_directory import claimed
from groundwire.remote.playbook import HostEvent, RemoteError, run_playbook
from topologies.spec.spec import Spec

_RECORD = "remote.json"
Say = Callable[[str, str], None]
"""Called with a host's name and a line about it."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts: an inventory of Ansible, a pattern that limits it, and whether runs are by their
    own kernels, as root."""

    inventory: Path
    limit: str | None = None
    native: bool = False


@dataclass(frozen=True, slots=True)
class RemoteOutcome:
    """How a run ended on a host: with the run, brought here, or with the words of what failed."""

    host: str
    run: Run | None
    failure: str | None

    @property
    def exit_code(self) -> int:
        """As of a local run: 0 valid, 3 not valid, 1 failed."""
        if self.run is None:
            return 1
        return 0 if self.run.result["valid"] else 3


def remote_run(spec: Spec, hosts: Hosts, out: Path, say: Say) -> list[RemoteOutcome]:
    """Run `spec` on every host, and bring each run directory to `out`/HOST.

    Interrupted, it ends the runs on the hosts as Ctrl-C does. Raises FileExistsError for a
    directory that is not empty, RemoteError, InventoryError.
    """
    read = spec.workload.reads
    if read is not None:
        raise RemoteError(
            f"{spec.name}: its workload reads {read}, and files of a spec are not copied to hosts"
        )
    # Others may send runs to the same hosts at the same moment.
    name = f"{out.name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    with claimed(out):
        (out / _RECORD).write_text(json.dumps({"run": name, "native": hosts.native}, indent=1))
    watch = _Watch(say)
    with tempfile.TemporaryDirectory(prefix="groundwire-spec-") as scratch:
        (Path(scratch) / "spec.yaml").write_text(spec.to_yaml())
        variables = _variables(hosts, name) | {"groundwire_spec": f"{scratch}/spec.yaml"}
        try:
            done = run_playbook("run", hosts.inventory, variables, watch, limit=hosts.limit)
        except KeyboardInterrupt:
            with suppress(RemoteError, ValueError):
                run_playbook(
                    "stop", hosts.inventory, _variables(hosts, name), _silent, limit=hosts.limit
                )
            raise
    failures = {host: event.in_words() for host, event in done.failures.items()}
    for host, results in done.results.items():
        ended = _state(results.get("Wait for the run", {}))
        if host not in failures and ended.get("exit_code") not in (0, 3):
            failures[host] = _ending(ended)
    finished = [host for host in done.hosts if host not in failures]
    collected = _collect(name, hosts, finished, out, say) if finished else []
    return sorted(
        [*collected, *(RemoteOutcome(host, None, words) for host, words in failures.items())],
        key=lambda outcome: outcome.host,
    )


def remote_collect(hosts: Hosts, out: Path, say: Say) -> list[RemoteOutcome]:
    """Bring the runs that `remote_run` made for `out` here again, going on with what was fetched.

    Raises RemoteError when `out` is not of a remote run, InventoryError.
    """
    try:
        record = json.loads((out / _RECORD).read_text())
    except FileNotFoundError as error:
        raise RemoteError(f"{out}: no {_RECORD} in it, so it is not of a remote run") from error
    hosts = Hosts(hosts.inventory, hosts.limit, bool(record["native"]))
    return _collect(str(record["run"]), hosts, None, out, say)


def _collect(
    name: str, hosts: Hosts, chosen: list[str] | None, out: Path, say: Say
) -> list[RemoteOutcome]:
    parts = out / ".parts"
    variables = _variables(hosts, name) | {"groundwire_parts": str(parts.resolve())}
    limit = hosts.limit if chosen is None else ",".join(chosen)
    for host in chosen or []:
        say(host, "bringing the run here")
    done = run_playbook("collect", hosts.inventory, variables, _silent, limit=limit)
    outcomes = []
    for host in done.hosts:
        if host in done.failures:
            words = f"{done.failures[host].in_words()}\n`groundwire remote collect` goes on with it"
            outcomes.append(RemoteOutcome(host, None, words))
            continue
        _unpack(parts / host, out / host)
        outcomes.append(RemoteOutcome(host, load_run(out / host), None))
    with suppress(OSError):  # not empty: of a host whose run is not here yet
        parts.rmdir()
    return outcomes


def _unpack(parts: Path, directory: Path) -> None:
    """Raises RemoteError when they are no archive."""
    directory.mkdir(exist_ok=True)
    with subprocess.Popen(
        ["tar", "-xzf", "-", "-C", str(directory), "--no-same-owner"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as tar:
        assert tar.stdin is not None and tar.stderr is not None
        with suppress(BrokenPipeError), tar.stdin as archive:
            for part in sorted(parts.iterdir()):
                archive.write(part.read_bytes())
        said = tar.stderr.read().decode(errors="replace")
    if tar.returncode != 0:
        raise RemoteError(f"{parts} cannot be unpacked: {said.strip()}")
    shutil.rmtree(parts)


class _Watch:
    """Tells of each host what the run says there, whenever its last line is a new one."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: dict[str, str] = {}

    def __call__(self, event: HostEvent) -> None:
        if event.kind in ("failed", "unreachable"):
            self._tell(event.host, event.in_words().splitlines()[0])
        elif event.kind == "progress" or event.task == "Wait for the run":
            lines = _state(event.result).get("last_lines") or []
            if lines:
                self._tell(event.host, str(lines[-1]).strip())
        elif event.kind == "done" and event.task == "Start the run":
            self._tell(event.host, "started")

    def _tell(self, host: str, line: str) -> None:
        if self._told.get(host) != line:
            self._told[host] = line
            self._say(host, line)


def _silent(event: HostEvent) -> None:
    """Nobody is told."""


def _variables(hosts: Hosts, name: str) -> dict[str, object]:
    return {"groundwire_run": name, "groundwire_native": hosts.native}


def _state(result: Mapping[str, Any]) -> dict[str, Any]:
    """The output of `detached state`, if it came to that."""
    try:
        return dict(json.loads(result.get("stdout") or "{}"))
    except ValueError:
        return {}


def _ending(ended: Mapping[str, Any]) -> str:
    code = ended.get("exit_code")
    what = "it was killed" if code is None else f"exit code {code}"
    return "\n".join([f"the run failed, {what}; its last lines:", *ended.get("last_lines", [])])
