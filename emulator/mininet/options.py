"""Mininet's options that a fabric honours, and why it refuses others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mininet.link import Link, TCLink

# Options without effect: MAC addresses and ARP entries are a fabric's own, and there is nobody to
# wait for.
_WITHOUT_EFFECT = ("autoSetMacs", "autoStaticArp", "waitConnected", "cleanup", "listenPort")
_REFUSED: Mapping[str, tuple[Any, str]] = {
    "host": (None, "hosts are the fabric's: their processors cannot be limited"),
    "switch": (None, "switches are routers of the fabric, with its queue disciplines"),
    "controller": (None, "there is no controller: routers have their routes"),
    "intf": (None, "ports are the fabric's own"),
    "ipBase": ("10.0.0.0/8", "addresses are the fabric's own, from 10.0.0.0/8"),
    "inNamespace": (False, "switches have namespaces of their own anyway"),
    "xterms": (False, "there are no windows: use `groundwire shell`"),
    "autoPinCpus": (False, "hosts cannot be pinned to processors"),
}
"""Option -> the value that changes nothing, and why there is no other."""
# Stock classes that say no more than what a fabric is anyway.
_PLAIN = ("Host", "Node", "OVSSwitch", "OVSKernelSwitch", "OVSBridge", "LinuxBridge", "Intf")


class UnsupportedOption(ValueError):
    """An option of Mininet's constructor that a fabric cannot honour; says why."""


def refuse_unknown(params: dict[str, Any]) -> None:
    """Take out the options that change nothing. Raises UnsupportedOption for the others."""
    for name, value in list(params.items()):
        if name in _WITHOUT_EFFECT:
            continue
        if name == "link":  # of a topo's they have been taken
            if link_defaults(value):
                why = "links are the fabric's own, with their rates and delays"
                raise UnsupportedOption(f"option link={_shown(value)}: {why}")
            del params[name]
            continue
        if name not in _REFUSED:
            known = ", ".join(sorted({*_WITHOUT_EFFECT, *_REFUSED, "link"}))
            raise UnsupportedOption(f"option {name!r}: expected one of {known}")
        neutral, why = _REFUSED[name]
        plain = getattr(value, "__name__", None) in _PLAIN
        if value is not None and value != neutral and not plain:
            raise UnsupportedOption(f"option {name}={_shown(value)}: {why}")
        del params[name]


def link_defaults(link: Any) -> dict[str, Any]:
    """The options of links that do not say them themselves: the options of `partial(TCLink, ...)`.
    Raises UnsupportedOption for links of another class."""
    options: dict[str, Any] = {}
    while isinstance(link, partial):
        if link.args:
            raise UnsupportedOption(f"option link={_shown(link)}: expected options by name")
        options = link.keywords | options
        link = link.func
    if link not in (None, Link, TCLink):
        raise UnsupportedOption(
            f"option link={_shown(link)}: expected Link, TCLink, or partial(TCLink, bw=..., ...)"
        )
    return options


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)
