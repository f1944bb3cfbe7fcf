"""The `kv_cache` workload: a language model served by hosts for prompts and hosts for answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from topologies.request_file import read_request_file
from topologies.spec.fabric_section import Integer
from topologies.spec.foreign_files import keys_with_file
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_types import (
    MAX_SIZE_BYTES,
    Dtype,
    Iterations,
    SeveralRanks,
)
from topologies.spec.workloads import WorkloadSection
from topologies.units import SizeBytes, TimeNs

MOST_REQUESTS = 4096
_MOST_MESSAGES = 20_000
"""In an iteration. Each takes milliseconds of wall time in a guest, and some of its memory."""


def _per_second(value: object) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and 0 < value <= 1e6:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise ValueError("expected requests a second: a number above 0 and to 1,000,000")


class Arrival(SpecSection):
    """A request: when it comes, the tokens of its prompt, and those of its answer."""

    at_ns: TimeNs = Field(alias="at", ge=0)
    prompt: Integer = Field(ge=1, le=1 << 24)
    output: Integer = Field(ge=1, le=1 << 24)


class KvCacheWorkload(WorkloadSection):
    """Requests to a language model whose prompts are computed by `prefill` hosts, and whose answers
    are made by `decode` hosts, to which the keys and values of each prompt go (its KV cache).

    Ranks 0 to `prefill` - 1 are prefill hosts. Requests come as a Poisson process of `per_second`
    (all at the beginning without it), drawn from `seed`, with `prompt` and `output` tokens, or as
    `arrivals` or the trace at `path` say. The prefill host that is free first takes it, for
    `prefill_token` a token of its prompt; decode hosts take requests by turns. Each layer sends
    `token` bytes of a prompt's token to the decode host: `layer-wise` when the layer is computed,
    or `whole` when all are. A decode host makes a token for each of its requests in `decode_step`,
    whatever their number.
    """

    awaits_at_once: ClassVar[bool] = True
    kind: Literal["kv_cache"]
    prefill: Integer = Field(default=2, ge=1, le=2048)
    decode: Integer = Field(default=2, ge=1, le=2048)
    ranks: SeveralRanks = Field(default_factory=lambda data: data["prefill"] + data["decode"])
    iterations: Iterations = 1
    requests: Integer = Field(default=16, ge=1, le=MOST_REQUESTS)
    per_second: (
        Annotated[float, PlainValidator(_per_second), PlainSerializer(float, return_type=float)]
        | None
    ) = None
    prompt: Integer = Field(default=512, ge=1, le=1 << 24)
    output: Integer = Field(default=32, ge=1, le=1 << 24)
    path: str | None = Field(default=None, min_length=1)
    arrivals: tuple[Arrival, ...] | None = Field(default=None, min_length=1)
    prefill_token_ns: TimeNs = Field(default=40_000, alias="prefill_token", gt=0)
    decode_step_ns: TimeNs = Field(default=10_000_000, alias="decode_step", gt=0)
    layers: Integer = Field(default=8, ge=1, le=1024)
    token_bytes: SizeBytes = Field(default=4096, alias="token", gt=0, le=1 << 20)
    transfer: Literal["layer-wise", "whole"] = "layer-wise"
    seed: Integer = Field(default=1, ge=0, lt=2**32)
    dtype: Dtype = "bfloat16"

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        """The requests of a trace; a resolved spec has no `path`."""
        if not isinstance(data, dict) or not isinstance(data.get("path"), str):
            return data
        if "arrivals" in data:
            raise ValueError("expected either path or arrivals")
        wanted = data.get("requests", 16)
        most = wanted if isinstance(wanted, int) and 0 < wanted <= MOST_REQUESTS else MOST_REQUESTS

        def read(path: Path) -> dict[str, Any]:
            return {"arrivals": read_request_file(path, most)}

        found = keys_with_file(data, "workload", read)
        return found | {"requests": len(found["arrivals"])}

    @model_validator(mode="after")
    def _whole(self) -> KvCacheWorkload:
        if self.ranks != self.prefill + self.decode:
            raise ValueError(f"expected ranks: {self.prefill + self.decode}, prefill + decode")
        if self.arrivals is not None:
            if self.per_second is not None:
                raise ValueError("expected either per_second or arrivals")
            if len(self.arrivals) != self.requests:
                raise ValueError(f"expected requests: {len(self.arrivals)}, as many as arrivals")
            if any(
                a.at_ns > b.at_ns for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)
            ):
                raise ValueError("expected arrivals in order of time")
        messages = self.requests * (self.layers if self.transfer == "layer-wise" else 1)
        if messages > _MOST_MESSAGES:
            raise ValueError(f"expected at most {_MOST_MESSAGES} messages, found {messages}")
        longest = max((a.prompt for a in self.arrivals or ()), default=self.prompt)
        parts = 1 if self.transfer == "layer-wise" else self.layers
        if longest * self.token_bytes * parts > MAX_SIZE_BYTES:
            raise ValueError(f"expected messages of at most {MAX_SIZE_BYTES} bytes")
        if self.token_bytes % self.item_bytes:
            raise ValueError(f"expected token to be a multiple of {self.item_bytes} bytes")
        return self

    @property
    def reductions(self) -> None:
        """It has no collectives."""
