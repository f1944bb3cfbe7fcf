"""Hosts made ready, asked what they can do, and cleaned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groundwire.remote.playbook import HostEvent, Watch, run_playbook
from groundwire.remote.running import Hosts


@dataclass(frozen=True, slots=True)
class HostReport:
    """The outcome at a host: `document` where something was asked, `failure` in words where it went
    wrong. `changed`: tasks that changed something."""

    host: str
    changed: tuple[str, ...]
    document: Mapping[str, Any] | None = None
    failure: str | None = None


def remote_doctor(hosts: Hosts, watch: Watch) -> list[HostReport]:
    """`groundwire doctor --json` of every host. Raises RemoteError, InventoryError."""
    return _reports("doctor", hosts, watch, {}, asked="Run groundwire doctor")


def remote_clean(hosts: Hosts, watch: Watch, *, remove_app: bool = False) -> list[HostReport]:
    """End our runs on every host, and remove them and what they left; with `remove_app` the
    application too. Raises RemoteError, InventoryError."""
    return _reports("clean", hosts, watch, {"groundwire_remove_app": remove_app})


def remote_provision(hosts: Hosts, watch: Watch, *, check: bool = False) -> list[HostReport]:
    """Bring every host to a state in which runs work; with `check` only tell what would change.
    Raises RemoteError, InventoryError."""
    return _reports("provision", hosts, watch, {}, options=("--check",) if check else ())


def _reports(
    playbook: str,
    hosts: Hosts,
    watch: Watch,
    variables: Mapping[str, object],
    *,
    asked: str | None = None,
    options: tuple[str, ...] = (),
) -> list[HostReport]:
    changed: dict[str, list[str]] = {}

    def see(event: HostEvent) -> None:
        if event.kind == "done" and event.result.get("changed"):
            changed.setdefault(event.host, []).append(event.task)
        watch(event)

    done = run_playbook(
        playbook,
        hosts.inventory,
        {"groundwire_native": hosts.native, **variables},
        see,
        limit=hosts.limit,
        options=options,
    )
    reports = []
    for host in done.hosts:
        failure = done.failures.get(host)
        said = done.results.get(host, {}).get(asked or "", {}).get("stdout")
        reports.append(
            HostReport(
                host,
                tuple(changed.get(host, ())),
                json.loads(said) if said and failure is None else None,
                None if failure is None else failure.in_words(),
            )
        )
    return reports
