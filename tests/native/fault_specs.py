"""Faults as a spec writes them."""

from __future__ import annotations

from pydantic import TypeAdapter

from topologies.spec.run_sections import FaultSpec

_ADAPTER: TypeAdapter[FaultSpec] = TypeAdapter(FaultSpec)


def fault(kind: str, link: str, **keys: object) -> FaultSpec:
    return _ADAPTER.validate_python({"kind": kind, "link": link, **keys})
